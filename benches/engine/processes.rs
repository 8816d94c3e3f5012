//! Several processes on one database: processes that all work, and one that sends to another.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fsm::Client;

use crate::arguments::{Arguments, Instances};
use crate::database::BenchDatabase;
use crate::load::{Load, WARM_UP, begin_all};
use crate::machine::{Counters, Pulse, Timed, now_us, text};
use crate::rate_limit;
use crate::report::{Report, percentiles};

type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

/// The number of callers, in all processes together or in each one.
const CALLERS: usize = 256;
/// The number of instances of each process.
const INSTANCES: usize = 2000;
/// The number of sends that are measured.
const SAMPLES: usize = 300;

/// Measures the total rate of 1, 2, 4 and 8 processes that each send, work and wait: with the same number of callers in total, and with the
/// same number each.
pub async fn measure_several(bench_database: &BenchDatabase, arguments: &Arguments, report: &mut Report) -> Result {
    bench_database.migrate().await?;
    let alone = total_rate(bench_database, arguments, "alone", 1, CALLERS).await?;
    report.put(format!("1 process, {CALLERS} callers"), alone, "a second", String::new());
    for (whose, is_shared) in [("in all", true), ("each", false)] {
        for count in [2, 4, 8] {
            let callers = if is_shared { CALLERS / count } else { CALLERS };
            let sum = total_rate(bench_database, arguments, whose, count, callers).await?;
            let share = 100.0 * sum / alone;
            report.put(format!("{count} processes, {CALLERS} callers {whose}"), sum, "a second", format!("{share:.0} % of one"));
        }
    }
    Ok(())
}

/// Returns the total rate of `count` processes with `callers` callers each.
async fn total_rate(bench_database: &BenchDatabase, arguments: &Arguments, name: &str, count: usize, callers: usize) -> Result<f64> {
    let (callers, seconds) = (callers.to_string(), arguments.each.as_secs_f64().to_string());
    let mut children = Vec::new();
    for number in 0..count {
        children.push(ChildProcess::begin(bench_database, &[&format!("{name}-{count}-{number}"), &callers, &seconds])?);
    }
    // All processes start to count at the same time, when all of them are ready.
    children.iter_mut().try_for_each(|child| child.line().map(drop))?;
    children.iter_mut().try_for_each(ChildProcess::go)?;
    let mut sum = 0.0;
    for mut child in children {
        sum += child.line()?.parse::<f64>()?;
        child.end()?;
    }
    Ok(sum)
}

/// Measures two latencies. One process only sends, and another one runs verbs. One ends when the verb starts. The other ends when
/// the sender sees the instance settled.
pub async fn measure_across(bench_database: &BenchDatabase, report: &mut Report) -> Result {
    let client = Client::connect(&bench_database.url).await?;
    let mut child = ChildProcess::begin(bench_database, &["across", "0", "0"])?;
    child.line()?;
    let handle = client.machine::<Pulse>();
    let mut settled = Vec::new();
    for turn in 0..SAMPLES {
        tokio::time::sleep(Duration::from_millis(3)).await;
        let (key, begun) = (format!("across-{}", turn % 20), Instant::now());
        handle.send(&key, Timed { sent_us: now_us(), text: text() }).await?;
        handle.settled(&key).await?;
        settled.push(begun.elapsed());
    }
    child.go()?;
    let began: Vec<Duration> = child.line()?.split(' ').filter_map(|us| us.parse().ok()).map(Duration::from_micros).collect();
    child.end()?;
    for (what, samples) in [("to another process, sent to begun, p50", began), ("to another process, sent to seen settled, p50", settled)] {
        let count = samples.len();
        let (median, p99) = percentiles(samples);
        report.put(what, median, "ms", format!("p99 {p99:.2} ms, {count} sends"));
    }
    Ok(())
}

/// The task of a child process: limited calls, or a load. With callers it produces a load of its own; without callers it runs verbs for other
/// processes.
pub async fn work(url: &str, words: &[String]) -> Result {
    if words.first().is_some_and(|name| name == "limited") {
        return rate_limit::work(url).await;
    }
    let [name, callers, seconds] = words else { return Err("a child needs a name, a number of callers and the seconds".into()) };
    let (callers, seconds): (usize, f64) = (callers.parse()?, seconds.parse()?);
    let ended = Arc::<Counters>::default();
    let builder = fsm::Runtime::builder().database(url).only::<Pulse>().concurrency(4096);
    let runtime = builder.data(Arc::clone(&ended)).start().await?;
    if callers == 0 {
        begin_all(&runtime, name, 20).await?;
        print_line("ready")?;
        wait_for_line()?;
        let began: Vec<String> = ended.began_us.lock().map_err(|_| "a verb panicked")?.iter().map(u64::to_string).collect();
        print_line(&began.join(" "))?;
    } else {
        begin_all(&runtime, name, INSTANCES).await?;
        print_line("ready")?;
        wait_for_line()?;
        let load = Load::begin(&runtime, name, Instances::as_made(INSTANCES), callers);
        tokio::time::sleep(WARM_UP).await;
        print_line(&load.rate(Duration::from_secs_f64(seconds)).await.to_string())?;
        load.end().await?;
    }
    wait_for_line()?;
    Ok(runtime.shutdown().await?)
}

pub fn print_line(line: &str) -> Result {
    println!("{line}");
    Ok(std::io::stdout().flush()?)
}

/// Waits for a line from the parent process, or for the parent's end.
pub fn wait_for_line() -> Result {
    std::io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}

/// A child process that works on the database.
pub struct ChildProcess {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl ChildProcess {
    pub fn begin(bench_database: &BenchDatabase, words: &[&str]) -> Result<ChildProcess> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--work-on", &bench_database.url]).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("the child has no output")?);
        Ok(ChildProcess { child, lines })
    }

    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        if line.is_empty() { Err("a child ended before it said anything".into()) } else { Ok(line.trim().to_owned()) }
    }

    pub fn go(&mut self) -> Result {
        let mut input = self.child.stdin.as_ref().ok_or("the child has no input")?;
        Ok(input.write_all(b"go\n")?)
    }

    pub fn end(mut self) -> Result {
        self.go()?;
        drop(self.child.stdin.take());
        if self.child.wait()?.success() { Ok(()) } else { Err("a child failed".into()) }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // The child is still alive only after an error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
