//! The figures: the rate of sends, the rate of jobs that are sent and run, and the latency of a single job.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::measurement::{Measurement, WARM_UP};
use crate::{Arguments, End, Figure, Job, Peer, Result, report, starts};

/// The time limit for the jobs to be done after the last send.
const FINISH_LIMIT: Duration = Duration::from_secs(10);
/// For peers that accept many jobs in one call: the jobs in a call, the number of senders, and the maximum number of jobs that have not started.
const BULK_SIZE: u64 = 500;
const SENDERS: usize = 4;
const MAX_UNFINISHED: u64 = 10_000;
/// For an idle system: the pause before each job, the number of jobs, and the time limit for all of them.
const PAUSE: Duration = Duration::from_millis(3);
const JOBS: usize = 320;
const IDLE_LIMIT: Duration = Duration::from_secs(5);
/// The number of first jobs that are not counted, because they prepare statements.
const WARM_UP_JOBS: usize = 5;

/// Measures the figure that the arguments name. Workers run already, except for [`Figure::Enqueue`].
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
            report::note("end", load.peer.end_detection());
            for &callers in &arguments.callers {
                load.send_and_run(callers).await?;
            }
            load.send_and_run_in_bulk().await
        }
        Figure::Idle => {
            report::note("end", load.peer.end_detection());
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
    /// Measures callers that each wait until their job is durable.
    async fn enqueue(&self, callers: usize) -> Result {
        let (measurement, mut sending) = (Measurement::default(), JoinSet::new());
        for _ in 0..callers {
            let (peer, next, measurement) = (self.peer.clone(), Arc::clone(&self.next), measurement.clone());
            sending.spawn(async move {
                while !measurement.is_over() {
                    peer.send(Job::new(next.fetch_add(1, Ordering::Relaxed))).await?;
                    measurement.add_done(1);
                }
                Ok(())
            });
        }
        let rate = measurement.rate(self.each).await;
        all(sending).await?;
        report::put(&format!("enqueue, {callers} callers"), rate, "a second", "");
        Ok(())
    }

    async fn enqueue_in_bulk(&self) -> Result {
        if !P::HAS_BULK {
            return Ok(());
        }
        let (measurement, mut sending) = (Measurement::default(), JoinSet::new());
        for _ in 0..SENDERS {
            let (peer, next, measurement) = (self.peer.clone(), Arc::clone(&self.next), measurement.clone());
            sending.spawn(async move {
                while !measurement.is_over() {
                    peer.send_many(bulk(&next)).await?;
                    measurement.add_done(BULK_SIZE);
                }
                Ok(())
            });
        }
        let rate = measurement.rate(self.each).await;
        all(sending).await?;
        report::put("enqueue, in bulk", rate, "a second", &format!("{SENDERS} callers, {BULK_SIZE} jobs a call"));
        Ok(())
    }

    /// Measures callers that each wait for the end of their job, or for its start if the peer does not report the end.
    async fn send_and_run(&self, callers: usize) -> Result {
        let (measurement, mut sending) = (Measurement::default(), JoinSet::new());
        for _ in 0..callers {
            let (peer, next, measurement) = (self.peer.clone(), Arc::clone(&self.next), measurement.clone());
            sending.spawn(async move {
                while !measurement.is_over() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let start = starts::start_of(number);
                    measurement.add_sent(1);
                    match peer.send(Job::new(number)).await? {
                        End::Reported(end) => end.await?,
                        End::Unreported => measurement.wait_unless_over(start).await,
                    }
                    measurement.add_done(1);
                }
                Ok(())
            });
        }
        self.until_done(&format!("both, {callers} callers"), measurement, sending).await
    }

    async fn send_and_run_in_bulk(&self) -> Result {
        if !P::HAS_BULK {
            return Ok(());
        }
        let (measurement, mut sending) = (Measurement::default(), JoinSet::new());
        for _ in 0..SENDERS {
            let (peer, next, measurement) = (self.peer.clone(), Arc::clone(&self.next), measurement.clone());
            sending.spawn(async move {
                while !measurement.is_over() {
                    if measurement.not_started() + BULK_SIZE > MAX_UNFINISHED {
                        sleep(Duration::from_millis(1)).await;
                        continue;
                    }
                    measurement.add_sent(BULK_SIZE);
                    peer.send_many(bulk(&next)).await?;
                }
                Ok(())
            });
        }
        self.until_done("both, in bulk", measurement, sending).await
    }

    /// Measures the rate until all jobs are done. Callers report this, or the database if the peer does not report the end.
    async fn until_done(&self, what: &str, measurement: Measurement, sending: JoinSet<Result>) -> Result {
        sleep(WARM_UP).await;
        let (begun, done_before) = (Instant::now(), self.done(&measurement));
        sleep(self.each).await;
        measurement.end();
        let stopped = Instant::now();
        all(sending).await?;
        let mut left = 0;
        if !P::REPORTS_END {
            while measurement.started() < measurement.total_sent() && stopped.elapsed() < FINISH_LIMIT {
                sleep(Duration::from_millis(1)).await;
            }
            left = self.peer.unfinished().await?;
            while left > 0 && stopped.elapsed() < FINISH_LIMIT {
                sleep(Duration::from_millis(5)).await;
                left = self.peer.unfinished().await?;
            }
        }
        let sent = measurement.total_sent();
        let rate = sent.saturating_sub(left + done_before) as f64 / begun.elapsed().as_secs_f64();
        let mut beside = format!("{sent} jobs; the last one {:.2} s after the end of the sends", stopped.elapsed().as_secs_f64());
        if left > 0 {
            beside = format!("{left} of {sent} jobs were not done {} s after the end of the sends", FINISH_LIMIT.as_secs());
        }
        let twice = measurement.started().saturating_sub(sent);
        if twice > 0 {
            beside += &format!("; {twice} ran twice");
        }
        report::put(what, rate, "a second", &beside);
        if left > 0 { Err("jobs are left, so nothing more is measured here".into()) } else { Ok(()) }
    }

    fn done(&self, measurement: &Measurement) -> u64 {
        if P::REPORTS_END { measurement.done_count() } else { measurement.started() }
    }

    /// Measures one caller with pauses, so that no other job runs.
    async fn idle(&self) -> Result {
        let (mut starts, mut ends, begun) = (Vec::new(), Vec::new(), Instant::now());
        while starts.len() < JOBS && begun.elapsed() < IDLE_LIMIT {
            sleep(PAUSE).await;
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let (sent, start) = (Instant::now(), starts::start_of(number));
            match self.peer.send(Job::new(number)).await? {
                End::Reported(end) => end.await?,
                End::Unreported => while self.peer.unfinished().await? > 0 {},
            }
            ends.push(sent.elapsed());
            starts.push(start.await?.duration_since(sent));
        }
        let uncounted = WARM_UP_JOBS.min(starts.len() / 2);
        report::put_latency("idle, to the start", starts.split_off(uncounted));
        report::put_latency("idle, to the end", ends.split_off(uncounted));
        Ok(())
    }
}

fn bulk(next: &AtomicU64) -> Vec<Job> {
    let first = next.fetch_add(BULK_SIZE, Ordering::Relaxed);
    (first..first + BULK_SIZE).map(Job::new).collect()
}

async fn all(mut doing: JoinSet<Result>) -> Result {
    while let Some(done) = doing.join_next().await {
        done??;
    }
    Ok(())
}
