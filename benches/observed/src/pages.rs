//! Open pages of the console, as browsers hold them: each is loaded once, and then its stream of updates is read.

#[cfg(not(feature = "console"))]
pub use without::open;

#[cfg(feature = "console")]
pub use with::open;

/// The program is built without the console.
#[cfg(not(feature = "console"))]
mod without {
    use std::error::Error;

    /// No pages.
    pub struct Pages;

    /// An error if any page is wanted.
    pub async fn open(_runtime: &fsm::Runtime, count: usize) -> Result<Pages, Box<dyn Error>> {
        if count > 0 { Err("this program is built without the feature `console`".into()) } else { Ok(Pages) }
    }

    impl Pages {
        /// Nothing can be wrong.
        pub fn check(self) -> Result<(), Box<dyn Error>> {
            Ok(())
        }
    }
}

/// The program is built with the console.
#[cfg(feature = "console")]
mod with {
    use std::error::Error;
    use std::io;
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinSet;

    /// The pages that are not of an instance.
    const LISTS: [&str; 5] = ["/", "/m/pulse", "/instances?machine=pulse", "/due", "/workers"];
    /// The line with which an accepted request is answered.
    const OK: &[u8] = b"HTTP/1.1 200 ";

    /// The browsers and the server. They end when they are dropped.
    pub struct Pages {
        tasks: JoinSet<io::Result<()>>,
        /// For each page, whether its stream has sent an update.
        is_updated: Arc<[AtomicBool]>,
    }

    /// Opens so many pages: of each ten, five are instances that move, and the others are lists of the console.
    pub async fn open(runtime: &fsm::Runtime, count: usize) -> Result<Pages, Box<dyn Error>> {
        let mut pages = Pages { tasks: JoinSet::new(), is_updated: (0..count).map(|_| AtomicBool::new(false)).collect() };
        if count == 0 {
            return Ok(pages);
        }
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = fsm::console(runtime).router().into_make_service_with_connect_info::<SocketAddr>();
        pages.tasks.spawn(async move { axum::serve(listener, router).await });
        for page in 0..count {
            let path = LISTS.get(page % 10).map_or_else(|| format!("/i/pulse/{page}-0"), |list| (*list).to_owned());
            let is_updated = Arc::clone(&pages.is_updated);
            pages.tasks.spawn(async move {
                read(address, &path, |_| ()).await?;
                let encoded: String = path.bytes().map(|byte| format!("%{byte:02X}")).collect();
                let note = |chunk: &[u8]| {
                    if chunk.windows(5).any(|text| text == b"patch") {
                        is_updated[page].store(true, Ordering::Relaxed);
                    }
                };
                read(address, &format!("/live?page={encoded}"), note).await?;
                Err(io::Error::other(format!("the stream of {path} has ended")))
            });
        }
        Ok(pages)
    }

    impl Pages {
        /// An error if a page could not be opened or its stream has ended, or if no page at all was updated. Prints how many were.
        pub fn check(mut self) -> Result<(), Box<dyn Error>> {
            if let Some(ended) = self.tasks.try_join_next() {
                ended??;
            }
            let updated = self.is_updated.iter().filter(|is_updated| is_updated.load(Ordering::Relaxed)).count();
            match (self.is_updated.len(), updated) {
                (0, _) => Ok(()),
                (_, 0) => Err("no page was updated".into()),
                (all, _) => {
                    eprintln!("{updated} of {all} pages were updated");
                    Ok(())
                }
            }
        }
    }

    /// Reads an answer to its end, and gives each part of it to `note`. An error if the request is not accepted.
    async fn read(address: SocketAddr, path: &str, note: impl Fn(&[u8])) -> io::Result<()> {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes()).await?;
        let (mut chunk, mut is_first) = (vec![0; 64 * 1024], true);
        loop {
            let length = stream.read(&mut chunk).await?;
            if length == 0 {
                return Ok(());
            }
            if std::mem::take(&mut is_first) && !chunk.starts_with(OK) {
                return Err(io::Error::other(format!("{path} was answered by {}", String::from_utf8_lossy(&chunk[..length.min(60)]))));
            }
            note(&chunk[..length]);
        }
    }
}
