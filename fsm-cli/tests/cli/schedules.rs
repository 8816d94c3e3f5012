//! `fsm schedules`: the list, and the acts on a schedule.

use std::time::Duration;

use fsm::Schedule;

use crate::shop::{Order, Placed, orders};
use crate::support::{To, fsm, golden, healthy, json, on_both};

on_both! {
    async fn schedules_are_listed_and_paused_resumed_and_triggered(bed) {
        golden(bed, "schedules-none", &["schedules"]).await;
        let nightly = Schedule::cron("nightly", "0 2 * * *").time_zone("Europe/Berlin");
        let declared = nightly.send::<Order>(|due| (format!("o-{}", due.date()), Placed { cents: 1, fails: 0 }));
        let refused = Schedule::every("1h").name("same-key").send::<Order>(|_| ("", Placed { cents: 1, fails: 0 }));
        let worker = orders().schedule(declared).schedule(refused).beside(bed).await.unwrap();
        worker.advance(Duration::from_secs(3600)).await;
        golden(bed, "schedules", &["schedules"]).await;
        let doctor = fsm(bed, To::Pipe, &["doctor"]).await;
        assert!(doctor.out.contains("the schedule `same-key` did not send its moment"), "{doctor:?}");

        for (act, done) in [("pause", "paused"), ("resume", "resumed"), ("trigger", "triggered: a worker that declares it sends the event")] {
            let said = fsm(bed, To::Pipe, &["schedules", act, "nightly"]).await;
            assert_eq!((said.code, said.talk), (0, format!("the schedule `nightly` is {done}\n")), "{act}");
        }
        let schedules = json(bed, &["schedules"]).await;
        let nightly = &schedules["schedules"][0];
        assert_eq!((&nightly["actor"], &nightly["triggered_at"]), (&"ann".into(), &bed.now().to_string().into()));
        worker.run_until_idle().await;
        let sent = fsm(bed, To::Pipe, &["ls", "order"]).await;
        assert!(sent.out.contains("o-"), "{sent:?}");

        let refused = fsm(bed, To::Pipe, &["schedules", "forget", "nightly"]).await;
        assert_eq!(refused.code, 4, "{refused:?}");
        let missing = fsm(bed, To::Pipe, &["schedules", "pause", "weekly"]).await;
        assert_eq!((missing.code, missing.talk.contains("there are `nightly`, `same-key`")), (3, true), "{missing:?}");
        healthy(bed).await;
    }
}
