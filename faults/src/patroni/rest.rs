//! A client for the REST interfaces of Patroni and etcd.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::Failure;

/// The time limit of a request. A frozen node does not answer.
const LIMIT: Duration = Duration::from_secs(1);
/// The time limit of a switchover, which is answered when it is complete.
const SWITCHED: Duration = Duration::from_secs(30);

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
    members.len() == super::NODES && members.iter().all(is_running) && has("leader") && has("sync_standby")
}

/// Switches the leader role from this node to another one.
pub fn switch_over(port: u16, leader: &str) -> Result<(), Failure> {
    match request(port, "POST", "/switchover", &format!("{{\"leader\": \"{leader}\"}}"), SWITCHED)? {
        (200 | 202, _) => Ok(()),
        (status, body) => Err(format!("the switchover was answered with {status}: {body}").into()),
    }
}

/// Deletes the entry about the synchronous standby from etcd. Its key is `/service/fsm/sync`, in base64.
pub fn forget_synchronous(etcd: u16) -> Result<(), Failure> {
    match request(etcd, "POST", "/v3/kv/deleterange", "{\"key\": \"L3NlcnZpY2UvZnNtL3N5bmM=\"}", LIMIT)? {
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
