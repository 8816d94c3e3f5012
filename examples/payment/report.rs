//! Prints what happens, retries by hand what only a person can, and compares the ledger with the payments.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Instant;

use fsm::prelude::*;
use fsm::{Handle, HistoryEntry, Instance};

use crate::Order;
use crate::gateway::Ledger;
use crate::machine::{Payment, PaymentState};

/// Prints the number of payments in each phase every 400 ms, until none has an open call.
pub async fn watch(payments: &Handle<Payment>, orders: &[Order], ledger: &Ledger, began: Instant) -> Result<(), fsm::Error> {
    loop {
        let all = ours(payments, orders).await?;
        let under_way = all.iter().filter(|payment| payment.call.is_some()).count();
        let waiting = all.iter().filter(|payment| payment.call.as_ref().is_some_and(|call| call.attempt > 1)).count();
        let gateway = if ledger.is_down.load(Ordering::Relaxed) { "DOWN" } else { "up" };
        let settled = all.iter().filter(|payment| payment.status == Status::Completed).count();
        println!(
            "{:5.1} s  gateway {gateway:4}  settled {settled:3}  in progress {under_way:3} ({waiting:3} in a retry)  in error {}",
            began.elapsed().as_secs_f64(),
            all.iter().filter(|payment| payment.status == Status::Error).count(),
        );
        if under_way == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
}

async fn ours(payments: &Handle<Payment>, orders: &[Order]) -> Result<Vec<Instance<Payment>>, fsm::Error> {
    let keys: std::collections::HashSet<&str> = orders.iter().map(|order| order.key.as_str()).collect();
    let (mut all, mut filter) = (Vec::new(), Filter::default().limit(500));
    loop {
        let page = payments.list(filter.clone()).await?;
        all.extend(page.items.into_iter().filter(|payment| keys.contains(payment.key.as_str())));
        match page.next {
            Some(cursor) => filter = filter.after(cursor),
            None => return Ok(all),
        }
    }
}

pub async fn report(payments: &Handle<Payment>, orders: &[Order], ledger: &Ledger) -> Result<(), fsm::Error> {
    let all = ours(payments, orders).await?;
    let mut table: BTreeMap<(String, Status), (usize, usize, usize)> = BTreeMap::new();
    let mut retried: Option<(usize, String)> = None;
    for payment in &all {
        let attempts = payments.attempts(&payment.key).await?;
        let failed = attempts.iter().filter(|attempt| attempt.state == AttemptState::Error).count();
        let state = payment.state.map_or("-".to_owned(), |state| state.to_string());
        let row = table.entry((state, payment.status)).or_default();
        *row = (row.0 + 1, row.1 + attempts.len(), row.2 + failed);
        if payment.status == Status::Completed && retried.as_ref().is_none_or(|(most, _)| failed > *most) {
            retried = Some((failed, payment.key.clone()));
        }
    }
    println!("\n{:<12} {:<10} {:>8} {:>9} {:>7}", "state", "status", "payments", "attempts", "errors");
    for ((state, status), (count, attempts, errors)) in &table {
        println!("{state:<12} {status:<10} {count:>8} {attempts:>9} {errors:>7}");
    }
    if let Some((failed, key)) = retried {
        println!("\n{key} was retried {failed} times and settled:");
        timeline(&payments.history(&key).await?);
    }
    retry_by_hand(payments, &all, ledger).await
}

/// The bank of one card was unreachable for longer than the payment's retries lasted. Now it answers again, and an operator retries the
/// payment.
async fn retry_by_hand(payments: &Handle<Payment>, all: &[Instance<Payment>], ledger: &Ledger) -> Result<(), fsm::Error> {
    let in_error = |payment: &&Instance<Payment>| payment.error.as_ref().is_some_and(|error| error.contains("bank"));
    let Some(stuck) = all.iter().find(in_error) else { return Ok(()) };
    println!("\n{} is in error: {}", stuck.key, stuck.error.as_deref().unwrap_or_default());
    ledger.is_bank_away.store(false, Ordering::Relaxed);
    payments.retry(&stuck.key).reason("the bank is back").await?;
    let payment = payments.settled(&stuck.key).within(Duration::from_secs(20)).await?;
    println!("after the manual retry it is {} in {:?}:", payment.status, payment.state);
    timeline(&payments.history(&stuck.key).await?);
    retry_the_unlucky(payments, all).await
}

/// Three calls in ten fail, so a payment can fail in all of its attempts, possibly after its charge succeeded. It does not balance until an
/// operator retries it, which uses the same idempotency key.
async fn retry_the_unlucky(payments: &Handle<Payment>, all: &[Instance<Payment>]) -> Result<(), fsm::Error> {
    let is_unlucky = |payment: &&Instance<Payment>| payment.error.as_ref().is_some_and(|error| !error.contains("declined"));
    for payment in all.iter().filter(is_unlucky) {
        while let Some(Instance { status: Status::Error, .. }) = payments.get(&payment.key).await? {
            println!("{} failed in all of its attempts and is retried manually as well", payment.key);
            payments.retry(&payment.key).reason("bad luck").await?;
            payments.settled(&payment.key).within(Duration::from_secs(30)).await?;
        }
    }
    Ok(())
}

fn timeline(history: &[HistoryEntry]) {
    for entry in history {
        println!("  {entry}");
    }
}

/// Checks that every payment that left `created` was charged exactly once, with its amount, and that there is no other charge.
pub async fn balance(payments: &Handle<Payment>, orders: &[Order], ledger: &Ledger) -> Result<bool, fsm::Error> {
    let all = ours(payments, orders).await?;
    let left: Vec<_> = all.iter().filter(|payment| !matches!(payment.state, None | Some(PaymentState::Created))).collect();
    let charges = ledger.charges.lock().expect("no code panics while it holds the ledger").clone();
    let by_us: u64 = left.iter().map(|payment| payment.record.charged_cents).sum();
    let by_gateway: u64 = charges.values().sum();
    println!(
        "\nledger: {} charges of {} cents at the gateway; {} payments of {} cents left `created`",
        charges.len(),
        by_gateway,
        left.len(),
        by_us
    );
    println!(
        "        {} calls; {} of them repeated a charge whose answer had been lost, and changed nothing",
        ledger.calls.load(Ordering::Relaxed),
        ledger.repeats.load(Ordering::Relaxed)
    );
    Ok(all.len() == orders.len() && charges.len() == left.len() && by_us == by_gateway)
}
