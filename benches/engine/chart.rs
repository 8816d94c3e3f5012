//! The figures as bar charts in SVG, for browsers and documentation.

use std::fmt::Write as _;
use std::path::Path;

use crate::report::Report;

const WIDTH: f64 = 810.0;
const LEFT: f64 = 300.0;
const BAR: f64 = 18.0;
const GAP: f64 = 6.0;
/// The space above the first bar and above each group, in pixels.
const HEAD: f64 = 44.0;
const TITLE: f64 = 24.0;
const COLOURS: [&str; 3] = ["#2f6f9f", "#c98b2b", "#5b8c5a"];

/// A chart: its name, its title and the figures that it shows.
struct Chart {
    file: &'static str,
    title: &'static str,
    unit: &'static str,
    /// The prefixes of the names of its figures.
    prefixes: &'static [&'static str],
}

const CHARTS: [Chart; 3] = [
    Chart {
        file: "throughput.svg",
        title: "Durable transitions a second",
        unit: "a second",
        prefixes: &["limit", "transitions", "chain", "enqueue"],
    },
    Chart { file: "latency.svg", title: "One caller, and nothing else under way", unit: "ms", prefixes: &["idle", "to another process"] },
    Chart {
        file: "processes.svg",
        title: "Several processes on one database",
        unit: "a second",
        prefixes: &["1 process", "2 process", "4 process", "8 process"],
    },
];

/// Writes each chart for which there is a figure into `folder`.
pub fn draw(reports: &[Report], folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for chart in &CHARTS {
        let groups: Vec<(&str, Vec<(&str, f64)>)> = reports.iter().map(|report| (report.title(), chart.figures(report))).collect();
        if groups.iter().any(|(_, figures)| !figures.is_empty()) {
            std::fs::write(folder.join(chart.file), chart.svg(&groups))?;
        }
    }
    Ok(())
}

impl Chart {
    fn figures<'r>(&self, report: &'r Report) -> Vec<(&'r str, f64)> {
        let is_shown = |what: &str, unit: &str| unit == self.unit && self.prefixes.iter().any(|begin| what.starts_with(begin));
        report.figures().filter(|(what, _, unit)| is_shown(what, unit)).map(|(what, value, _)| (what, value)).collect()
    }

    fn svg(&self, groups: &[(&str, Vec<(&str, f64)>)]) -> String {
        let most = groups.iter().flat_map(|(_, figures)| figures).map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
        let bars: usize = groups.iter().map(|(_, figures)| figures.len()).sum();
        let height = HEAD + groups.len() as f64 * (TITLE + GAP) + bars as f64 * (BAR + GAP);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
             <text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"600\">{}</text>\n",
            escaped(self.title)
        );
        let mut y = HEAD;
        for (number, (title, figures)) in groups.iter().enumerate() {
            let _ = writeln!(svg, "<text x=\"16\" y=\"{}\" font-weight=\"600\" fill=\"#444444\">{}</text>", y + 14.0, escaped(title));
            y += TITLE;
            for (what, value) in figures {
                let width = ((WIDTH - LEFT - 90.0) * value / most).max(1.0);
                let middle = y + BAR - 5.0;
                let colour = if what.starts_with("limit") { "#b0b0b0" } else { COLOURS[number % COLOURS.len()] };
                let _ = writeln!(
                    svg,
                    "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{}</text>\
                     <rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>\
                     <text x=\"{:.1}\" y=\"{middle}\" fill=\"#333333\">{}</text>",
                    LEFT - 8.0,
                    escaped(what),
                    LEFT + width + 6.0,
                    rounded(*value)
                );
                y += BAR + GAP;
            }
            y += GAP;
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// Rounds to three digits; the measurement is not more precise.
fn rounded(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
