//! A batch of any size is written completely except for its outdated changes, in any number of statements.

use fsm_core::changes::TimerChange;
use fsm_core::commit::written::Written;
use fsm_core::instance::Instance;

use super::samples::{beginning, done, session, success, timer, written};
use crate::error::StoreError;
use crate::open::Store;
use crate::testing::on_each;
use crate::transfer;
use crate::view;
use crate::write::write;

async fn found(store: &Store, key: &str) -> Option<Instance> {
    view::find(&mut store.reader().await.unwrap().conn(), "payment", key).await.unwrap().map(|found| found.instance)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_batch_of_any_size_all_is_written_but_the_member_that_is_outdated() {
    on_each(async |store| {
        for size in [1, 2, 3, 64, 65, 127, 128, 129, 250] {
            let me = session();
            let key = |n: usize| format!("{size}-{n}");
            let begun: Vec<_> = (0..size).map(|n| beginning(&key(n), Some(me))).collect();
            let middle = size / 2;
            written(&store, &[&beginning(&key(middle), Some(me))]).await;
            let all = written(&store, &begun.iter().collect::<Vec<_>>()).await;
            let expected = (0..size).map(|n| if n == middle { Written::Outdated } else { done(Some(&key(n))) });
            assert_eq!(all, expected.collect::<Vec<_>>(), "of {size} new instances one has a key that is taken");

            let mut ended: Vec<_> = begun.iter().filter(|begun| begun.instance.key != key(middle)).map(success).collect();
            let stale = ended.len() / 2;
            if let Some(stale) = ended.get_mut(stale) {
                stale.close.as_mut().unwrap().held_by = Some(session());
            }
            let all = written(&store, &ended.iter().collect::<Vec<_>>()).await;
            let expected = (0..ended.len()).map(|n| if n == stale { Written::Outdated } else { done(None) });
            assert_eq!(all, expected.collect::<Vec<_>>(), "of {size} attempts another session holds one");
            for (n, ended) in ended.iter().enumerate() {
                let version = if n == stale { ended.instance.version - 1 } else { ended.instance.version };
                assert_eq!(found(&store, &ended.instance.key).await.unwrap().version, version);
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_was_written_already_is_not_taken_for_one_of_ours() {
    on_each(async |store| {
        let me = session();
        let (first, second) = (beginning("one", Some(me)), beginning("two", Some(me)));
        written(&store, &[&first, &second]).await;
        assert_eq!(written(&store, &[&success(&first)]).await, [done(None)]);
        assert_eq!(written(&store, &[&success(&first)]).await, [Written::Outdated]);

        let mut tx = store.begin().await.unwrap();
        let both = write(&mut tx.conn(), &[&success(&first), &success(&second)]).await;
        assert_eq!(both.unwrap(), [Written::Outdated, done(None)]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_sqlite_is_told_with_the_commit_is_there_or_nothing_is() {
    on_each(async |store| {
        let mut begun = beginning("one", None);
        let mut twin = beginning("two", None);
        // A timer with this id exists already.
        begun.timers = vec![TimerChange::Set(timer(&begun.instance, None))];
        twin.timers.clone_from(&begun.timers);
        written(&store, &[&begun]).await;
        let mut tx = store.begin().await.unwrap();
        let done = match write(&mut tx.conn(), &[&twin]).await {
            Ok(_) => tx.commit().await,
            Err(error) => Err(error),
        };
        assert!(matches!(done, Err(StoreError::Database(_))), "{done:?}");
        assert_eq!(found(&store, "two").await, None);
        assert_eq!(written(&store, &[&beginning("two", None)]).await.len(), 1, "the next transaction is not disturbed");

        let mut tx = store.begin().await.unwrap();
        write(&mut tx.conn(), &[&beginning("three", None)]).await.unwrap();
        tx.rollback().await.unwrap();
        assert_eq!(found(&store, "three").await, None);
        let mut tx = store.begin().await.unwrap();
        write(&mut tx.conn(), &[&beginning("four", None)]).await.unwrap();
        assert!(view::find(&mut tx.conn(), "payment", "four").await.unwrap().is_some());
        assert_eq!(view::find(&mut tx.conn(), "payment", "three").await.unwrap(), None);
        tx.commit().await.unwrap();
        assert!(found(&store, "four").await.is_some());
    })
    .await;
}

#[tokio::test]
async fn every_table_of_an_export_has_an_import_of_its_width() {
    on_each(async |store| {
        let mut tx = store.begin().await.unwrap();
        for table in 0..transfer::TABLES {
            let width = transfer::columns(table).len();
            transfer::write(&mut tx.conn(), table, &[]).await.unwrap_or_else(|error| panic!("{}: {error}", transfer::name(table)));
            // A row of another width is refused.
            let narrow = vec![Vec::new()];
            let refused = transfer::write(&mut tx.conn(), table, &narrow).await.unwrap_err().to_string();
            assert!(refused.contains(&format!("a row has 0 columns, not {width}")), "{}: {refused}", transfer::name(table));
        }
    })
    .await;
}
