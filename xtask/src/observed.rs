//! `cargo xtask observed`: compares the rate of a process with metrics, traces and open pages of the console to the rate without them.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::cluster;
use crate::postgres;
use crate::step::{Failed, cargo, run as run_step};

/// The options of the command.
#[derive(clap::Args)]
pub struct Options {
    /// The number of concurrent callers
    #[arg(long, default_value_t = 2000)]
    callers: usize,
    /// The seconds of each measurement
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// The number of rounds; each measures every variant once
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Measures on SQLite files instead of PostgreSQL
    #[arg(long)]
    sqlite: bool,
    /// Builds without optimisation, for a test of this command
    #[arg(long)]
    debug: bool,
}

/// What is measured: a name, whether the program has the features, and the arguments of the program.
const VARIANTS: [(&str, bool, &[&str]); 6] = [
    ("built without the features", false, &[]),
    ("built with them, nothing installed", true, &[]),
    ("metrics", true, &["--metrics"]),
    ("metrics, and 1 % of the traces", true, &["--metrics", "--traces", "0.01"]),
    ("metrics, and all traces", true, &["--metrics", "--traces", "1"]),
    ("200 open pages of the console", true, &["--pages", "200"]),
];

/// Builds the program with and without the features, runs all variants in turns, and prints their medians beside that of the first variant.
/// `Failed` if one of them cannot be built or measured.
pub fn run(options: &Options) -> Result<(), Failed> {
    let (without, with) = (build(options, false)?, build(options, true)?);
    let given_url = cluster::given(cluster::VARIABLE);
    let own_server = if given_url.is_some() || options.sqlite { None } else { Some(postgres::start_durable()?) };
    let server = given_url.or_else(|| own_server.as_ref().map(cluster::Cluster::url));
    let mut rates = VARIANTS.map(|_| Vec::new());
    for round in 0..options.rounds {
        for turn in 0..VARIANTS.len() {
            // Each round begins with another variant, so that a drift of the machine favours none.
            let variant = (round + turn) % VARIANTS.len();
            let (name, has_features, arguments) = VARIANTS[variant];
            let program = if has_features { &with } else { &without };
            let rate = measure_rate(program, server.as_deref().filter(|_| !options.sqlite), options, arguments)?;
            eprintln!("    {rate:>8.0} a second: {name}");
            rates[variant].push(rate);
        }
    }
    let base = median(&rates[0]);
    println!("{} callers, {} s, medians of {}", options.callers, options.seconds, options.rounds);
    for ((name, ..), rates) in VARIANTS.iter().zip(&rates) {
        println!("{:>6.1} %  {:>8.0} a second  {name}", 100.0 * median(rates) / base, median(rates));
    }
    Ok(())
}

/// Builds the program, and returns where it is.
fn build(options: &Options, has_features: bool) -> Result<PathBuf, Failed> {
    let mut command = cargo(&["build", "--package", "fsm-observed"]);
    if !options.debug {
        command.arg("--release");
    }
    if has_features {
        command.args(["--features", "metrics,otel,console"]);
    }
    run_step(&mut command)?;
    // This program is in target/debug.
    let own_program = std::env::current_exe().map_err(Failed::because)?;
    let target = own_program.parent().and_then(|debug| debug.parent()).ok_or_else(|| Failed::because("xtask is in no target folder"))?;
    let built = target.join(if options.debug { "debug" } else { "release" }).join("fsm-observed");
    let kept = built.with_file_name(if has_features { "fsm-observed-with" } else { "fsm-observed-without" });
    std::fs::copy(&built, &kept).map_err(Failed::because)?;
    Ok(kept)
}

fn measure_rate(program: &PathBuf, server: Option<&str>, options: &Options, arguments: &[&str]) -> Result<f64, Failed> {
    let folder = std::env::temp_dir().join(format!("fsm-observed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(Failed::because)?;
    let url = server.map_or_else(|| format!("sqlite://{}", folder.join("observed.db").display()), str::to_owned);
    let mut command = Command::new(program);
    command.arg(url).args(["--callers", &options.callers.to_string(), "--seconds", &options.seconds.to_string()]).args(arguments);
    let ended = command.stderr(Stdio::inherit()).output().map_err(Failed::because);
    std::fs::remove_dir_all(&folder).map_err(Failed::because)?;
    let ended = ended?;
    let rate = String::from_utf8_lossy(&ended.stdout).trim().parse();
    if ended.status.success() {
        rate.map_err(Failed::because)
    } else {
        Err(Failed::because(format!("a measurement ended with {}", ended.status)))
    }
}

fn median(rates: &[f64]) -> f64 {
    let mut rates = rates.to_vec();
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or(f64::NAN)
}
