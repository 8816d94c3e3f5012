//! Retry policies as tables, without a database.

use crate::support::{To, WIDE, fsm_at, is_golden};

#[tokio::test]
async fn a_policy_as_a_table_of_attempts() {
    let cases: [(&str, &[&str]); 5] = [
        ("simulate", &["10", "5s", "1h"]),
        ("simulate-outage", &["10", "5s", "1h", "--outage", "20m"]),
        ("simulate-jitter", &["3", "10s", "--jitter", "0.1"]),
        ("simulate-within", &["5s", "10m", "--within", "1h"]),
        ("simulate-endless", &["5s", "10m", "--rows", "4", "--outage", "1h"]),
    ];
    for (name, arguments) in cases {
        let all: Vec<&str> = ["simulate"].iter().chain(arguments).copied().collect();
        let said = fsm_at(None, WIDE, &all).await;
        assert_eq!(said.code, 0, "{said:?}");
        let piped = fsm_at(None, To::Pipe, &all).await;
        assert_eq!(said.out.lines().count(), piped.out.lines().count() + 1);
        is_golden(name, &format!("{}{}", said.out, said.talk));
    }
}

#[tokio::test]
async fn a_policy_that_is_none_is_told_so() {
    let cases: [(&[&str], &str); 8] = [
        (&["4000000000", "1s"], "more than 1000000 attempts"),
        (&["1ms", "--within", "365d"], "more than 1000000 attempts"),
        (&["10"], "a policy is `[RETRIES] MIN [MAX]`"),
        (&["10", "5x"], "`5x` is not a duration: `x` is not a unit"),
        (&["5s", "1s"], "the first wait, 5s, is longer than the maximum, 1s"),
        (&["1", "2s", "3s", "4s"], "unexpected value"),
        (&["10", "5s", "--jitter", "2"], "a share is a number from 0 to 1"),
        (&["order"], "give a policy"),
    ];
    for (arguments, talk) in cases {
        let all: Vec<&str> = ["simulate"].iter().chain(arguments).copied().collect();
        let said = fsm_at(None, To::Pipe, &all).await;
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.talk.contains(talk), "{said:?}");
    }
}
