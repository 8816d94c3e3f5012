//! The command inside a program: it knows the event types, the redaction and the machines of the program.

use fsm::{Client, RedactableKind};
use fsm_cli::stage::Stage;
use serde_json::json;

use crate::shop::{Order, three};
use crate::support::{File, Said, To, fsm, healthy, json, on_both};

/// Runs the command on the client's database with its output in a pipe.
async fn inside(client: &Client, words: &[&str]) -> Said {
    let (mut out, mut talk) = (Vec::new(), Vec::new());
    let mut stage = Stage {
        out: Box::new(&mut out),
        talk: Box::new(&mut talk),
        input: Box::new(std::io::empty()),
        width: None,
        answers: false,
        shows_progress: false,
        now: None,
        actor: Some("ann".into()),
    };
    let code = fsm_cli::run_inside(client, std::iter::once("shop").chain(words.iter().copied()).map(Into::into), &mut stage).await;
    drop(stage);
    let text = |bytes: Vec<u8>| anstream::adapter::strip_str(&String::from_utf8(bytes).expect("it is text")).to_string();
    Said { code, out: text(out), talk: text(talk) }
}

on_both! {
    async fn a_payload_of_another_shape_is_not_sent(bed) {
        let client = Client::connect(bed.url()).await.unwrap();
        let cases: [(&[&str], u8, &str); 4] = [
            (&["Placed", r#"{"cents": "many", "fails": 0}"#], 2, "the payload does not decode as `Placed`: invalid type: string \"many\", expected u64"),
            (&["Placed"], 2, "the payload does not decode as `Placed`: invalid type: null"),
            (&["Plaecd", "{}"], 3, "`order` takes no event `Plaecd`; it takes `Placed`, `Paid`, `Shipped`"),
            (&["Placed", r#"{"cents": 5, "fails": 0}"#], 0, ""),
        ];
        for (words, code, talk) in cases {
            let all: Vec<&str> = ["send", "order", "o-1"].iter().chain(words).copied().collect();
            let said = inside(&client, &all).await;
            assert_eq!(said.code, code, "{said:?}");
            assert!(said.talk.contains(talk), "{said:?}");
            assert_eq!(bed.machine::<Order>().get("o-1").await.unwrap().is_some(), code == 0);
        }
        bed.run_until_idle().await;
        assert_eq!(inside(&client, &["wait", "order", "o-1", "--for", "placed"]).await.code, 0);
        healthy(bed).await;
    }
}

on_both! {
    async fn secrets_are_taken_out_as_the_program_says(bed) {
        three(bed).await;
        let client = Client::builder().redact(|shown| (shown.kind == RedactableKind::Record).then(|| "\"secret\"".into()));
        let client = client.connect(bed.url()).await.unwrap();
        let said = inside(&client, &["show", "order", "o-3"]).await;
        assert!(said.out.contains("record    \"secret\"") && !said.out.contains(":300"), "{said:?}");
        for other in [["--database", "other.db"], ["--redact", "cents"], ["--partition", "0"]] {
            let said = inside(&client, &["ls", other[0], other[1]]).await;
            assert_eq!((said.code, said.out.as_str()), (2, ""), "{said:?}");
            assert!(said.talk.contains("the program has its database"), "{said:?}");
        }
        let help = inside(&client, &["ls", "--help"]).await.out;
        assert!(!help.contains("--database") && !help.contains("--partition"), "{help}");
        let partitions = inside(&client, &["partitions", "list"]).await;
        assert!(partitions.code == 2 && partitions.talk.contains("partitions are managed by the `fsm` command"), "{partitions:?}");
    }
}

on_both! {
    async fn named_fields_are_hidden_without_the_program_too(bed) {
        three(bed).await;
        let said = fsm(bed, To::Pipe, &["show", "order", "o-3", "--redact", "cents,pin"]).await;
        assert!(said.out.contains(r#"record    {"cents":"***"}"#) && !said.out.contains(":300"), "{said:?}");
        assert_eq!(json(bed, &["ls", "--redact", "CENTS"]).await["instances"][0]["record"], json!({ "cents": "***" }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_programs_machines_are_there_before_they_ever_started() {
    let file = File::new();
    let client = Client::connect(file.url()).await.unwrap();
    let told: serde_json::Value = serde_json::from_str(&inside(&client, &["machines", "--json"]).await.out).unwrap();
    let order = told["machines"].as_array().unwrap().iter().find(|shown| shown["machine"] == "order").unwrap();
    assert_eq!(order["definitions"], json!(0));
    assert_eq!(inside(&client, &["migrate", "check"]).await.code, 0);
    assert_eq!(inside(&client, &["graph", "order"]).await.code, 0);
    let sent = inside(&client, &["send", "order", "o-1", "Placed", r#"{"cents": 5, "fails": 0}"#]).await;
    assert_eq!(sent.code, 0, "{sent:?}");
    assert!(inside(&client, &["due"]).await.out.contains("attempt 1 of 11 of `placed`"));
}
