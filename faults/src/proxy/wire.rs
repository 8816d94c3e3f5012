//! The part of PostgreSQL's protocol that finds the ends of messages, their statements and their command tags.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// One message, unchanged.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame(Vec<u8>);

impl Frame {
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn tag(&self) -> u8 {
        self.0[0]
    }

    /// The statement of a query or of a parse message.
    pub fn statement(&self) -> Option<&str> {
        let text = match self.tag() {
            b'Q' => &self.0[5..],
            b'P' => self.0[5..].splitn(2, |byte| *byte == 0).nth(1)?,
            _ => return None,
        };
        std::str::from_utf8(text.split(|byte| *byte == 0).next()?).ok()
    }

    /// The command tag of a completed command.
    pub fn command(&self) -> Option<&str> {
        if self.tag() != b'C' {
            return None;
        }
        std::str::from_utf8(self.0[5..].split(|byte| *byte == 0).next()?).ok()
    }
}

/// One direction of a connection.
pub struct WireReader<R> {
    reader: R,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> WireReader<R> {
    pub fn new(reader: R) -> WireReader<R> {
        WireReader { reader, buffer: Vec::new() }
    }

    /// Waits for whole messages. Bytes that were read are kept if the future is dropped.
    pub async fn frames(&mut self) -> io::Result<Vec<Frame>> {
        loop {
            let mut whole = Vec::new();
            while let Some(length) = length_of_first(&self.buffer).filter(|length| self.buffer.len() >= *length) {
                let rest = self.buffer.split_off(length);
                whole.push(Frame(std::mem::replace(&mut self.buffer, rest)));
            }
            if !whole.is_empty() {
                return Ok(whole);
            }
            if self.reader.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// The length of the first message: a tag byte, and a length that counts itself but not the tag.
fn length_of_first(buffer: &[u8]) -> Option<usize> {
    let length: [u8; 4] = buffer.get(1..5)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(length)).ok().map(|length| length + 1)
}

/// The first message, which has no tag.
pub enum Startup {
    WantsEncryption,
    Session(Parameters),
    Other,
}

/// The startup message of a session.
pub struct Parameters(Vec<u8>);

impl Startup {
    pub fn of(length: u32, body: &[u8]) -> Startup {
        match body.get(..4) {
            Some([0x04, 0xD2, 0x16, 0x2F | 0x30]) => Startup::WantsEncryption,
            Some([0, 3, 0, 0]) => Startup::Session(Parameters([&length.to_be_bytes(), body].concat())),
            _ => Startup::Other,
        }
    }
}

impl Parameters {
    /// The message with another time zone for the session.
    pub fn in_time_zone(self, time_zone: Option<&str>) -> Vec<u8> {
        let Some(time_zone) = time_zone else { return self.0 };
        let mut words: Vec<&[u8]> = self.0[8..].split(|byte| *byte == 0).collect();
        while words.last().is_some_and(|word| word.is_empty()) {
            words.pop();
        }
        let mut body = self.0[4..8].to_vec();
        let mut has_one = false;
        for pair in words.chunks(2) {
            let is_zone = pair[0].eq_ignore_ascii_case(b"timezone");
            has_one |= is_zone;
            let value = if is_zone { time_zone.as_bytes() } else { pair.get(1).copied().unwrap_or_default() };
            body.extend([pair[0], b"\0", value, b"\0"].concat());
        }
        if !has_one {
            body.extend([b"TimeZone\0", time_zone.as_bytes(), b"\0"].concat());
        }
        body.push(0);
        let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
        [&length.to_be_bytes(), body.as_slice()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::{Frame, Startup, WireReader};

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[tag], &length.to_be_bytes()[..], body].concat()
    }

    #[tokio::test]
    async fn messages_are_whole_wherever_the_bytes_are_cut() {
        let (begin, parse, sync) = (message(b'Q', b"begin\0"), message(b'P', b"s1\0select 1\0\0\0"), message(b'S', b""));
        let all = [begin.clone(), parse.clone(), sync.clone()].concat();
        for cut in 0..all.len() {
            let parts = tokio::io::AsyncReadExt::chain(&all[..cut], &all[cut..]);
            let mut half = WireReader::new(parts);
            let mut seen = Vec::new();
            while seen.len() < 3 {
                seen.extend(half.frames().await.unwrap());
            }
            assert_eq!(seen, [Frame(begin.clone()), Frame(parse.clone()), Frame(sync.clone())]);
            assert_eq!(seen.iter().map(Frame::statement).collect::<Vec<_>>(), [Some("begin"), Some("select 1"), None]);
            assert!(half.frames().await.is_err(), "the end is an error");
        }
    }

    #[test]
    fn a_finished_command_says_which() {
        assert_eq!(Frame(message(b'C', b"COMMIT\0")).command(), Some("COMMIT"));
        assert_eq!(Frame(message(b'D', b"COMMIT\0")).command(), None);
    }

    #[test]
    fn a_session_gets_the_time_zone_that_it_is_given() {
        let body = b"\0\x03\0\0user\0me\0TimeZone\0UTC\0database\0db\0\0";
        let length = u32::try_from(body.len() + 4).unwrap();
        let Startup::Session(startup) = Startup::of(length, body) else { panic!("it begins a session") };
        let changed = startup.in_time_zone(Some("Asia/Tokyo"));
        assert_eq!(&changed[4..], b"\0\x03\0\0user\0me\0TimeZone\0Asia/Tokyo\0database\0db\0\0");
        assert_eq!(u32::from_be_bytes(changed[..4].try_into().unwrap()) as usize, changed.len());
        assert!(matches!(Startup::of(8, &[0x04, 0xD2, 0x16, 0x2F]), Startup::WantsEncryption));
    }
}
