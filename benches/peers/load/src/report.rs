//! The lines that the driver reads: one JSON value each, on standard output.

use std::time::Duration;

use serde_json::json;

/// Prints a figure with a comment.
pub fn put(what: &str, value: f64, unit: &str, beside: &str) {
    println!("{}", json!({"what": what, "value": value, "unit": unit, "beside": beside}));
}

/// Prints the 50th and the 99th percentile.
pub fn put_latency(what: &str, mut samples: Vec<Duration>) {
    samples.sort_unstable();
    let count = samples.len();
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let place = ((count as f64 * share) as usize).min(count.saturating_sub(1));
        if let Some(sample) = samples.get(place) {
            put(&format!("{what}, {name}"), sample.as_secs_f64() * 1e3, "ms", &format!("{count} jobs"));
        }
    }
}

/// Prints a note about the peer, which is not a measurement.
pub fn note(name: &str, text: &str) {
    println!("{}", json!({"note": name, "text": text}));
}
