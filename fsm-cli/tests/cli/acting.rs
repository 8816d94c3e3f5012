//! Acts of operators: their effects, their confirmation and their refusals.

use fsm::Status;
use serde_json::json;

use crate::shop::{Order, OrderState, Paid, Placed, three};
use crate::support::{To, WIDE, fsm, healthy, json, on_both};

on_both! {
    async fn a_retry_goes_through_the_engines_own_write_path(bed) {
        three(bed).await;
        let said = fsm(bed, To::Pipe, &["retry", "order", "o-2", "--reason", "the receipt was found"]).await;
        assert_eq!((said.out.as_str(), said.code), ("order\to-2\tretried\n", 0), "{said:?}");
        let orders = bed.machine::<Order>();
        let told: Vec<_> = orders.history("o-2").await.unwrap().iter().map(ToString::to_string).collect();
        assert!(told.iter().any(|line| line.ends_with("retried by ann: the receipt was found")), "{told:#?}");
        bed.run_until_idle().await;
        assert_eq!(orders.attempts("o-2").await.unwrap().len(), 3);
        healthy(bed).await;
    }
}

on_both! {
    async fn each_act_does_what_it_says(bed) {
        three(bed).await;
        let orders = bed.machine::<Order>();
        for (act, key) in [("pause", "o-1"), ("resume", "o-1"), ("cancel", "o-1"), ("skip", "o-2")] {
            let said = fsm(bed, To::Pipe, &[act, "order", key, "--actor", "bob"]).await;
            assert_eq!(said.code, 0, "{said:?}");
            assert_eq!(orders.get(key).await.unwrap().unwrap().paused, act == "pause");
        }
        assert_eq!(orders.get("o-1").await.unwrap().unwrap().status, Status::Cancelled);
        let skipped = orders.get("o-2").await.unwrap().unwrap();
        assert_eq!((skipped.status, skipped.state), (Status::Running, Some(OrderState::Placed)));
        let told: Vec<_> = orders.history("o-1").await.unwrap().iter().map(ToString::to_string).collect();
        assert!(told.iter().any(|line| line.ends_with("cancelled by bob")), "{told:#?}");
        healthy(bed).await;
    }
}

on_both! {
    async fn what_an_act_refuses_has_its_code(bed) {
        three(bed).await;
        let cases: [(&[&str], u8, &str); 6] = [
            (&["retry", "order", "o-3"], 4, "`order` `o-3` cannot be retried: it is completed"),
            (&["skip", "order", "o-3"], 4, "cannot be skipped"),
            (&["cancel", "order", "o-9"], 3, "there is no `order` `o-9`"),
            (&["pause", "payment", "o-1"], 3, "has no machine `payment`; it has `order`"),
            (&["pause", "order"], 2, "give the key of an instance, or say which ones by"),
            (&["pause", "order", "o-1", "--status", "error"], 2, "give a key or a filter, not both"),
        ];
        for (arguments, code, talk) in cases {
            let said = fsm(bed, To::Pipe, arguments).await;
            assert_eq!(said.code, code, "{said:?}");
            assert!(said.talk.contains(talk), "{said:?}");
        }
    }
}

on_both! {
    async fn a_dry_run_names_them_and_does_nothing(bed) {
        three(bed).await;
        let before = json(bed, &["show", "order", "o-2"]).await;
        let said = fsm(bed, WIDE, &["retry", "order", "--status", "error", "--dry-run"]).await;
        assert_eq!((said.out.as_str(), said.code), ("MACHINE  KEY  OUTCOME\norder    o-2  would be retried\n", 0), "{said:?}");
        let told = json(bed, &["retry", "order", "--status", "error", "--dry-run"]).await;
        let instances = json!([{ "key": "o-2", "done": false, "why": null }]);
        assert_eq!(told, json!({ "act": "retry", "machine": "order", "dry_run": true, "instances": instances }));
        assert_eq!(json(bed, &["show", "order", "o-2"]).await, before);
    }
}

on_both! {
    async fn an_act_on_many_asks_for_their_number(bed) {
        three(bed).await;
        let orders = bed.machine::<Order>();
        let many = ["pause", "order", "--older", "1s"];
        let unasked = fsm(bed, To::Pipe, &many).await;
        assert_eq!(unasked.code, 2, "{unasked:?}");
        let declined = fsm(bed, To::Terminal(80, "yes\n"), &many).await;
        assert_eq!(declined.code, 1, "{declined:?}");
        let question = "pause 3 instances of `order`: `o-1`, `o-2`, `o-3`. Type 3 to go on: ";
        assert_eq!(declined.talk, format!("{question}fsm: nothing was done\n"));
        assert!(!orders.get("o-2").await.unwrap().unwrap().paused);
        let agreed = fsm(bed, To::Terminal(80, "3\n"), &many).await;
        assert_eq!(agreed.code, 4, "one is completed and cannot be paused: {agreed:?}");
        assert!(agreed.out.contains("`order` `o-3` cannot be paused: it is completed"), "{agreed:?}");
        assert!(agreed.talk.ends_with("fsm: 1 of 3 instances refused\n"), "{agreed:?}");
        assert!(orders.get("o-2").await.unwrap().unwrap().paused);
        let none = fsm(bed, To::Pipe, &["pause", "order", "--state", "expired"]).await;
        assert_eq!((none.code, none.out.as_str()), (0, ""), "{none:?}");
        healthy(bed).await;
    }
}

on_both! {
    async fn an_act_on_hundreds_reaches_each_of_them_once(bed) {
        let orders = bed.machine::<Order>();
        for n in 0..450 {
            orders.send(format!("o-{n}"), Placed { cents: n, fails: 1 }).await.unwrap();
        }
        bed.run_until_idle().await;
        let told = json(bed, &["cancel", "order", "--status", "running", "--yes", "--reason", "a trial"]).await;
        let done = told["instances"].as_array().unwrap().iter().filter(|one| one["done"] == json!(true)).count();
        assert_eq!(done, 450);
        let counts = orders.counts().await.unwrap();
        assert_eq!(counts.iter().map(|count| (count.status, count.count)).collect::<Vec<_>>(), [(Status::Cancelled, 450)]);
        healthy(bed).await;
    }
}

on_both! {
    async fn an_event_is_sent_as_by_the_program(bed) {
        let orders = bed.machine::<Order>();
        let said = fsm(bed, WIDE, &["send", "order", "o-1", "Placed", r#"{"cents": 5, "fails": 0}"#]).await;
        assert_eq!((said.out.as_str(), said.code), (
            "MACHINE  KEY  EVENT   OUTCOME\norder    o-1  Placed  started  its call is due, and a worker runs it\n", 0), "{said:?}");
        bed.run_until_idle().await;
        let order = orders.get("o-1").await.unwrap().unwrap();
        assert_eq!((order.state, order.record.cents), (Some(OrderState::Placed), 5));
        let from_input = fsm(bed, To::Terminal(80, r#"{"receipt": "r-1"}"#), &["send", "order", "o-1", "Paid", "-", "--dedup", "d-1"]).await;
        assert_eq!(from_input.code, 0, "{from_input:?}");
        bed.run_until_idle().await;
        let again = json(bed, &["send", "order", "o-1", "Paid", r#"{"receipt": "r-1"}"#, "--dedup", "d-1"]).await;
        assert_eq!(again["outcome"], json!("duplicate"));
        let later = json(bed, &["send", "order", "o-1", "Shipped", "--after", "1h"]).await;
        assert_eq!(later["outcome"], json!("scheduled"));
        bed.advance(std::time::Duration::from_secs(3600)).await;
        assert_eq!(orders.get("o-1").await.unwrap().unwrap().status, Status::Completed);
        healthy(bed).await;
    }
}

on_both! {
    async fn an_event_that_does_not_fit_is_refused_with_its_code(bed) {
        three(bed).await;
        bed.machine::<Order>().send("o-1", Paid { receipt: "r".into() }).dedup("d-1").await.unwrap();
        let cases: [(&[&str], u8, &str); 7] = [
            (&["send", "order", "o-9", "Refunded"], 3, "`order` takes no event `Refunded`; it takes `Placed`, `Paid`, `Shipped`"),
            (&["send", "order", "o-9", "Timeout"], 3, "`order` takes no event `Timeout`"),
            (&["send", "order", "o-9", "Placed", "{cents: 5}"], 2, "the payload of `Placed` is not JSON"),
            (&["send", "order", "o-3", "Paid", "{}"], 4, "`order` `o-3` is completed in `shipped` and takes no events, not `Paid`"),
            (&["send", "order", "o-1", "Paid", "{}", "--dedup", "d-1"], 5, "with the dedup id `d-1` and other content"),
            (&["send", "order", "o-1", "Shipped", "--reject-if-busy"], 4, "`order` `o-1` is busy"),
            (&["send", "order", "", "Placed", "{}"], 2, "is not a key: it is empty"),
        ];
        for (arguments, code, talk) in cases {
            let said = fsm(bed, To::Pipe, arguments).await;
            assert_eq!(said.code, code, "{said:?}");
            assert!(said.talk.contains(talk), "{said:?}");
        }
        healthy(bed).await;
    }
}

on_both! {
    async fn limits_are_listed_and_changed(bed) {
        let said = fsm(bed, To::Pipe, &["limits"]).await;
        assert_eq!((said.out.as_str(), said.talk.trim_end()), ("", "no program has declared a limit on this database"));
        let limit = fsm::Limit::concurrency(5).per_second(20);
        let builder = fsm::testing::TestBed::builder().only::<Order>().limit("stripe", limit).limit("tenant", fsm::Limit::concurrency(2).by("tenant"));
        builder.beside(bed).await.unwrap();
        let said = fsm(bed, To::Pipe, &["limits"]).await;
        let lines = "stripe\tall calls\t5\t20 in 1s\t0\t0\tthe code\ntenant\teach tenant\t2\tany\t0\t0\tthe code\n";
        assert_eq!((said.out.as_str(), said.code), (lines, 0), "{said:?}");
        let said = fsm(bed, To::Pipe, &["limits", "set", "stripe", "--concurrency", "10", "--per-minute", "40", "--burst", "2"]).await;
        assert_eq!((said.out.as_str(), said.code), ("stripe\tall calls\t10\t40 in 1m, 2 at once\t0\t0\tann\n", 0), "{said:?}");
        let said = fsm(bed, To::Pipe, &["limits", "set", "stripe", "--no-rate"]).await;
        assert_eq!(said.out, "stripe\tall calls\t10\tany\t0\t0\tann\n");
        let limits = json(bed, &["limits"]).await;
        let (setting, declared) = (&limits["limits"][0]["setting"], &limits["limits"][0]["declared"]);
        assert_eq!((&setting["by"], &limits["limits"][1]["setting"]["by"]), (&json!(null), &json!("tenant")));
        assert_eq!((&setting["concurrency"], &declared["concurrency"], &declared["starts"]), (&json!(10), &json!(5), &json!(20)));
        assert_eq!(fsm(bed, To::Pipe, &["limits", "set", "strip", "--concurrency", "1"]).await.code, 3);
        assert_eq!(fsm(bed, To::Pipe, &["limits", "set", "stripe"]).await.code, 2);
        healthy(bed).await;
    }
}
