//! The figures: how fast jobs are sent, how fast they are sent and done, and how long a single one takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::turn::{Turn, WARM_UP};
use crate::{Arguments, End, Figure, Job, Peer, Result, report, watch};

/// How long what was sent may take to be done, after the end of the sends.
const PATIENCE: Duration = Duration::from_secs(10);
/// Those peers that take many jobs in one call: how many a call, by how many senders, and how many may be under way.
const BULK: u64 = 500;
const SENDERS: usize = 4;
const UNDER_WAY: u64 = 10_000;
/// The pause before each job of an idle system, how many there are, and how long they may take together.
const PAUSE: Duration = Duration::from_millis(3);
const JOBS: usize = 320;
const IDLE_FOR: Duration = Duration::from_secs(5);
/// The first jobs prepare statements.
const UNCOUNTED: usize = 5;

/// Measures what the arguments say. Workers run already, unless it is [`Figure::Enqueue`].
pub async fn measure<P: Peer>(arguments: &Arguments, peer: P) -> Result {
    report::note("settings", &peer.settings());
    let load = Load { peer, next: Arc::default(), each: arguments.each };
    match arguments.figure {
        Figure::Enqueue => {
            for &callers in &arguments.callers {
                load.enqueue(callers).await?;
            }
            load.enqueue_in_bulk().await
        }
        Figure::Both => {
            report::note("end", load.peer.end_seen());
            for &callers in &arguments.callers {
                load.both(callers).await?;
            }
            load.both_in_bulk().await
        }
        Figure::Idle => {
            report::note("end", load.peer.end_seen());
            load.idle().await
        }
    }
}

struct Load<P> {
    peer: P,
    /// The number of the next job.
    next: Arc<AtomicU64>,
    each: Duration,
}

impl<P: Peer> Load<P> {
    /// Callers that each wait until their job is durable.
    async fn enqueue(&self, callers: usize) -> Result {
        let (turn, mut sending) = (Turn::default(), JoinSet::new());
        for _ in 0..callers {
            let (peer, next, turn) = (self.peer.clone(), Arc::clone(&self.next), turn.clone());
            sending.spawn(async move {
                while !turn.is_over() {
                    peer.send(Job::new(next.fetch_add(1, Ordering::Relaxed))).await?;
                    turn.count(1);
                }
                Ok(())
            });
        }
        let rate = turn.rate(self.each).await;
        all(sending).await?;
        report::put(&format!("enqueue, {callers} callers"), rate, "a second", "");
        Ok(())
    }

    async fn enqueue_in_bulk(&self) -> Result {
        if !P::HAS_BULK {
            return Ok(());
        }
        let (turn, mut sending) = (Turn::default(), JoinSet::new());
        for _ in 0..SENDERS {
            let (peer, next, turn) = (self.peer.clone(), Arc::clone(&self.next), turn.clone());
            sending.spawn(async move {
                while !turn.is_over() {
                    peer.send_many(bulk(&next)).await?;
                    turn.count(BULK);
                }
                Ok(())
            });
        }
        let rate = turn.rate(self.each).await;
        all(sending).await?;
        report::put("enqueue, in bulk", rate, "a second", &format!("{SENDERS} callers, {BULK} jobs a call"));
        Ok(())
    }

    /// Callers that each wait for the end of their job, or for its start where they are not told of the end.
    async fn both(&self, callers: usize) -> Result {
        let (turn, mut sending) = (Turn::default(), JoinSet::new());
        for _ in 0..callers {
            let (peer, next, turn) = (self.peer.clone(), Arc::clone(&self.next), turn.clone());
            sending.spawn(async move {
                while !turn.is_over() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let start = watch::start_of(number);
                    turn.sent(1);
                    match peer.send(Job::new(number)).await? {
                        End::Told(end) => end.await?,
                        End::Untold => turn.unless_over(start).await,
                    }
                    turn.count(1);
                }
                Ok(())
            });
        }
        self.until_done(&format!("both, {callers} callers"), turn, sending).await
    }

    async fn both_in_bulk(&self) -> Result {
        if !P::HAS_BULK {
            return Ok(());
        }
        let (turn, mut sending) = (Turn::default(), JoinSet::new());
        for _ in 0..SENDERS {
            let (peer, next, turn) = (self.peer.clone(), Arc::clone(&self.next), turn.clone());
            sending.spawn(async move {
                while !turn.is_over() {
                    if turn.under_way() + BULK > UNDER_WAY {
                        sleep(Duration::from_millis(1)).await;
                        continue;
                    }
                    turn.sent(BULK);
                    peer.send_many(bulk(&next)).await?;
                }
                Ok(())
            });
        }
        self.until_done("both, in bulk", turn, sending).await
    }

    /// The rate up to the moment when all is done, by the callers' word or, where they are not told, by the database's.
    async fn until_done(&self, what: &str, turn: Turn, sending: JoinSet<Result>) -> Result {
        sleep(WARM_UP).await;
        let (begun, counted) = (Instant::now(), self.done(&turn));
        sleep(self.each).await;
        turn.end();
        let stopped = Instant::now();
        all(sending).await?;
        let mut left = 0;
        if !P::TELLS {
            while turn.started() < turn.all() && stopped.elapsed() < PATIENCE {
                sleep(Duration::from_millis(1)).await;
            }
            left = self.peer.unfinished().await?;
            while left > 0 && stopped.elapsed() < PATIENCE {
                sleep(Duration::from_millis(5)).await;
                left = self.peer.unfinished().await?;
            }
        }
        let sent = turn.all();
        let rate = sent.saturating_sub(left + counted) as f64 / begun.elapsed().as_secs_f64();
        let mut beside = format!("{sent} jobs; the last one {:.2} s after the end of the sends", stopped.elapsed().as_secs_f64());
        if left > 0 {
            beside = format!("{left} of {sent} jobs were not done {} s after the end of the sends", PATIENCE.as_secs());
        }
        let twice = turn.started().saturating_sub(sent);
        if twice > 0 {
            beside += &format!("; {twice} ran twice");
        }
        report::put(what, rate, "a second", &beside);
        if left > 0 { Err("jobs are left, so nothing more is measured here".into()) } else { Ok(()) }
    }

    fn done(&self, turn: &Turn) -> u64 {
        if P::TELLS { turn.counted() } else { turn.started() }
    }

    /// One caller with pauses, so that nothing else is under way.
    async fn idle(&self) -> Result {
        let (mut starts, mut ends, begun) = (Vec::new(), Vec::new(), Instant::now());
        while starts.len() < JOBS && begun.elapsed() < IDLE_FOR {
            sleep(PAUSE).await;
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let (sent, start) = (Instant::now(), watch::start_of(number));
            match self.peer.send(Job::new(number)).await? {
                End::Told(end) => end.await?,
                End::Untold => while self.peer.unfinished().await? > 0 {},
            }
            ends.push(sent.elapsed());
            starts.push(start.await?.duration_since(sent));
        }
        let uncounted = UNCOUNTED.min(starts.len() / 2);
        report::put_latency("idle, to the start", starts.split_off(uncounted));
        report::put_latency("idle, to the end", ends.split_off(uncounted));
        Ok(())
    }
}

fn bulk(next: &AtomicU64) -> Vec<Job> {
    let first = next.fetch_add(BULK, Ordering::Relaxed);
    (first..first + BULK).map(Job::new).collect()
}

async fn all(mut doing: JoinSet<Result>) -> Result {
    while let Some(done) = doing.join_next().await {
        done??;
    }
    Ok(())
}
