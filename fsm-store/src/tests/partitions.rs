//! Partitions on PostgreSQL: creating them, the directory, the check of a schema, and the keys of each.

use fsm_core::partition::{Partition, partition_of};
use fsm_core::time::Timestamp;

use super::samples::{beginning, written};
use crate::error::{Class, Result, StoreError};
use crate::migrate::{self, ROLES};
use crate::notifications::NotificationListener;
use crate::open::{Pools, Store};
use crate::partition_place::PartitionPlace;
use crate::partitions::{self, places};
use crate::settings::Settings;
use crate::sql::{self, Sql};
use crate::testing::EmptyDatabase;
use crate::values::values;

const NOW: Timestamp = Timestamp::from_micros(1_000_000);

/// A database without tables.
struct Site {
    database: EmptyDatabase,
    settings: Settings,
    store: Store,
}

impl Site {
    async fn new() -> Site {
        let database = EmptyDatabase::postgres().await;
        let settings = Settings { connections: 2, ..Settings::new(database.url()) };
        let store = Store::open(settings.clone()).await.unwrap();
        Site { database, settings, store }
    }

    async fn create(&self, places: &[PartitionPlace]) -> Result<bool> {
        partitions::create(&self.store, &self.settings, places, NOW).await
    }

    async fn open(&self, place: &PartitionPlace) -> Store {
        Store::open(place.settings(&self.settings)).await.unwrap()
    }

    async fn run(&self, script: &'static str) {
        let mut tx = self.store.begin().await.unwrap();
        tx.conn().script(script).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// The names of all schemas with tables of this crate.
    async fn schemas(&self) -> Vec<String> {
        let schemas = "select distinct t.schemaname::text from pg_tables t where t.tablename like 'fsm_%' order by 1";
        let mut reader = self.store.reader().await.unwrap();
        let rows = reader.conn().rows(&Sql { sqlite: "", postgres: schemas }, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0).unwrap()).collect()
    }
}

/// The text of an error about a schema that is not the partition that it should be.
fn says<T: std::fmt::Debug>(result: Result<T>) -> String {
    let error = result.expect_err("the schema does not fit");
    assert!(matches!(error, StoreError::Partition { .. }) && error.class() == Class::Misfit, "{error:?}");
    error.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_created_once_and_each_is_a_whole_copy_of_the_tables() {
    let site = Site::new().await;
    assert_eq!(partitions::directory(&site.store).await.unwrap(), []);
    let three = places(3, &[]).unwrap();
    assert!(site.create(&three).await.unwrap());
    assert_eq!(partitions::directory(&site.store).await.unwrap(), three);
    assert_eq!(site.schemas().await, ["fsm_0000", "fsm_0001", "fsm_0002", "public"]);
    for place in &three {
        let store = site.open(place).await;
        partitions::check(&store, place).await.unwrap();
        migrate::check(&mut store.reader().await.unwrap().conn(), &store.place()).await.unwrap();
        assert!(says(partitions::directory(&store).await).contains("is one partition of several"));
    }
    assert!(!site.create(&three).await.unwrap(), "nothing is left to create");
    assert_eq!(partitions::directory(&site.store).await.unwrap(), three);
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_that_were_created_in_part_are_completed() {
    let site = Site::new().await;
    let three = places(3, &[]).unwrap();
    site.create(&three).await.unwrap();
    // The directory comes last. Before it, the schemas are complete, empty, or say which partition they are and have no tables yet.
    site.run("drop table fsm_partitions; drop schema fsm_0001 cascade; drop schema fsm_0002 cascade; create schema fsm_0001; create schema fsm_0002")
        .await;
    site.run("create table fsm_0002.fsm_partition (partition bigint not null, partitions bigint not null, place_number bigint not null)")
        .await;
    site.run("insert into fsm_0002.fsm_partition values (2, 3, 1)").await;
    assert!(site.create(&three).await.unwrap());
    for place in &three {
        let store = site.open(place).await;
        partitions::check(&store, place).await.unwrap();
        migrate::check(&mut store.reader().await.unwrap().conn(), &store.place()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_create_the_same_partitions_at_once() {
    let site = Site::new().await;
    let two = places(2, &[]).unwrap();
    let (first, second) = tokio::join!(site.create(&two), site.create(&two));
    assert_eq!([first.unwrap(), second.unwrap()].iter().filter(|is_new| **is_new).count(), 1);
    assert_eq!(partitions::directory(&site.store).await.unwrap(), two);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_and_the_places_of_partitions_do_not_change() {
    let site = Site::new().await;
    site.create(&places(2, &[]).unwrap()).await.unwrap();
    let more = says(site.create(&places(3, &[]).unwrap()).await);
    assert!(more.ends_with("has 2 partitions already, and their number does not change"), "{more}");
    let elsewhere = says(site.create(&places(2, &[site.database.url()]).unwrap()).await);
    assert!(elsewhere.ends_with("has a directory that lists its 2 partitions at other places"), "{elsewhere}");
    assert_eq!(site.schemas().await, ["fsm_0000", "fsm_0001", "public"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_with_tables_gets_no_partitions() {
    let site = Site::new().await;
    migrate::up(&site.store, NOW).await.unwrap();
    let refused = says(site.create(&places(2, &[]).unwrap()).await);
    assert!(refused.contains("has the tables of a database without partitions"), "{refused}");
    assert_eq!(site.schemas().await, ["public"]);

    let other = Site::new().await;
    other.create(&places(2, &[]).unwrap()).await.unwrap();
    let partition = &places(2, &[]).unwrap()[0];
    let settings = partition.settings(&other.settings);
    let inner = Store::open(settings.clone()).await.unwrap();
    let refused = says(partitions::create(&inner, &settings, &places(2, &[]).unwrap(), NOW).await);
    assert!(refused.starts_with("the schema `fsm_0000` of ") && refused.contains("is one partition of several"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_is_something_else_is_never_made_a_partition() {
    let site = Site::new().await;
    site.create(&places(2, &[]).unwrap()).await.unwrap();
    site.run("drop table fsm_partitions").await;
    let other = says(site.create(&places(4, &[]).unwrap()).await);
    assert!(other.contains("is partition 0 of 2, and the directory lists it as 0 of 4"), "{other}");

    let site = Site::new().await;
    site.run("create schema fsm_0000").await;
    let place = &places(1, &[]).unwrap()[0];
    migrate::up(&site.open(place).await, NOW).await.unwrap();
    let used = says(site.create(&places(1, &[]).unwrap()).await);
    assert!(used.ends_with("has tables already, and is no partition"), "{used}");
}

#[tokio::test(flavor = "multi_thread")]
async fn urls_take_turns_and_the_directory_can_be_elsewhere() {
    let (site, second) = (Site::new().await, Site::new().await);
    let urls = [site.database.url(), second.database.url()];
    let three = places(3, &urls).unwrap();
    assert_eq!(three.iter().map(|place| place.url.as_ref().unwrap()).collect::<Vec<_>>(), [&urls[0], &urls[1], &urls[0]]);
    site.create(&three).await.unwrap();
    assert_eq!(site.schemas().await, ["fsm_0000", "fsm_0002", "public"]);
    assert_eq!(second.schemas().await, ["fsm_0001"]);
    assert_eq!(partitions::directory(&site.store).await.unwrap(), three);
    partitions::check(&site.open(&three[1]).await, &three[1]).await.unwrap();
    assert_eq!([places(0, &[]), places(1025, &[])], [None, None]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_was_changed_by_hand_is_refused_and_another_schema_name_is_not() {
    let site = Site::new().await;
    site.create(&places(2, &[]).unwrap()).await.unwrap();
    site.run(
        r#"alter schema fsm_0001 rename to "Elsewhere ""1"""; update fsm_partitions set schema = 'Elsewhere "1"' where partition = 1"#,
    )
    .await;
    let listed = partitions::directory(&site.store).await.unwrap();
    partitions::check(&site.open(&listed[1]).await, &listed[1]).await.unwrap();

    site.run("update fsm_partitions set schema = 'fsm_0000' where partition = 1").await;
    let listed = partitions::directory(&site.store).await.unwrap();
    let wrong = says(partitions::check(&site.open(&listed[1]).await, &listed[1]).await);
    assert!(wrong.contains("is partition 0 of 2, and the directory lists it as 1 of 2; correct the directory"), "{wrong}");

    site.run("update fsm_partitions set schema = 'public' where partition = 1").await;
    let listed = partitions::directory(&site.store).await.unwrap();
    let none = says(partitions::check(&site.open(&listed[1]).await, &listed[1]).await);
    assert!(none.contains("is no partition, and the directory lists it as 1 of 2"), "{none}");

    site.run("update fsm_partitions set partition = 5 where partition = 1").await;
    assert!(says(partitions::directory(&site.store).await).ends_with("a directory of 2 partitions in which number 1 is not the next"));
    site.run("delete from fsm_partitions").await;
    assert!(says(partitions::directory(&site.store).await).ends_with("has a directory `fsm_partitions` without a partition"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_does_not_exist_is_not_opened() {
    let site = Site::new().await;
    let place = &places(1, &[]).unwrap()[0];
    let missing = says(Store::open(place.here(&site.settings)).await);
    assert!(missing.starts_with("the schema `fsm_0000` of the PostgreSQL ") && missing.ends_with("does not exist"), "{missing}");
    // The directory may list its new place soon.
    let moved = Store::open(place.settings(&site.settings)).await.expect_err("the schema is not there");
    assert!(moved.is_transient() && moved.to_string().contains("the partition is being moved, or the directory is wrong"), "{moved}");
    assert!(Store::open(site.settings.clone()).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_belong_to_another_partition_are_found_page_by_page() {
    let site = Site::new().await;
    let two = places(2, &[]).unwrap();
    site.create(&two).await.unwrap();
    let store = site.open(&two[0]).await;
    let keys: Vec<String> = (0..10).map(|n| format!("o-{n}")).collect();
    let begun: Vec<_> = keys.iter().map(|key| beginning(key, None)).collect();
    written(&store, &begun.iter().collect::<Vec<_>>()).await;
    let (mut found, mut pages, mut after) = (Vec::new(), Vec::new(), Some(String::new()));
    while let Some(last) = after {
        let mut reader = store.reader().await.unwrap();
        let page = partitions::examine_keys(&mut reader.conn(), two[0].partition, "payment", &last, 4).await.unwrap();
        pages.push(page.examined);
        found.extend(page.misplaced);
        after = page.next;
    }
    assert_eq!(pages, [4, 4, 2]);
    assert_eq!(found, keys.iter().filter(|key| partition_of(key, 2) == 1).cloned().collect::<Vec<_>>());
    assert!(!found.is_empty() && found.len() < keys.len());
    let mut reader = store.reader().await.unwrap();
    let other = partitions::examine_keys(&mut reader.conn(), two[0].partition, "another machine", "", 4).await.unwrap();
    assert_eq!((other.examined, other.next), (0, None));
    let all = Partition::new(0, 1).unwrap();
    assert_eq!(partitions::examine_keys(&mut reader.conn(), all, "payment", "", 100).await.unwrap().misplaced, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_partition_has_a_notification_channel_of_its_own() {
    let site = Site::new().await;
    let two = places(2, &[]).unwrap();
    site.create(&two).await.unwrap();
    let (first, second) = (site.open(&two[0]).await, site.open(&two[1]).await);
    let channels = [&first, &second, &site.store].map(|store| match store.pools() {
        Pools::Postgres(pool) => pool.channel.clone(),
        #[cfg(feature = "sqlite")]
        Pools::Sqlite(_) => panic!("it is PostgreSQL"),
    });
    assert_eq!(channels, ["fsm_due_fsm_0000", "fsm_due_fsm_0001", "fsm_due"]);
    let mut listener: NotificationListener = first.listen().await.unwrap().unwrap();
    site.open(&two[0]).await.notify().await.unwrap();
    listener.next_notification().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_reads_the_directory_and_only_the_owner_changes_it() {
    let site = Site::new().await;
    let two = places(2, &[]).unwrap();
    site.create(&two).await.unwrap();
    for (schema, script) in
        [("fsm_0000", "set local search_path = fsm_0000, public"), ("fsm_0001", "set local search_path = fsm_0001, public")]
    {
        for _ in 0..2 {
            let mut tx = site.store.begin().await.unwrap();
            tx.conn().script(script).await.unwrap();
            tx.conn().script(ROLES).await.unwrap();
            tx.commit().await.unwrap();
        }
        for role in ["fsm_worker", "fsm_sender", "fsm_viewer"] {
            let rights = Sql {
                sqlite: "",
                postgres: "
                    select has_table_privilege($1, $2 || '.fsm_partition', 'select') and has_table_privilege($1, 'public.fsm_partitions', 'select')
                        and has_schema_privilege($1, $2, 'usage'),
                        has_table_privilege($1, $2 || '.fsm_partition', 'insert, update, delete, truncate')
                        or has_table_privilege($1, 'public.fsm_partitions', 'insert, update, delete, truncate')",
            };
            let mut reader = site.store.reader().await.unwrap();
            let rows = reader.conn().rows(&rights, &values![role, schema]).await.unwrap();
            let (reads, writes): (bool, bool) = (rows[0].get(0).unwrap(), rows[0].get(1).unwrap());
            assert_eq!((reads, writes), (true, false), "{role} in {schema}");
        }
    }
    for place in &two {
        partitions::check(&site.open(place).await, place).await.unwrap();
    }
    assert_eq!(partitions::directory(&site.store).await.unwrap(), two);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_password_of_a_partitions_url_is_not_shown() {
    let place = PartitionPlace::new(Partition::new(0, 1).unwrap(), Some("postgres://me:s3cret@host/db".into()));
    assert_eq!(place.shown_url().as_deref(), Some("postgres://me:***@host/db"));
    assert_eq!(PartitionPlace { url: None, ..place }.shown_url(), None);
    assert_eq!(sql::CHANNEL, "fsm_due", "a database without partitions keeps its channel");
}
