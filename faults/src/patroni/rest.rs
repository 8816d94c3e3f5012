//! A client for the REST interfaces of Patroni and etcd.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::Failure;

/// The time limit of a request. A frozen node does not answer.
const LIMIT: Duration = Duration::from_secs(1);
/// The time limit of a switchover, which is answered when it is complete.
const SWITCHED: Duration = Duration::from_secs(30);

/// The key of the entry about the synchronous standby, `/service/fsm/sync`, in base64.
const SYNCHRONOUS: &str = "L3NlcnZpY2UvZnNtL3N5bmM=";

/// The status code for a path; `None` if the node does not answer.
pub fn status(port: u16, path: &str) -> Option<u16> {
    request(port, "GET", path, "", LIMIT).ok().map(|(status, _)| status)
}

/// Returns true if, according to this node, the cluster has three running servers, a leader and a synchronous standby.
pub fn is_complete(port: u16) -> bool {
    let Ok((200, body)) = request(port, "GET", "/cluster", "", LIMIT) else { return false };
    let cluster: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    let members = cluster["members"].as_array().cloned().unwrap_or_default();
    let has = |role: &str| members.iter().any(|member| member["role"] == role);
    let is_running = |member: &serde_json::Value| member["state"] == "running" || member["state"] == "streaming";
    members.len() == super::settings::NODES && members.iter().all(is_running) && has("leader") && has("sync_standby")
}

/// Switches the leader role from this node to another one.
pub fn switch_over(port: u16, leader: &str) -> Result<(), Failure> {
    match request(port, "POST", "/switchover", &format!("{{\"leader\": \"{leader}\"}}"), SWITCHED)? {
        (200 | 202, _) => Ok(()),
        (status, body) => Err(format!("the switchover was answered with {status}: {body}").into()),
    }
}

/// Patroni's entry in etcd about the leader and its synchronous standby.
#[derive(serde::Deserialize)]
struct Entry {
    leader: Option<String>,
    sync_standby: Option<String>,
}

/// Returns true if the entry about the synchronous standby is of this leader. While it is of an earlier leader, no fail-over is possible: the
/// entry names a server that is behind, and the server that is up to date must not lead.
pub fn is_synchronous_entry_of(etcd: u16, leader: &str) -> bool {
    let Ok((200, body)) = request(etcd, "POST", "/v3/kv/range", &format!("{{\"key\": \"{SYNCHRONOUS}\"}}"), LIMIT) else { return false };
    let answer: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    let entry = answer["kvs"][0]["value"].as_str().map(from_base64).unwrap_or_default();
    let Ok(Entry { leader: of, sync_standby }) = serde_json::from_slice(&entry) else { return false };
    of.as_deref() == Some(leader) && sync_standby.is_some_and(|standby| !standby.is_empty() && standby != leader)
}

/// The bytes of a text in base64.
fn from_base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for digit in text.bytes().map_while(|byte| DIGITS.iter().position(|known| *known == byte)) {
        (bits, held) = (bits << 6 | digit as u32, held + 6);
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held & 0xff) as u8);
        }
    }
    bytes
}

/// Deletes the entry about the synchronous standby from etcd.
pub fn forget_synchronous(etcd: u16) -> Result<(), Failure> {
    match request(etcd, "POST", "/v3/kv/deleterange", &format!("{{\"key\": \"{SYNCHRONOUS}\"}}"), LIMIT)? {
        (200, _) => Ok(()),
        (status, body) => Err(format!("etcd answered {status}: {body}").into()),
    }
}

fn request(port: u16, method: &str, path: &str, body: &str, limit: Duration) -> Result<(u16, String), Failure> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], port)), LIMIT)?;
    stream.set_read_timeout(Some(limit))?;
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("an answer has a head")?;
    let status = head.split_whitespace().nth(1).ok_or("an answer has a status")?;
    Ok((status.parse()?, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded() {
        assert_eq!(from_base64(SYNCHRONOUS), b"/service/fsm/sync");
        assert_eq!(from_base64("e30="), b"{}");
    }
}
