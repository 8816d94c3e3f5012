//! The record of an instance is written only when it changes.

use fsm_core::changes::Payload;
use fsm_core::instance::Instance;

use super::samples::{attempt, beginning, call, opening, session, success, written};
use crate::testing::on_each;
use crate::view;

/// A record may be large. Only the success of a verb writes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_written_by_a_success_only() {
    on_each(async |store| {
        let begun = beginning("one", Some(session()));
        written(&store, &[&begun]).await;
        let ended = success(&begun);
        written(&store, &[&ended]).await;
        let instance = Instance { record: Some(b"never written".to_vec()), is_open: true, ..ended.instance.clone() };
        let attempt = attempt(&instance, call(), Some(session()));
        assert_eq!(written(&store, &[&opening(instance, attempt, Payload::Bytes(vec![7]))]).await.len(), 1);
        let found = view::find(&mut store.reader().await.unwrap().conn(), "payment", "one").await.unwrap().unwrap().instance;
        assert_eq!((found.is_open, found.record), (true, ended.instance.record));
    })
    .await;
}
