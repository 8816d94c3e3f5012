//! Timers and delayed events are rows, and cost nothing while they wait.

use std::time::Duration;

use fsm::{SendOutcome, Status};

use crate::payment::{OnlinePaymentCompleted, Payment, PaymentState, checkout, failing, paid_with};
use crate::sql_runner::{SqlRunner, is_postgres, run};
use crate::support::promise;

const HALF_AN_HOUR: Duration = Duration::from_secs(1800);

promise! {
    async fn a_timer_runs_out_while_the_instance_rests_in_its_state(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.advance(HALF_AN_HOUR - Duration::from_secs(1)).await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, Some(PaymentState::Created));
        bed.restart().await;
        bed.advance(Duration::from_secs(1)).await;
        let payment = payments.get("o-1").await.unwrap().unwrap();
        assert_eq!((payment.state, payment.status), (Some(PaymentState::Expired), Status::Completed));
    }
}

promise! {
    async fn a_timer_is_deleted_when_the_instance_leaves_its_state(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        payments.send("o-1", paid_with("r")).await.unwrap();
        bed.advance(2 * HALF_AN_HOUR).await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, Some(PaymentState::Paid));
    }
}

promise! {
    async fn an_exhausted_transition_holds_the_timer_back_and_skipping_it_lets_it_run_out(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        payments.send("o-1", paid_with("")).await.unwrap();
        bed.advance(2 * HALF_AN_HOUR).await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().status, Status::Error);
        payments.skip("o-1").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, Some(PaymentState::Expired));
    }
}

promise! {
    async fn a_delayed_event_is_delivered_when_its_time_comes(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        let sent = payments.send("o-1", checkout()).after(Duration::from_secs(60)).await.unwrap();
        assert_eq!(sent.outcome, SendOutcome::Scheduled);
        bed.advance(Duration::from_secs(59)).await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, None);
        bed.restart().await;
        bed.advance(Duration::from_secs(1)).await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, Some(PaymentState::Created));

        let at = bed.now() + Duration::from_secs(5);
        payments.send("o-1", OnlinePaymentCompleted).at(at).await.unwrap();
        bed.advance(Duration::from_secs(5)).await;
        let told: Vec<_> = payments.history("o-1").await.unwrap().iter().map(ToString::to_string).collect();
        assert!(told.iter().any(|line| line.contains("rejected: `payment` `o-1` is in `created`")), "{told:#?}");
    }
}

promise! {
    async fn a_delayed_event_that_can_start_no_instance_is_refused_and_leaves_none(bed in failing(0).only::<SqlRunner>()) {
        let payments = bed.machine::<Payment>();
        let refused = payments.send("o-1", OnlinePaymentCompleted).after(Duration::from_secs(60)).await.unwrap_err();
        assert!(refused.is_refused(), "{refused}");
        let says = "`payment` `o-1` has not begun and takes `OnlinePaymentCreated`, not `OnlinePaymentCompleted`";
        assert_eq!(refused.to_string(), says);
        assert!(payments.get("o-1").await.unwrap().is_none());
        assert_eq!(run(bed, "select count(*) from fsm_timers").await.unwrap(), 0);
    }
}

promise! {
    async fn an_instance_is_not_running_for_ever_when_the_delayed_event_it_waits_for_does_not_fit(bed in failing(0).only::<SqlRunner>()) {
        let payments = bed.machine::<Payment>();
        for key in ["o-1", "o-2"] {
            payments.send(key, checkout()).after(Duration::from_secs(60)).await.unwrap();
        }
        // This event comes too early, and an event that fits is still to come.
        payments.send("o-2", OnlinePaymentCompleted).after(Duration::from_secs(30)).await.unwrap();
        // Simulates a delivery by a definition that begins with another event.
        run(bed, "update fsm_timers set event = 'OnlinePaymentPaid' where instance_id = (select instance_id from fsm_instances where key = 'o-1')")
            .await;
        bed.advance(Duration::from_secs(30)).await;
        assert_eq!(payments.get("o-2").await.unwrap().unwrap().status, Status::Running);
        bed.advance(Duration::from_secs(30)).await;
        assert_eq!(payments.get("o-2").await.unwrap().unwrap().state, Some(PaymentState::Created));
        let empty = payments.get("o-1").await.unwrap().unwrap();
        assert_eq!((empty.state, empty.status), (None, Status::Cancelled));
        let told: Vec<_> = payments.history("o-1").await.unwrap().iter().map(ToString::to_string).collect();
        assert!(told.iter().any(|line| line.contains("rejected: `payment` `o-1` has not begun")), "{told:#?}");
    }
}

promise! {
    async fn a_timer_that_several_processes_look_at_fires_once(bed in failing(0)) {
        let other = failing(0).beside(bed).await.unwrap();
        let payments = bed.machine::<Payment>();
        for n in 0..60 {
            payments.send(format!("o-{n}"), checkout()).await.unwrap();
        }
        bed.run_until_idle().await;
        bed.outage(HALF_AN_HOUR).await;
        tokio::join!(bed.run_until_idle(), other.run_until_idle(), other.run_until_idle());
        for n in 0..60 {
            let payment = payments.get(format!("o-{n}")).await.unwrap().unwrap();
            let attempts = payments.attempts(format!("o-{n}")).await.unwrap();
            assert_eq!((payment.state, payment.version, attempts.len()), (Some(PaymentState::Expired), 2, 2));
        }
    }
}

promise! {
    async fn an_overdue_timer_fires_at_once_after_an_outage(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        payments.send("o-2", checkout()).after(HALF_AN_HOUR).await.unwrap();
        bed.run_until_idle().await;
        bed.outage(100 * HALF_AN_HOUR).await;
        let now = bed.now();
        bed.run_until_idle().await;
        assert_eq!(bed.now(), now);
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, Some(PaymentState::Expired));
        assert_eq!(payments.get("o-2").await.unwrap().unwrap().state, Some(PaymentState::Created));
    }
}

promise! {
    async fn timers_far_in_the_future_cost_rows_only(bed in failing(0).only::<SqlRunner>()) {
        const MANY: i64 = 10_000;
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        let statements = async |key: &str| {
            // The session shortens its log once its attempts have ended.
            bed.run_until_idle().await;
            // The cost of one scan when nothing is due, and of one when a timer is due.
            let before = bed.statements();
            bed.run_until_idle().await;
            let idle = bed.statements() - before;
            payments.send(key, checkout()).after(Duration::from_secs(1)).await.unwrap();
            let before = bed.statements();
            bed.advance(Duration::from_secs(1)).await;
            (idle, bed.statements() - before)
        };
        let few = statements("soon-1").await;
        let (id, payload) = match is_postgres(bed) {
            true => ("gen_random_uuid()", "'{}'::bytea"),
            false => ("randomblob(16)", "cast('{}' as blob)"),
        };
        // A year from now and later, for instances that wait for nothing else.
        run(bed, format!(
            "insert into fsm_timers (timer_id, instance_id, machine, state, event, payload, due_at, held)
             with recursive n (n) as (select 1 union all select n + 1 from n where n < {MANY})
             select {id}, i.instance_id, 'payment', null, 'OnlinePaymentFailed', {payload}, {} + cast(n.n as bigint) * 1000000, {}
             from n, fsm_instances i where i.machine = 'payment' and i.key = 'o-1'",
            (bed.now() + Duration::from_secs(365 * 86_400)).as_micros(),
            if is_postgres(bed) { "false" } else { "0" },
        )).await;
        assert_eq!(run(bed, "select count(*) from fsm_timers where event = 'OnlinePaymentFailed'").await.unwrap(), MANY);
        let many = statements("soon-2").await;
        assert_eq!(few, many, "the cost of a scan does not depend on the number of timers");
        run(bed, "delete from fsm_timers where event = 'OnlinePaymentFailed'").await;
    }
}

promise! {
    async fn the_clock_of_a_test_moves_to_a_moment_through_all_that_comes_due(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        let due_at = payments.settled("o-1").await.unwrap().timers[0].due_at;
        bed.advance_to(due_at - Duration::from_secs(1)).await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, Some(PaymentState::Created));
        bed.advance_to(due_at).await;
        assert_eq!(bed.now(), due_at);
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, Some(PaymentState::Expired));
        bed.advance_to(std::time::SystemTime::from(due_at)).await;
    }
}
