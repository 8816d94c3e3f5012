//! URLs of several servers, some of which refuse, do not answer or vanish.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use crate::error::StoreError;
use crate::open::Store;
use crate::settings::Settings;
use crate::sql;
use crate::testing::EmptyDatabase;

/// A server that accepts connections, and whose machine can vanish: connections then stay open, but nothing arrives any more.
struct Vanishing {
    place: String,
    is_gone: Arc<AtomicBool>,
}

impl Vanishing {
    /// Forwards to the server of `url`.
    async fn before(url: &str) -> Vanishing {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = listener.local_addr().unwrap().to_string();
        let (is_gone, server) = (Arc::<AtomicBool>::default(), parts(url).1);
        let gone = Arc::clone(&is_gone);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (gone, server) = (Arc::clone(&gone), server.clone());
                tokio::spawn(async move {
                    if gone.load(Ordering::SeqCst) {
                        return std::future::pending().await;
                    }
                    match server.strip_prefix("%2F") {
                        Some(folder) => {
                            let socket = format!("/{}/.s.PGSQL.5432", folder.replace("%2F", "/"));
                            forward(client, UnixStream::connect(socket).await.unwrap(), gone).await;
                        }
                        None => forward(client, TcpStream::connect(server).await.unwrap(), gone).await,
                    }
                });
            }
        });
        Vanishing { place, is_gone }
    }

    fn vanish(&self) {
        self.is_gone.store(true, Ordering::SeqCst);
    }
}

async fn forward(mut one: TcpStream, mut other: impl AsyncReadExt + AsyncWriteExt + Unpin, gone: Arc<AtomicBool>) {
    let (mut asked, mut answered) = ([0; 8192], [0; 8192]);
    loop {
        let done = tokio::select! {
            read = one.read(&mut asked) => match read {
                Ok(length) if length > 0 && !gone.load(Ordering::SeqCst) => other.write_all(&asked[..length]).await,
                _ => break,
            },
            read = other.read(&mut answered) => match read {
                Ok(length) if length > 0 && !gone.load(Ordering::SeqCst) => one.write_all(&answered[..length]).await,
                _ => break,
            },
        };
        if done.is_err() {
            break;
        }
    }
    // A machine that vanishes does not close its connections.
    if gone.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
}

/// The login, the address of the server and the path of a test server's URL.
fn parts(url: &str) -> (String, String, String) {
    let (login, rest) = url.strip_prefix("postgres://").and_then(|rest| rest.split_once('@')).unwrap();
    let (place, path) = rest.split_once('/').unwrap();
    (login.to_owned(), place.to_owned(), path.to_owned())
}

/// The URL with these servers before its own one.
fn behind(places: &[&str], url: &str, parameters: &str) -> String {
    let (login, place, path) = parts(url);
    let places: Vec<&str> = places.iter().copied().chain([place.as_str()]).collect();
    format!("postgres://{login}@{}/{path}?{parameters}", places.join(","))
}

/// An address on which no server listens.
async fn refusing() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

async fn reads(store: &Store) -> Result<usize, StoreError> {
    Ok(store.reader().await?.conn().rows(&sql::SERVER_CLOCK, &[]).await?.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_or_is_silent_keeps_nobody_from_the_one_that_fits() {
    let fresh = EmptyDatabase::postgres().await;
    let silent = Vanishing::before(&fresh.url()).await;
    silent.vanish();
    let url = behind(&[&refusing().await, &silent.place], &fresh.url(), "connect_timeout=30");
    let begun = Instant::now();
    let store = Store::open(Settings::new(&url)).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    drop(store.begin().await.unwrap());
    assert_eq!(reads(&store).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_names_each_server_and_why_it_cannot_be_used() {
    let fresh = EmptyDatabase::postgres().await;
    let silent = Vanishing::before(&fresh.url()).await;
    silent.vanish();
    let refusing = refusing().await;
    let url = format!("postgres://postgres@{refusing},{}/db?connect_timeout=1", silent.place);
    let error = Store::open(Settings::new(&url)).await.unwrap_err();
    let says = error.to_string();
    for part in [
        format!("`{refusing}`: "),
        "refused".to_owned(),
        format!("`{}`: no answer within 1 s", silent.place),
        "target_session_attrs=read-write".into(),
    ] {
        assert!(says.contains(&part), "{part} is not in: {says}");
    }
    assert!(error.is_transient());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_read_only_is_passed_over_by_who_writes_and_not_by_who_reads() {
    let fresh = EmptyDatabase::postgres().await;
    let name = parts(&fresh.url()).2;
    let set = async |value: &str| {
        let mut conn = <sqlx::PgConnection as sqlx::Connection>::connect(&fresh.url()).await.unwrap();
        let text = format!("begin read write; alter database {name} set default_transaction_read_only = {value}; commit");
        sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&mut conn).await.unwrap();
    };
    let url = behind(&[&refusing().await], &fresh.url(), "");
    set("on").await;
    let error = Store::open(Settings::new(&url)).await.unwrap_err();
    assert!(error.to_string().contains("is read-only"), "{error}");
    let reader = Store::open(Settings { read_only: true, ..Settings::new(&url) }).await.unwrap();
    assert_eq!(reads(&reader).await.unwrap(), 1);
    set("off").await;
    let store = Store::open(Settings::new(&url)).await.unwrap();
    drop(store.begin().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_meets_a_read_only_server_finds_the_next_one_with_the_next_connection() {
    let fresh = EmptyDatabase::postgres().await;
    let store = Store::open(Settings::new(fresh.url())).await.unwrap();
    // Two idle connections. The sessions of both are read-only.
    let (mut one, mut other) = (store.reader().await.unwrap(), store.reader().await.unwrap());
    for reader in [&mut one, &mut other] {
        reader.conn().script("set default_transaction_read_only = on").await.unwrap();
    }
    drop((one, other));
    let mut tx = store.begin().await.unwrap();
    let error = tx.conn().script("create table refused (n integer)").await.unwrap_err();
    assert!(error.to_string().contains("write"), "{error}");
    drop(tx);
    let mut tx = store.begin().await.unwrap();
    tx.conn().script("create table taken (n integer)").await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_vanishes_stops_nobody_for_as_long_as_an_operation_may_take() {
    let fresh = EmptyDatabase::postgres().await;
    let vanishing = Vanishing::before(&fresh.url()).await;
    let url = behind(&[&vanishing.place], &fresh.url(), "connect_timeout=3");
    let store = Store::open(Settings::new(&url)).await.unwrap();
    let mut listener = store.listen().await.unwrap().unwrap();
    let mut reader = store.reader().await.unwrap();
    reader.conn().rows(&sql::SERVER_CLOCK, &[]).await.unwrap();

    vanishing.vanish();
    let begun = Instant::now();
    let error = reader.conn().rows(&sql::SERVER_CLOCK, &[]).await.map(drop).unwrap_err();
    assert!(error.is_transient(), "{error}");
    drop(reader);
    assert_eq!(reads(&store).await.unwrap(), 1);
    let deaf = tokio::time::timeout(Duration::from_secs(20), listener.next_notification())
        .await
        .expect("the listener asks whether its server is there");
    deaf.unwrap_err();
    let mut listener = store.listen().await.unwrap().unwrap();
    store.notify().await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), listener.next_notification()).await.unwrap().unwrap();
    assert!(begun.elapsed() < store.deadline(), "{:?}", begun.elapsed());
}
