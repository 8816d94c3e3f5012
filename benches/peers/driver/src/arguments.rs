//! The command line: the peers to measure, and the duration.

use crate::Result;
use crate::peers::{PEERS, Peer};

pub struct Arguments {
    pub peers: Vec<&'static Peer>,
    pub seconds: f64,
    pub callers: Vec<usize>,
    pub is_json: bool,
    pub is_build_only: bool,
    /// The command as a person types it.
    pub command: String,
}

impl Arguments {
    pub fn parse(words: impl Iterator<Item = String>) -> Result<Arguments> {
        let words: Vec<String> = words.collect();
        let command = format!("cargo xtask peers {}", words.join(" ")).trim_end().to_owned();
        let mut arguments =
            Arguments { peers: Vec::new(), seconds: 2.0, callers: vec![256, 2000], is_json: false, is_build_only: false, command };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("`{word}` takes a value"));
            match word.as_str() {
                "--seconds" => arguments.seconds = value()?.parse().map_err(|_| "`--seconds` takes a number")?,
                "--callers" => {
                    let callers: std::result::Result<_, _> = value()?.split(',').map(str::parse).collect();
                    arguments.callers = callers.map_err(|_| "`--callers` takes numbers: 256,2000")?;
                }
                "--json" => arguments.is_json = true,
                "--build" => arguments.is_build_only = true,
                name => arguments.peers.extend(named(name)?),
            }
        }
        if arguments.peers.is_empty() {
            arguments.peers = PEERS.iter().collect();
        }
        Ok(arguments)
    }

    /// The number of callers as a peer's program takes it.
    pub fn callers(&self) -> String {
        self.callers.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
    }
}

/// Finds the peers with this name or prefix: `apalis` selects all of `apalis-postgres`, `apalis-sqlite-full` and so on.
fn named(name: &str) -> Result<Vec<&'static Peer>> {
    if let Some(peer) = PEERS.iter().find(|peer| peer.name == name) {
        return Ok(vec![peer]);
    }
    let named: Vec<_> = PEERS.iter().filter(|peer| peer.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'))).collect();
    if named.is_empty() {
        let all: Vec<_> = PEERS.iter().map(|peer| peer.name).collect();
        return Err(format!("`{name}` is no peer; there are {}", all.join(", ")).into());
    }
    Ok(named)
}
