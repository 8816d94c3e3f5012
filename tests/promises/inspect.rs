//! Inspection of instances, attempts, histories and the program's schema, also from a process without workers.

use std::sync::Arc;
use std::time::Duration;

use fsm::prelude::*;
use fsm::{Cursor, HistoryEvent, SendOutcome};

use crate::payment::{Cancel, Gateway, OnlinePaymentCompleted, Payment, PaymentState, checkout, failing, paid_with};
use crate::sql_runner::{SqlRunner, run};
use crate::support::{Folder, promise};

promise! {
    async fn an_instance_shows_where_it_stands_and_what_it_does(bed in failing(1)) {
        let payments = bed.machine::<Payment>();
        let begin = bed.now();
        let sent = payments.send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        payments.send("o-1", paid_with("r")).await.unwrap();
        let payment = payments.get("o-1").await.unwrap().unwrap();
        assert_eq!((payment.id, payment.key.as_str(), payment.state, payment.status), (sent.instance, "o-1", None, Status::Running));
        assert_eq!((payment.version, payment.paused, payment.inbox_len, payment.error.as_deref()), (0, false, 1, None));
        assert_eq!((payment.created_at, payment.updated_at), (begin, begin));
        let call = payment.call.unwrap();
        assert_eq!((Some(call.id), call.verb.as_str(), call.event.as_str()), (sent.call, "created", "OnlinePaymentCreated"));
        assert_eq!((call.attempt, call.max_attempts, call.retries_left, call.state), (2, Some(11), Some(9), AttemptState::Scheduled));
        assert_eq!((call.next_at - begin, call.worker), (Duration::from_secs(5), None));
        assert_eq!(call.last_error.as_deref(), Some("the gateway is down, 1 to go"));

        bed.advance(Duration::from_secs(60)).await;
        let payment = payments.get("o-1").await.unwrap().unwrap();
        assert_eq!((payment.state, payment.call, payment.inbox_len), (Some(PaymentState::Paid), None, 0));
        assert_eq!((payment.created_at, payment.updated_at - begin), (begin, Duration::from_secs(5)));
        let debug = format!("{:?}", payments.get("o-1").await.unwrap().unwrap());
        assert!(debug.starts_with("Instance { key: \"o-1\", state: Some(Paid), status: Running, paused: false, record: "), "{debug}");
    }
}

promise! {
    async fn attempts_are_every_run_of_every_call(bed in failing(1)) {
        let payments = bed.machine::<Payment>();
        let begin = bed.now();
        payments.send("o-1", checkout()).await.unwrap();
        bed.advance(Duration::from_secs(7)).await;
        payments.send("o-1", paid_with("")).await.unwrap();
        bed.run_until_idle().await;
        let attempts = payments.attempts("o-1").await.unwrap();
        let told: Vec<_> = attempts.iter().map(|it| (it.number, it.verb.as_str(), it.from.as_deref(), it.to.as_str(), it.state)).collect();
        use AttemptState::{Error, Success};
        assert_eq!(told, [(1, "created", None, "created", Error), (2, "created", None, "created", Success), (1, "paid", Some("created"), "paid", Error)]);
        assert_eq!((attempts[0].call, attempts[0].event.as_str()), (attempts[1].call, "OnlinePaymentCreated"));
        assert_ne!(attempts[1].call, attempts[2].call);
        let after = |moment: Option<Timestamp>| moment.map(|moment| (moment - begin).as_secs());
        let times: Vec<_> = attempts.iter().map(|it| (after(Some(it.scheduled_at)), after(it.started_at), after(it.finished_at))).collect();
        assert_eq!(times, [(Some(0), Some(0), Some(0)), (Some(5), Some(5), Some(5)), (Some(7), Some(7), Some(7))]);
        let errors: Vec<_> = attempts.iter().map(|it| it.error.as_deref()).collect();
        assert_eq!(errors, [Some("the gateway is down, 1 to go"), None, Some("no receipt")]);
        assert!(attempts.iter().all(|attempt| attempt.worker.is_some()), "each shows the session that ran it");
    }
}

promise! {
    async fn a_history_lists_what_happened_in_order(bed in failing(1)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.advance(Duration::from_millis(5250)).await;
        payments.send("o-1", paid_with("")).await.unwrap();
        bed.run_until_idle().await;
        payments.pause("o-1").reason("we ask the shop").await.unwrap();
        payments.resume("o-1").await.unwrap();
        payments.send("o-1", Cancel { by: "customer".into() }).await.unwrap();
        payments.cancel("o-1", "fraud").await.unwrap();
        let history = payments.history("o-1").await.unwrap();
        let told: Vec<_> = history.iter().map(ToString::to_string).collect();
        assert_eq!(told, [
            "2030-01-01T00:00:00Z  `OnlinePaymentCreated` calls `created`",
            "2030-01-01T00:00:00Z  attempt 1 of `created`: error after 0s: the gateway is down, 1 to go",
            "2030-01-01T00:00:00Z  attempt 2 of `created` is scheduled for 2030-01-01T00:00:05Z, in 5s",
            "2030-01-01T00:00:05Z  attempt 2 of `created`: success after 0s",
            "2030-01-01T00:00:05Z  begins in `created`",
            "2030-01-01T00:00:05.250Z  `OnlinePaymentPaid` calls `paid`",
            "2030-01-01T00:00:05.250Z  attempt 1 of `paid`: error after 0s: no receipt",
            "2030-01-01T00:00:05.250Z  `paid` is exhausted after one attempt",
            "2030-01-01T00:00:05.250Z  paused: we ask the shop",
            "2030-01-01T00:00:05.250Z  resumed",
            "2030-01-01T00:00:05.250Z  cancelled: fraud",
            "2030-01-01T00:00:05.250Z  rejected: `payment` `o-1` is cancelled in `created` and takes no events, not `Cancel`",
        ]);
        assert!(matches!(&history[4].event, HistoryEvent::Transition { from: None, to } if to == "created"));
        assert_eq!(history[0].call, history[4].call);
    }
}

promise! {
    async fn a_list_is_filtered_and_read_page_by_page(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        for n in 0..25 {
            payments.send(format!("o-{n:02}"), checkout()).await.unwrap();
            match n % 5 {
                0 => drop(payments.send(format!("o-{n:02}"), paid_with("")).await.unwrap()),
                1 => drop(payments.send(format!("o-{n:02}"), paid_with("r")).await.unwrap()),
                _ => {}
            }
        }
        bed.run_until_idle().await;
        payments.pause("o-03").await.unwrap();
        let keys = async |filter: Filter| {
            let (mut keys, mut after, mut sizes) = (Vec::new(), None::<Cursor>, Vec::new());
            loop {
                let page = payments.list(after.map_or(filter.clone(), |cursor| filter.clone().after(cursor))).await.unwrap();
                sizes.push(page.items.len());
                keys.extend(page.items.into_iter().map(|payment| payment.key));
                after = page.next;
                if after.is_none() {
                    return (keys, sizes);
                }
            }
        };
        let numbered = |wanted: &dyn Fn(u32) -> bool| (0..25).filter(|n| wanted(*n)).map(|n| format!("o-{n:02}")).collect::<Vec<_>>();
        assert_eq!(keys(Filter::default()).await, (numbered(&|_| true), vec![25]), "in the order of their creation");
        assert_eq!(keys(Filter::default().limit(10)).await, (numbered(&|_| true), vec![10, 10, 5]));
        assert_eq!(keys(Filter::default().limit(5)).await.1, [5; 5], "a full last page has no next one");
        assert_eq!(keys(Filter::default().limit(0)).await.1.len(), 25, "a page has at least one item");
        assert_eq!(keys(Filter::default().status(Status::Error).limit(2)).await, (numbered(&|n| n % 5 == 0), vec![2, 2, 1]));
        assert_eq!(keys(Filter::default().state(PaymentState::Paid).limit(3)).await, (numbered(&|n| n % 5 == 1), vec![3, 2]));
        assert_eq!(keys(Filter::default().status(Status::Error).state(PaymentState::Paid)).await, (vec![], vec![0]));
        assert_eq!(keys(Filter::default().paused(true)).await.0, ["o-03"]);

        let mut counts: Vec<_> = payments.counts().await.unwrap().into_iter().map(|it| (it.state, it.status, it.count)).collect();
        counts.sort_by_key(|(_, _, count)| *count);
        counts[..2].sort_by_key(|(_, status, _)| status.to_string());
        assert_eq!(counts, [
            (Some(PaymentState::Created), Status::Error, 5),
            (Some(PaymentState::Paid), Status::Running, 5),
            (Some(PaymentState::Created), Status::Running, 15)
        ]);
        assert!(bed.machine::<crate::clumsy::Clumsy>().counts().await.unwrap().is_empty());
    }
}

#[test]
fn the_schema_is_all_that_the_program_declares() {
    let schema = fsm::schema();
    let verb = schema.verbs.iter().find(|verb| verb.name == "created" && verb.module.ends_with("promises::payment")).unwrap();
    assert_eq!(
        (verb.file.as_str(), verb.docs.as_str(), verb.event.as_str()),
        ("tests/promises/payment.rs", "Authorise the card.", "OnlinePaymentCreated")
    );
    let source = include_str!("payment.rs");
    let line = source.lines().position(|line| line.starts_with("async fn created(")).unwrap() + 1;
    assert_eq!((verb.line as usize, verb.timeout), (line, Some(Duration::from_secs(30))));
    let retry = verb.retry.as_ref().unwrap();
    let (min, max) = (Duration::from_secs(5), Duration::from_secs(3600));
    assert_eq!((retry.max_attempts, retry.min, retry.max, retry.backoff, retry.jitter), (Some(11), min, max, 2.0, 0.0));
    let is_of_payment = |module: &str| module.ends_with("promises::payment");
    let verb = |name: &str| schema.verbs.iter().find(|verb| verb.name == name && is_of_payment(&verb.module)).unwrap();
    let without = |name: &str| verb(name).retry.is_none();
    assert!(without("paid") && without("refunding"));

    let machine = schema.machines.iter().find(|machine| machine.name == "payment").unwrap();
    assert_eq!(
        (machine.docs.as_str(), machine.record.as_deref()),
        ("An online payment, from checkout to settlement.", Some("PaymentRecord"))
    );
    assert_eq!(machine.states, ["created", "paid", "failed", "expired", "completed", "cancelled", "refunding"]);
    assert_eq!(
        (machine.starts.clone(), machine.ends.clone()),
        (vec!["created".into()], ["completed", "failed", "expired", "cancelled"].map(String::from).to_vec())
    );
    let edges: Vec<_> = machine.edges.iter().map(|edge| (edge.from.as_str(), edge.event.as_str(), edge.to.as_str())).collect();
    assert_eq!(
        edges,
        [
            ("created", "OnlinePaymentPaid", "paid"),
            ("created", "OnlinePaymentFailed", "failed"),
            ("paid", "OnlinePaymentCompleted", "completed"),
            ("created", "Cancel", "cancelled"),
            ("paid", "Cancel", "refunding"),
            ("refunding", "OnlinePaymentCompleted", "completed"),
        ]
    );
    let timers: Vec<_> = machine.timers.iter().map(|timer| (timer.from.as_str(), timer.after.as_secs(), timer.to.as_str())).collect();
    assert_eq!(timers, [("created", 1800, "expired")]);

    let json = serde_json::to_value(&schema).unwrap();
    let machine = json["machines"].as_array().unwrap().iter().find(|machine| machine["name"] == "payment").unwrap();
    assert_eq!(machine["timers"], serde_json::json!([{"from": "created", "after_us": 1_800_000_000_u64, "to": "expired"}]));
    let verb = json["verbs"].as_array().unwrap().iter().find(|verb| verb["line"] == line && verb["name"] == "created").unwrap();
    assert_eq!(
        (&verb["timeout_us"], &verb["retry"]["max_attempts"], &verb["retry"]["min_us"]),
        (&30_000_000.into(), &11.into(), &5_000_000.into())
    );
    let names: Vec<_> = schema.machines.iter().map(|machine| &machine.name).collect();
    assert!(names.is_sorted());
}

/// A process without workers beside a process with workers.
mod a_client_sends_reads_and_operates_while_a_runtime_works {
    use super::*;

    async fn check(url: &str) {
        let gateway = Arc::new(Gateway::failing(1));
        let client = Client::connect(url).await.unwrap();
        let payments = client.machine::<Payment>();
        assert_eq!(payments.send("o-1", checkout()).await.unwrap().outcome, SendOutcome::Started);
        let call = payments.get("o-1").await.unwrap().unwrap().call.unwrap();
        assert_eq!((call.attempt, call.state, call.worker), (1, AttemptState::Scheduled, None), "a client runs nothing");

        let builder =
            || Runtime::builder().database(url).only::<Payment>().data(Arc::clone(&gateway)).poll_interval(Duration::from_millis(20));
        let runtime = builder().start().await.unwrap();
        let failed = async || payments.get("o-1").await.unwrap().unwrap().call.is_some_and(|call| call.attempt == 2);
        for _ in 0..500 {
            if failed().await {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        payments.retry("o-1").reason("now").await.unwrap();
        let payment = payments.settled("o-1").within(Duration::from_secs(20)).await.unwrap();
        assert_eq!(payment.state, Some(PaymentState::Created));
        payments.send("o-1", paid_with("r")).await.unwrap();
        payments.send("o-1", OnlinePaymentCompleted).await.unwrap();
        let payment = payments.settled("o-1").within(Duration::from_secs(20)).await.unwrap();
        assert_eq!((payment.state, payment.status, payment.version), (Some(PaymentState::Completed), Status::Completed, 3));
        assert!(payments.send("o-1", checkout()).await.unwrap_err().is_refused());
        assert!(payments.history("o-1").await.unwrap().iter().any(|entry| entry.to_string().ends_with("retried: now")));
        assert!(client.check_invariants().await.unwrap().is_empty());
        runtime.shutdown().await.unwrap();
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let folder = Folder::new("client");
        check(&folder.url("payments.db")).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let bed = crate::clumsy::clumsy().postgres().await;
        check(bed.url()).await;
    }
}

promise! {
    async fn the_doctor_lists_each_violated_invariant_with_its_rows(bed in failing(0).only::<SqlRunner>()) {
        bed.machine::<Payment>().send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        let report = fsm::doctor(bed).await.unwrap();
        assert!(report.is_healthy() && report.invariants.len() == 23, "{report}");

        run(bed, "update fsm_instances set version = 7, row_version = row_version + 1 where machine = 'payment'").await;
        let report = fsm::doctor(bed).await.unwrap();
        let broken: Vec<_> = report.broken().map(|broken| broken.number).collect();
        assert_eq!(broken, ["I6"], "{report}");
        assert!(report.to_string().ends_with("1 of 23 invariants do not hold"));
        let dropping = fsm::testing::TestBed::builder().only::<Payment>().data(Arc::new(Gateway::failing(0))).beside(bed).await.unwrap();
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(dropping))).unwrap_err();
        assert!(panic.downcast_ref::<String>().unwrap().starts_with("the test bed's database is not as it must be:\nI1   holds"), "checked");
        run(bed, "update fsm_instances set version = 1, row_version = row_version + 1 where machine = 'payment'").await;
    }
}

promise! {
    async fn history_entries_of_the_same_time_are_in_the_order_in_which_they_happened(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        payments.send("o-1", paid_with("")).await.unwrap();
        payments.send("o-1", OnlinePaymentCompleted).await.unwrap();
        bed.run_until_idle().await;
        payments.send("o-1", paid_with("r")).await.unwrap();
        payments.skip("o-1").actor("bob").await.unwrap();
        bed.run_until_idle().await;
        payments.pause("o-1").actor("bob").await.unwrap();
        let told: Vec<_> = payments.history("o-1").await.unwrap().iter().map(|entry| entry.to_string()[22..].to_owned()).collect();
        assert_eq!(told, [
            "`OnlinePaymentCreated` calls `created`",
            "attempt 1 of `created`: success after 0s",
            "begins in `created`",
            "`OnlinePaymentPaid` calls `paid`",
            "attempt 1 of `paid`: error after 0s: no receipt",
            "`paid` is exhausted after one attempt",
            "skipped by bob",
            "rejected: `payment` `o-1` is in `created` and takes `OnlinePaymentPaid`, `OnlinePaymentFailed` or `Cancel`, not `OnlinePaymentCompleted`",
            "`OnlinePaymentPaid` calls `paid`",
            "attempt 1 of `paid`: success after 0s",
            "`created` -> `paid`",
            "paused by bob",
        ]);
    }
}

promise! {
    async fn a_list_by_a_prefix_is_in_the_order_of_keys_and_read_page_by_page(bed in failing(3)) {
        let payments = bed.machine::<Payment>();
        let keys = ["2027-01", "2026-12", "2026-01", "2026", "2026-", "2026-\u{10ffff}", "2026/1", "2025-12", "2026-06"];
        for key in keys {
            payments.send(key, checkout()).await.unwrap();
        }
        bed.run_until_idle().await;
        let pages = async |filter: Filter| {
            let (mut keys, mut sizes, mut next) = (Vec::new(), Vec::new(), Some(filter.clone()));
            while let Some(wanted) = next.take() {
                let page = payments.list(wanted).await.unwrap();
                sizes.push(page.items.len());
                keys.extend(page.items.into_iter().map(|payment| payment.key));
                next = page.next.map(|cursor| filter.clone().after(cursor));
            }
            (keys, sizes)
        };
        let of_2026 = ["2026-", "2026-01", "2026-06", "2026-12", "2026-\u{10ffff}"].map(str::to_owned).to_vec();
        assert_eq!(pages(Filter::default().key_prefix("2026-").limit(2)).await, (of_2026, vec![2, 2, 1]));
        assert_eq!(pages(Filter::default().key_prefix("2028").limit(2)).await, (vec![], vec![0]));
        assert_eq!(pages(Filter::default().key_prefix("").limit(4)).await.0.len(), keys.len());
        let first = ["2026-12", "2026-01"].map(str::to_owned).to_vec();
        let mut retrying = pages(Filter::default().key_prefix("2026-").retrying(true)).await.0;
        retrying.reverse();
        assert_eq!(retrying, first, "the first three attempts failed");
        assert_eq!(pages(Filter::default().retrying(true)).await.0, ["2027-01", "2026-12", "2026-01"], "in the order of their creation");
        assert_eq!(pages(Filter::default().key_prefix("2026-").state(PaymentState::Created).limit(2)).await.0.len(), 3);
        let error = Filter::default().key_prefix("2026-").status(Status::Error);
        assert_eq!(pages(error).await.0.len(), 0);
        let paused = payments.bulk(Filter::default().key_prefix("2026-1")).pause().await.unwrap();
        assert_eq!(paused.done, ["2026-12"]);
    }
}
