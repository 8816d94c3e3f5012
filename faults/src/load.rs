//! The senders: each caller opens accounts, moves money through them, closes them, and records the answers in the ledger.

use std::future::IntoFuture;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fsm::{EventFor, Handle, Machine, Sent};
use serde::{Deserialize, Serialize};

use crate::basket::{Basket, Fill};
use crate::ledger::{Ledger, Line};
use crate::machine::{Account, Book, Close, Move, Open, Stall, Wager, Work};
use crate::purchase::{Cancel, Charge, Order, Purchase};
use crate::random::Random;

/// The settings of a sender.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Load {
    /// The number of accounts that are open at the same time; 0 sends nothing.
    pub callers: usize,
    /// The number of moves between the opening and the close of an account.
    pub moves: u32,
    /// The maximum duration of a verb, in milliseconds.
    pub ms: u64,
    /// One of this many accounts begins with a wager, which has no retry policy; 0 is none.
    pub wagers: u64,
    /// One of this many moves is a booking, which writes a row of its own; 0 is none.
    pub books: u64,
    /// One of this many moves blocks its thread for this number of milliseconds.
    pub stalls: Option<(u64, u64)>,
    /// Futures are often dropped before they complete.
    pub drops: bool,
    /// The number of tills. Some of the moves are also sent to one of them; 0 sends none.
    pub tills: u64,
    /// One of this many moves is sent to a till.
    pub moves_to_tills: u64,
    /// What is sent.
    pub sends: Sends,
    /// One close in five is a delayed send.
    pub has_delays: bool,
    /// The pause between two accounts, in milliseconds.
    pub pause_ms: u64,
    /// The duration of each answer is recorded.
    pub is_timed: bool,
    /// All accounts of one caller are in one partition, so that a caller never waits for two servers.
    pub stays_in_partition: bool,
}

/// The instances to which a sender sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sends {
    /// Accounts are opened, moved and closed.
    Accounts,
    /// Purchases are made and cancelled.
    Purchases,
    /// Baskets are filled with items. Some are cancelled.
    Baskets,
}

impl Default for Load {
    fn default() -> Load {
        Load {
            callers: 16,
            moves: 4,
            ms: 3,
            wagers: 10,
            books: 12,
            stalls: None,
            drops: false,
            tills: 0,
            moves_to_tills: 4,
            sends: Sends::Accounts,
            has_delays: true,
            pause_ms: 0,
            is_timed: false,
            stays_in_partition: false,
        }
    }
}

/// The longest wait for an account to settle before its caller continues with the next.
const PATIENCE: Duration = Duration::from_secs(20);
/// The wait of a sender after an error of the database.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// The start of a wait, on the clock that all processes share and on a monotonic clock.
struct Stopwatch {
    began_us: u64,
    since: Instant,
}

impl Stopwatch {
    fn start() -> Stopwatch {
        Stopwatch { began_us: now_us(), since: Instant::now() }
    }
}

/// Microseconds since 1970.
pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// One of the concurrent loops of a sender.
#[derive(Clone)]
pub struct Caller {
    pub accounts: Handle<Account>,
    pub purchases: Handle<Purchase>,
    pub baskets: Handle<Basket>,
    pub ledger: Ledger,
    pub load: Load,
    pub random: Random,
    pub name: String,
    pub stops_sending: Arc<AtomicBool>,
}

/// A send with an unknown outcome that cannot be repeated.
struct UnknownOutcome;

impl Caller {
    /// Processes one account after the other until the process has to stop sending.
    pub async fn run(mut self) -> io::Result<()> {
        for turn in 0.. {
            if self.stops_sending.load(Ordering::Relaxed) {
                break;
            }
            let name = &self.name;
            let key = if self.load.stays_in_partition { format!("{{{name}}}-{turn}") } else { format!("{name}-{turn}") };
            match self.load.sends {
                Sends::Purchases => self.one_purchase(&key).await?,
                Sends::Baskets => self.one_basket(&key).await?,
                Sends::Accounts => self.one_account(&key).await?,
            }
            tokio::time::sleep(Duration::from_millis(self.load.pause_ms)).await;
        }
        Ok(())
    }

    /// The charge fails for about a second, or as often as other work. The customer cancels before, while or after it is tried.
    async fn one_purchase(&mut self, key: &str) -> io::Result<()> {
        let purchases = self.purchases.clone();
        let (order, charge, cancel) = (self.work(0), self.work(1), self.work(2));
        let failures = if self.random.one_in(2) { 40 } else { charge.failures };
        // Every event is acknowledged, because its outcome does not stay unknown.
        let _ = self.send(&purchases, key, &Order(order), 0, true, None).await?;
        let _ = self.send(&purchases, key, &Charge(Work { failures, ..charge }), 1, true, None).await?;
        tokio::time::sleep(Duration::from_millis(self.random.below(80))).await;
        let _ = self.send(&purchases, key, &Cancel(cancel), 2, true, None).await?;
        let _ = purchases.settled(key).within(PATIENCE).await;
        Ok(())
    }

    /// One basket in eight is cancelled while its items are packed, or after.
    async fn one_basket(&mut self, key: &str) -> io::Result<()> {
        let baskets = self.baskets.clone();
        let fill = Fill { work: self.work(0), items: (1..=1 + self.random.below(8)).map(|n| self.work(n as u32)).collect() };
        let _ = self.send(&baskets, key, &fill, 0, true, None).await?;
        if self.random.one_in(8) {
            tokio::time::sleep(Duration::from_millis(self.random.below(40))).await;
            // It may have ended, or its outcome stays unknown. The checker accepts both.
            let _ = baskets.cancel(key, "the customer went away").await;
        }
        let _ = baskets.wait(key).for_end().within(PATIENCE).await;
        Ok(())
    }

    /// If the outcome of a send stays unknown, its account is left alone.
    async fn one_account(&mut self, key: &str) -> io::Result<()> {
        if self.fill_account(key).await?.is_ok() {
            self.wait_and_read(key).await;
        }
        Ok(())
    }

    async fn fill_account(&mut self, key: &str) -> io::Result<Result<(), UnknownOutcome>> {
        // A send with a dedup id is repeated until it is acknowledged. Without one its outcome may stay unknown.
        let accounts = self.accounts.clone();
        let has_ids = self.load.drops || !self.random.one_in(3);
        let is_wager = self.load.wagers > 0 && self.random.one_in(self.load.wagers);
        let work = self.work(0);
        let opened = if is_wager {
            self.send(&accounts, key, &Wager(Work { failures: 0, ..work }), 0, has_ids, None).await?
        } else {
            self.send(&accounts, key, &Open(work), 0, has_ids, None).await?
        };
        if opened.is_err() {
            return Ok(opened);
        }
        for n in 1..=self.load.moves {
            let work = self.work(n);
            let moved = match self.load.stalls {
                Some((times, ms)) if self.random.one_in(times) => {
                    self.send(&accounts, key, &Stall(Work { ms, failures: 0, ..work }), n, has_ids, None).await?
                }
                _ if self.load.books > 0 && self.random.one_in(self.load.books) => {
                    self.send(&accounts, key, &Book(work), n, has_ids, None).await?
                }
                _ => self.send(&accounts, key, &Move(work), n, has_ids, None).await?,
            };
            if moved.is_err() {
                return Ok(moved);
            }
        }
        let (n, wait) = (self.load.moves + 1, (self.load.has_delays && self.random.one_in(5)).then_some(Duration::from_millis(20)));
        let work = self.work(n);
        self.send(&accounts, key, &Close(work), n, has_ids, wait).await
    }

    fn work(&mut self, n: u32) -> Work {
        let ms = if self.load.ms == 0 { 0 } else { self.random.below(self.load.ms + 1) };
        let till = (self.load.tills > 0 && self.random.one_in(self.load.moves_to_tills)).then(|| self.random.below(self.load.tills));
        Work { n, cents: 1 + self.random.below(10_000), ms, failures: u32::from(self.random.one_in(25)), till }
    }

    async fn send<M: Machine, E: EventFor<M> + Clone>(
        &mut self,
        handle: &Handle<M>,
        key: &str,
        event: &E,
        n: u32,
        has_id: bool,
        wait: Option<Duration>,
    ) -> io::Result<Result<(), UnknownOutcome>> {
        self.ledger.note(&Line::SendBegun { key: key.to_owned(), n })?;
        let dedup = has_id.then(|| format!("{key}-{n}"));
        loop {
            let Some(sent) = self.try_to_send(handle, key, event.clone(), &dedup, wait).await else { continue };
            match sent {
                Ok(sent) => {
                    self.record_answer(key, n, &dedup, sent).await?;
                    // Some acknowledged sends are repeated, and must be recognised as duplicates.
                    if dedup.is_none() || !self.random.one_in(10) {
                        return Ok(Ok(()));
                    }
                    if let Some(Ok(again)) = self.try_to_send(handle, key, event.clone(), &dedup, wait).await {
                        self.record_answer(key, n, &dedup, again).await?;
                        if again.outcome != fsm::SendOutcome::Duplicate {
                            self.ledger
                                .sure(&Line::Unexpected { says: format!("event {n} of {key} was sent again: {:?}", again.outcome) })
                                .await?;
                        }
                    }
                    return Ok(Ok(()));
                }
                Err(error) if error.is_database() && has_id => tokio::time::sleep(RETRY_DELAY).await,
                Err(error) if error.is_database() => return Ok(Err(UnknownOutcome)),
                Err(error) => {
                    self.ledger.sure(&Line::Unexpected { says: format!("event {n} of {key} was not taken: {error}") }).await?;
                    return Ok(Err(UnknownOutcome));
                }
            }
        }
    }

    /// Returns `None` if the future was dropped before it completed.
    async fn try_to_send<M: Machine, E: EventFor<M>>(
        &mut self,
        handle: &Handle<M>,
        key: &str,
        event: E,
        dedup: &Option<String>,
        wait: Option<Duration>,
    ) -> Option<Result<Sent, fsm::Error>> {
        let clock = Stopwatch::start();
        let mut sending = handle.send(key, event);
        if let Some(dedup) = dedup {
            sending = sending.dedup(dedup);
        }
        if let Some(wait) = wait {
            sending = sending.after(wait);
        }
        let sent = self.maybe_drop(sending.into_future()).await;
        self.record_latency(key, &clock, sent.as_ref().map(Result::is_ok), true);
        sent
    }

    /// Records the duration of an answer, if there was one.
    fn record_latency(&self, key: &str, clock: &Stopwatch, is_ok: Option<bool>, is_send: bool) {
        if let (Some(is_ok), true) = (is_ok, self.load.is_timed) {
            let took_us = u64::try_from(clock.since.elapsed().as_micros()).unwrap_or(u64::MAX);
            // If the ledger cannot be written, the next essential line fails too.
            let _ = self.ledger.note(&Line::Latency { key: key.to_owned(), began_us: clock.began_us, took_us, is_send, is_ok });
        }
    }

    async fn record_answer(&self, key: &str, n: u32, dedup: &Option<String>, sent: Sent) -> io::Result<()> {
        let call = sent.call.map(|call| call.to_string()).unwrap_or_default();
        let line = Line::Acknowledged { key: key.to_owned(), n, call, dedup: dedup.clone(), outcome: format!("{:?}", sent.outcome) };
        self.ledger.sure(&line).await
    }

    /// Waits until the account settles, and reads it.
    async fn wait_and_read(&mut self, key: &str) {
        let accounts = self.accounts.clone();
        // Errors and delays of the database are recorded; the checker judges them.
        let clock = Stopwatch::start();
        let settled = self.maybe_drop(accounts.settled(key).within(PATIENCE).into_future()).await;
        self.record_latency(key, &clock, settled.map(|settled| settled.is_ok()), false);
        let _ = self.maybe_drop(accounts.get(key)).await;
    }

    /// Drops the future after a short time in two of three cases, if this sender does so.
    async fn maybe_drop<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        if !self.load.drops || self.random.one_in(3) {
            return Some(future.await);
        }
        let moment = Duration::from_micros(self.random.below(4000));
        tokio::time::timeout(moment, future).await.ok()
    }
}
