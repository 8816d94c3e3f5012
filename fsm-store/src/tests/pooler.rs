//! A pooler between the store and its server: settings that a connection requests at its start do not reach the session that runs its
//! statements.

use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use super::samples::{beginning, done, written};
use crate::open::Store;
use crate::settings::Settings;
use crate::testing::EmptyDatabase;

/// The code of a client's request for TLS.
const TLS_REQUEST: u32 = 80_877_103;

/// Forwards connections without their `options`, as PgBouncer does with `ignore_startup_parameters = options`. Returns its port.
async fn pooler(server: PgConnectOptions) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = server.clone();
            tokio::spawn(async move {
                match server.get_socket() {
                    Some(folder) => {
                        let socket = folder.join(format!(".s.PGSQL.{}", server.get_port()));
                        forward(client, UnixStream::connect(socket).await.unwrap()).await;
                    }
                    None => forward(client, TcpStream::connect((server.get_host(), server.get_port())).await.unwrap()).await,
                }
            });
        }
    });
    port
}

async fn forward(mut client: TcpStream, mut server: impl AsyncRead + AsyncWrite + Unpin) {
    let startup = loop {
        let length = client.read_u32().await.unwrap();
        let mut rest = vec![0; length as usize - 4];
        client.read_exact(&mut rest).await.unwrap();
        if rest[..4] != TLS_REQUEST.to_be_bytes() {
            break rest;
        }
        client.write_all(b"N").await.unwrap();
    };
    let mut words = startup[4..].split(|byte| *byte == 0);
    let mut kept = startup[..4].to_vec();
    while let (Some(name), Some(value)) = (words.next().filter(|name| !name.is_empty()), words.next()) {
        if name != b"options" {
            [name, value].into_iter().for_each(|word| kept.extend(word.iter().chain(&[0])));
        }
    }
    kept.push(0);
    server.write_u32(u32::try_from(kept.len()).unwrap() + 4).await.unwrap();
    server.write_all(&kept).await.unwrap();
    // Either side may close the connection.
    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
}

/// A `listen` behind a pooler would be lost, or would occupy a server connection permanently.
#[tokio::test(flavor = "multi_thread")]
async fn behind_a_pooler_nobody_listens_and_all_else_works() {
    let fresh = EmptyDatabase::postgres().await;
    let direct = fresh.open().await;
    assert!(direct.listen().await.unwrap().is_some(), "the connection is its own for as long as it lasts");
    let options: PgConnectOptions = fresh.url().parse().unwrap();
    let port = pooler(options.clone()).await;
    let login = match options.get_username() {
        "" => String::new(),
        user => format!("{user}@"),
    };
    let url = format!("postgres://{login}127.0.0.1:{port}/{}?sslmode=prefer", options.get_database().unwrap());
    let pooled = Store::open(Settings::new(url)).await.unwrap();
    assert!(pooled.listen().await.unwrap().is_none(), "what is due is found by polling");
    assert_eq!(written(&pooled, &[&beginning("a", None)]).await, [done(Some("a"))]);
    pooled.notify().await.unwrap();
    pooled.close().await;
    direct.close().await;
}
