//! A payment gateway that fails, with the ledger that a real one would keep. It is in this process, or in the process that started it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fsm::prelude::*;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

#[derive(Debug)]
pub struct Unreachable(pub &'static str);
impl std::fmt::Display for Unreachable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}
impl std::error::Error for Unreachable {}

#[derive(Debug)]
pub struct Declined;
impl std::fmt::Display for Declined {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the card was declined")
    }
}
impl std::error::Error for Declined {}

/// The wait that the gateway asks for while it is down, as `Retry-After` does. Eight retries outlast the outage of the demonstration.
const RETRY_AFTER: Duration = Duration::from_secs(3);

pub enum Gateway {
    Here(Arc<Ledger>),
    /// The gateway of another process.
    At(SocketAddr),
}

#[derive(Default)]
pub struct Ledger {
    /// The charged cents by idempotency key. A second charge with the same key is the same charge.
    pub charges: Mutex<HashMap<String, u64>>,
    pub calls: AtomicU64,
    pub repeats: AtomicU64,
    pub is_down: AtomicBool,
    pub is_bank_away: AtomicBool,
}

/// A request to the gateway of another process.
#[derive(Serialize, Deserialize)]
struct Wanted {
    idempotency_key: String,
    card: String,
    cents: u64,
}

/// The answer of the gateway.
#[derive(Serialize, Deserialize)]
enum Answer {
    Receipt(String),
    Declined,
    Down,
    BankAway,
    Silence,
    Lost,
}

impl Gateway {
    pub async fn charge(&self, idempotency_key: &str, card: &str, cents: u64) -> Result<String, Failure> {
        let wanted = Wanted { idempotency_key: idempotency_key.to_owned(), card: card.to_owned(), cents };
        let answer = match self {
            Gateway::Here(ledger) => {
                tokio::time::sleep(Duration::from_millis(3)).await;
                ledger.answer(&wanted)
            }
            Gateway::At(address) => asked(*address, &wanted).await?,
        };
        match (answer, self) {
            (Answer::Receipt(receipt), _) => Ok(receipt),
            (Answer::Declined, _) => Err(Declined.into()),
            (Answer::Down, Gateway::Here(_)) => Err(Unreachable("the gateway is down").into()),
            (Answer::Down, Gateway::At(_)) => Err(Failure::retry_after(Unreachable("the gateway is down"), RETRY_AFTER)),
            (Answer::BankAway, _) => Err(Unreachable("the bank of this card does not answer").into()),
            (Answer::Silence, _) => Err(Unreachable("the gateway does not answer").into()),
            (Answer::Lost, _) => Err(Unreachable("the connection broke before the answer").into()),
        }
    }
}

impl Ledger {
    fn answer(&self, wanted: &Wanted) -> Answer {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if self.is_down.load(Ordering::Relaxed) {
            return Answer::Down;
        }
        if wanted.card == "4000-0002" {
            return Answer::Declined;
        }
        if wanted.card == "6011-0077" && self.is_bank_away.load(Ordering::Relaxed) {
            return Answer::BankAway;
        }
        // Three calls in ten fail: two before the charge, and one after it, so that only the answer is lost.
        let luck = call.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        if matches!(luck % 10, 0 | 1) {
            return Answer::Silence;
        }
        let mut charges = self.charges.lock().expect("no code panics while it holds the ledger");
        if charges.insert(wanted.idempotency_key.clone(), wanted.cents).is_some() {
            self.repeats.fetch_add(1, Ordering::Relaxed);
        }
        if luck % 10 == 2 { Answer::Lost } else { Answer::Receipt(format!("receipt-{call}")) }
    }
}

/// Asks the gateway of another process: one line there, one line back.
async fn asked(address: SocketAddr, wanted: &Wanted) -> Result<Answer, Failure> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("{}\n", serde_json::to_string(wanted)?).as_bytes()).await?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).await?;
    Ok(serde_json::from_str(&line)?)
}

/// Answers the worker processes. Each answer takes a moment, so that there is always one that a kill interrupts.
pub async fn serve(listener: TcpListener, ledger: Arc<Ledger>) {
    while let Ok((stream, _)) = listener.accept().await {
        let ledger = Arc::clone(&ledger);
        tokio::spawn(async move {
            let (read, mut write) = stream.into_split();
            let mut line = String::new();
            BufReader::new(read).read_line(&mut line).await?;
            tokio::time::sleep(Duration::from_millis(400)).await;
            let answer = ledger.answer(&serde_json::from_str(&line)?);
            write.write_all(serde_json::to_string(&answer)?.as_bytes()).await
        });
    }
}
