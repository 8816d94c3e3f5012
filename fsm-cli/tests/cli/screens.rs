//! The output of each command: on a terminal, into a pipe and as JSON.

use std::collections::BTreeSet;
use std::sync::Arc;

use fsm::TraceContext;
use serde_json::Value;
use tokio::sync::Notify;

use crate::shop::{Order, Paid, Placed, Shipped, three};
use crate::support::{To, WIDE, fsm, golden, is_golden, json, on_both, raw, until_shown};

on_both! {
    async fn each_screen(bed) {
        three(bed).await;
        golden(bed, "machines", &["machines"]).await;
        golden(bed, "ls", &["ls"]).await;
        golden(bed, "ls-filtered", &["ls", "order", "--status", "error", "--error", "RECEIPT", "--older", "1s"]).await;
        golden(bed, "show-waits", &["show", "order", "o-1"]).await;
        golden(bed, "show-error", &["show", "order", "o-2", "--exit-status"]).await;
        golden(bed, "show-completed", &["show", "order", "o-3"]).await;
        golden(bed, "errors", &["errors"]).await;
        golden(bed, "due", &["due"]).await;
        golden(bed, "graph", &["graph", "order"]).await;
        golden(bed, "graph-dot", &["graph", "order", "--format", "dot", "--counts"]).await;
        golden(bed, "graph-svg", &["graph", "order", "--format", "svg", "--counts"]).await;
        golden(bed, "graph-counts", &["graph", "order", "--counts"]).await;
        golden(bed, "simulate-verb", &["simulate", "order", "placed", "--outage", "20m"]).await;
    }
}

on_both! {
    async fn the_trace_of_the_newest_call(bed) {
        let orders = bed.machine::<Order>();
        let trace = TraceContext::new("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", None).unwrap();
        orders.send("o-1", Placed { cents: 100, fails: 0 }).trace(trace).await.unwrap();
        orders.send("o-2", Placed { cents: 100, fails: 0 }).await.unwrap();
        bed.run_until_idle().await;
        let shown = fsm(bed, WIDE, &["show", "order", "o-1"]).await.out;
        let line = shown.lines().find(|line| line.trim_start().starts_with("trace ")).unwrap();
        assert_eq!(line.split_whitespace().last(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        assert!(!fsm(bed, WIDE, &["show", "order", "o-2"]).await.out.contains("trace"));
    }
}

on_both! {
    async fn what_waits_for_a_busy_instance(bed) {
        let orders = bed.machine::<Order>();
        orders.send("o-1", Placed { cents: 100, fails: 1 }).await.unwrap();
        bed.run_until_idle().await;
        orders.send("o-1", Paid { receipt: "r".into() }).await.unwrap();
        orders.send("o-1", Shipped).after(std::time::Duration::from_secs(3600)).await.unwrap();
        orders.pause("o-1").reason("the bank is closed").actor("bob").await.unwrap();
        golden(bed, "show-paused", &["show", "order", "o-1"]).await;
        golden(bed, "due-timers", &["due", "order", "--limit", "1"]).await;
    }
}

on_both! {
    async fn an_empty_database_has_empty_screens(bed) {
        for command in ["ls", "errors", "due"] {
            let said = fsm(bed, WIDE, &[command]).await;
            assert_eq!((said.out.as_str(), said.code), ("", 0), "{said:?}");
            assert!(!said.talk.is_empty());
        }
    }
}

on_both! {
    async fn pages_follow_one_another_over_all_machines(bed) {
        let orders = bed.machine::<Order>();
        for n in 0..7 {
            orders.send(format!("o-{n}"), Placed { cents: n, fails: 0 }).await.unwrap();
        }
        bed.run_until_idle().await;
        let (mut keys, mut after, mut pages) = (Vec::new(), None::<String>, 0);
        loop {
            let mut arguments = vec!["ls", "--limit", "3"];
            arguments.extend(after.as_deref().map(|after| ["--after", after]).into_iter().flatten());
            let page = json(bed, &arguments).await;
            keys.extend(page["instances"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap().to_owned()));
            pages += 1;
            match page["next"].as_str() {
                Some(next) => after = Some(next.to_owned()),
                None => break,
            }
        }
        assert_eq!((keys, pages), ((0..7).rev().map(|n| format!("o-{n}")).collect::<Vec<_>>(), 3));
    }
}

on_both! {
    async fn filters_let_through_what_they_say(bed) {
        three(bed).await;
        bed.machine::<Order>().pause("o-1").await.unwrap();
        let cases: [(&[&str], &[&str]); 8] = [
            (&["--state", "placed"], &["o-2"]),
            (&["--status", "running"], &["o-1"]),
            (&["--status", "error"], &["o-2"]),
            (&["--error", "no RECEIPT"], &["o-2"]),
            (&["--error", "100%"], &[]),
            (&["--older", "1s"], &["o-3", "o-2"]),
            (&["--older", "1h"], &[]),
            (&["--paused"], &["o-1"]),
        ];
        for (filter, expected) in cases {
            let arguments: Vec<&str> = ["ls", "order"].iter().chain(filter).copied().collect();
            let page = json(bed, &arguments).await;
            let keys: Vec<_> = page["instances"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
            assert_eq!(keys, expected, "{filter:?}");
        }
    }
}

on_both! {
    async fn an_instance_is_followed_until_it_has_ended(bed) {
        let orders = bed.machine::<Order>();
        orders.send("o-1", Placed { cents: 100, fails: 1 }).await.unwrap();
        bed.run_until_idle().await;
        for json in [&[][..], &["--json"]] {
            let key = if json.is_empty() { "o-1" } else { "o-2" };
            orders.send("o-2", Placed { cents: 100, fails: 0 }).dedup("once").await.unwrap();
            let arguments: Vec<&str> = ["show", "order", key, "--follow"].iter().chain(json).copied().collect();
            let shown = Arc::new(Notify::new());
            let (said, ()) = tokio::join!(until_shown(bed, &shown, &arguments), async {
                shown.notified().await;
                bed.advance(std::time::Duration::from_secs(5)).await;
                orders.send(key, Paid { receipt: "r".into() }).await.unwrap();
                orders.send(key, Shipped).await.unwrap();
                bed.run_until_idle().await;
            });
            let last = if json.is_empty() { "→ from `paid` to `shipped`\n" } else { r#""kind":"transition","to":"shipped"}"# };
            assert!(said.out.trim_end().ends_with(last.trim_end()), "{said:?}");
            assert_eq!(said.out.matches("`Shipped` calls `shipped`").count(), usize::from(json.is_empty()), "{said:?}");
        }
    }
}

on_both! {
    async fn an_instance_is_waited_for(bed) {
        three(bed).await;
        let cases: [(&[&str], u8, &str, &str); 8] = [
            (&["o-3"], 0, "order\to-3\tshipped\tcompleted\t2030-01-01T00:00:01Z\n", ""),
            (&["o-3", "--for", "end"], 0, "shipped", ""),
            (&["o-3", "--for", "placed"], 4, "shipped", "`order` `o-3` is completed in `shipped`, and never comes to `placed`"),
            (&["o-2"], 6, "error", ""),
            (&["o-1", "--timeout", "200ms"], 1, "", "was waited for in vain, 200ms long: waits until 2030-01-01T00:00:05Z"),
            (&["o-1", "--for", "nowhere"], 3, "", "`order` has no state `nowhere`; wait for `settled`, `end`, `placed`"),
            (&["o-9"], 3, "", "there is no `order` `o-9`"),
            (&["o-9", "--timeout", "soon"], 2, "", "is not a duration"),
        ];
        for (arguments, code, out, talk) in cases {
            let all: Vec<&str> = ["wait", "order"].iter().chain(arguments).copied().collect();
            let said = fsm(bed, To::Pipe, &all).await;
            assert_eq!(said.code, code, "{said:?}");
            assert!(said.out.contains(out) && said.talk.contains(talk), "{said:?}");
        }
        let (said, ()) = tokio::join!(fsm(bed, To::Pipe, &["wait", "order", "o-1", "--for", "placed", "--timeout", "60s"]), async {
            bed.advance(std::time::Duration::from_secs(20)).await;
        });
        assert_eq!((said.code, said.out.as_str()), (0, "order\to-1\tplaced\trunning\t2030-01-01T00:00:15Z\n"), "{said:?}");
    }
}

#[test]
fn what_the_readme_shows_is_what_is_shown() {
    let folder = env!("CARGO_MANIFEST_DIR");
    let readme = std::fs::read_to_string(format!("{folder}/README.md")).unwrap();
    let golden: Vec<_> = std::fs::read_dir(format!("{folder}/tests/golden")).unwrap().map(|file| file.unwrap().path()).collect();
    let golden: Vec<_> = golden.iter().map(|path| std::fs::read_to_string(path).unwrap().replace("(talk) ", "")).collect();
    let blocks: Vec<_> = readme.split("```text\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect();
    assert!(blocks.len() > 8);
    for block in blocks {
        let (_, shown) = block.split_once('\n').unwrap();
        assert!(golden.iter().any(|golden| golden.contains(shown)), "no golden file has:\n{shown}");
    }
}

/// Collects the fields of a document with their paths.
fn fields(value: &Value, before: &str, all: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| fields(value, &format!("{before}.{name}"), all)),
        Value::Array(values) => values.iter().for_each(|value| fields(value, &format!("{before}[]"), all)),
        _ => {
            all.insert(before.trim_start_matches('.').to_owned());
        }
    }
}

on_both! {
    async fn the_fields_of_every_answer_stay(bed) {
        three(bed).await;
        let orders = bed.machine::<Order>();
        orders.send("o-1", Paid { receipt: "r".into() }).await.unwrap();
        orders.pause("o-2").reason("a trial").actor("bob").await.unwrap();
        let commands: [&[&str]; 22] = [
            &["machines"], &["ls", "--limit", "1"], &["ls"], &["show", "order", "o-1"], &["show", "order", "o-2"], &["errors"], &["due"],
            &["workers"], &["stats"], &["simulate", "3", "10s", "--outage", "1s", "--jitter", "0.1"], &["graph", "order", "--counts"],
            &["doctor"], &["doctor", "--deep"], &["wait", "order", "o-3"], &["retry", "order", "--status", "error", "--dry-run"],
            &["resume", "order", "o-2"], &["send", "order", "o-1", "Shipped"], &["migrate", "status"], &["migrate", "check"],
            &["migrate", "print"], &["pause", "order", "--paused", "--yes"], &["simulate", "order", "placed"],
        ];
        let mut shapes = String::new();
        for command in commands {
            let mut all = BTreeSet::new();
            fields(&json(bed, command).await, "", &mut all);
            shapes.push_str(&format!("# fsm {} --json\n{}\n\n", command.join(" "), all.into_iter().collect::<Vec<_>>().join("\n")));
        }
        is_golden("json-shapes", &shapes);
    }
}

on_both! {
    async fn workers_are_shown_while_they_live_and_after(bed) {
        let workers = json(bed, &["workers"]).await;
        let worker = &workers["workers"][0];
        assert_eq!((worker["lives"].as_bool(), worker["executing"].as_u64()), (Some(true), Some(0)));
        assert_eq!(worker["pid"].as_u64(), Some(u64::from(std::process::id())));
        let later = bed.now() + std::time::Duration::from_secs(3600);
        let said = raw(Some(later), WIDE, &["--database", bed.url(), "workers"]).await;
        assert!(said.out.contains("dead") && said.out.contains("ago"), "{said:?}");
    }
}

on_both! {
    async fn nothing_in_the_database_is_obeyed_by_the_terminal(bed) {
        let orders = bed.machine::<Order>();
        let key = "\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}\r\nkey";
        orders.send(key, Placed { cents: 1, fails: 0 }).await.unwrap();
        bed.run_until_idle().await;
        orders.send(key, Paid { receipt: String::new() }).await.unwrap();
        bed.run_until_idle().await;
        orders.skip(key).reason(key).actor(key).await.unwrap();
        let commands: [&[&str]; 7] =
            [&["ls"], &["show", "order", key], &["show", "order", "\u{1b}]0;no such\u{7}"], &["errors"], &["due"], &["ls", "--json"], &["ls", key]];
        for to in [WIDE, To::Pipe] {
            for arguments in commands {
                let all: Vec<&str> = ["--database", bed.url()].iter().chain(arguments).copied().collect();
                let said = raw(Some(bed.now()), to, &all).await;
                for text in [&said.out, &said.talk] {
                    let is_harmless = |c: char| !matches!(c, '\u{7}' | '\r' | '\u{9b}' | '\u{202e}');
                    assert!(text.chars().all(is_harmless) && !text.contains("\u{1b}]"), "{arguments:?}: {text:?}");
                }
            }
        }
    }
}

on_both! {
    async fn what_is_not_there_is_told_with_what_is(bed) {
        three(bed).await;
        let cases: [(&[&str], u8, &str); 8] = [
            (&["show", "order", "o-9"], 3, "there is no `order` `o-9`"),
            (&["show", "orders", "o-1"], 3, "has no machine `orders`; it has `order`"),
            (&["graph", "none"], 3, "has no machine `none`; it has `order`"),
            (&["simulate", "order", "send"], 3, "`order` has no verb `send`; it has `placed`, `paid`, `expired`, `shipped`"),
            (&["simulate", "order", "paid"], 3, "`paid` of `order` has no retry policy: its first failure is its last"),
            (&["ls", "--after", "3"], 2, "`3` is no cursor"),
            (&["ls", "--status", "broken"], 2, "`broken` is not known here"),
            (&["show", "order", "o-2", "--exit-status"], 6, ""),
        ];
        for (arguments, code, talk) in cases {
            let said = fsm(bed, To::Pipe, arguments).await;
            assert_eq!(said.code, code, "{said:?}");
            assert!(said.talk.contains(talk), "{said:?}");
        }
    }
}
