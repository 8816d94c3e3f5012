//! The store on both databases.

use fsm_core::time::Timestamp;

use super::claim::Served;
use super::lock::Target;
use super::open::{Settings, Store};
use super::{claim, lock, migrate, write};

fn is_send<T: Send>(value: T) -> T {
    value
}

#[tokio::test]
async fn futures_can_be_sent() {
    let store = Store::open(Settings::new("sqlite::memory:")).await.unwrap();
    is_send(migrate::up(&store, Timestamp::from_micros(1))).await.unwrap();
    let task = tokio::spawn(async move {
        let mut tx = store.begin().await.unwrap();
        let mut conn = tx.conn();
        let found = lock::instances(&mut conn, &[Target { machine: "a", key: "b" }]).await.unwrap();
        assert_eq!(found, [None]);
        assert_eq!(write::write(&mut conn, &[]).await.unwrap(), []);
        let served = Served { machine: "a".into(), verbs: vec!["v".into()] };
        let me = fsm_core::ids::SessionId(uuid::Uuid::new_v4());
        assert_eq!(claim::claim(&mut conn, me, &served, 3, Timestamp::from_micros(3)).await.unwrap(), []);
        tx.commit().await.unwrap();
    });
    task.await.unwrap();
}
