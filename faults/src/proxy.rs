//! A TCP proxy for PostgreSQL that follows the protocol and cuts connections at chosen points.

mod cut;
mod wire;

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use crate::Failure;
use crate::random::Random;
pub use cut::Cuts;
use cut::{ConnectionState, CutPoint, Delivery};
use wire::{Frame, Startup, WireReader};

/// The settings of a proxy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    pub name: String,
    /// The server's socket.
    pub server: PathBuf,
    /// The folder for the record of its cuts.
    pub folder: PathBuf,
    pub cuts: Cuts,
    /// The time zone that every session gets, independent of the client's request.
    pub time_zone: Option<String>,
    pub seed: u64,
}

/// The file with one line for each cut.
pub fn cuts_file(spec: &Spec) -> PathBuf {
    spec.folder.join(format!("{}.cuts", spec.name))
}

/// Prints its port, and forwards until the harness ends.
pub fn run(spec: &Spec) -> Result<(), Failure> {
    std::thread::Builder::new().name("orders".into()).spawn(|| {
        // The input ends when the harness ends.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(0);
    })?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(listen(spec))
}

async fn listen(spec: &Spec) -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?.port());
    let cut_log = File::options().create(true).append(true).open(cuts_file(spec))?;
    let shared = Arc::new(Shared { spec: spec.clone(), random: Mutex::new(Random::new(spec.seed)), cut_log });
    loop {
        let (client, _) = listener.accept().await?;
        let shared = Arc::clone(&shared);
        // Broken connections are expected, so the result is ignored.
        tokio::spawn(async move { shared.forward(client).await });
    }
}

struct Shared {
    spec: Spec,
    random: Mutex<Random>,
    cut_log: File,
}

impl Shared {
    async fn forward(&self, mut client: TcpStream) -> io::Result<()> {
        let Some(startup) = self.read_startup(&mut client).await? else { return Ok(()) };
        let mut server = UnixStream::connect(&self.spec.server).await?;
        server.write_all(&startup).await?;
        client.set_nodelay(true)?;
        let (from_client, mut to_client) = client.into_split();
        let (from_server, mut to_server) = server.into_split();
        let (mut from_client, mut from_server) = (WireReader::new(from_client), WireReader::new(from_server));
        let mut state = ConnectionState::default();
        loop {
            let (deliveries, is_to_server) = tokio::select! {
                frames = from_client.frames() => (self.decide(frames?, |frame, random| state.on_request(frame, &self.spec.cuts, random)), true),
                frames = from_server.frames() => (self.decide(frames?, |frame, _| state.on_answer(frame)), false),
            };
            for (frame, delivery) in deliveries {
                let bytes = match delivery {
                    Delivery::Forward | Delivery::CutBehind(_) => frame.bytes(),
                    Delivery::CutInside(_) => &frame.bytes()[..frame.bytes().len() / 2],
                    Delivery::CutBefore(_) => &[],
                };
                if is_to_server {
                    to_server.write_all(bytes).await?;
                } else {
                    to_client.write_all(bytes).await?;
                }
                if let Delivery::CutBefore(cut_point) | Delivery::CutInside(cut_point) | Delivery::CutBehind(cut_point) = delivery {
                    return self.record_cut(cut_point);
                }
            }
        }
    }

    fn decide(&self, frames: Vec<Frame>, mut decide: impl FnMut(&Frame, &mut Random) -> Delivery) -> Vec<(Frame, Delivery)> {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let decided = frames.into_iter().map(|frame| {
            let delivery = decide(&frame, &mut random);
            (frame, delivery)
        });
        decided.collect()
    }

    /// Refuses encryption and returns the startup message. `None` if the client does not want a session.
    async fn read_startup(&self, client: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
        loop {
            let length = client.read_u32().await?;
            let mut body = vec![0; usize::try_from(length).unwrap_or(0).saturating_sub(4)];
            client.read_exact(&mut body).await?;
            match Startup::of(length, &body) {
                Startup::WantsEncryption => client.write_all(b"N").await?,
                Startup::Session(startup) => return Ok(Some(startup.in_time_zone(self.spec.time_zone.as_deref()))),
                Startup::Other => return Ok(None),
            }
        }
    }

    fn record_cut(&self, cut_point: CutPoint) -> io::Result<()> {
        (&self.cut_log).write_all(format!("{cut_point:?}\n").as_bytes())
    }
}
