//! The settings of etcd, Patroni and haproxy.

use std::path::Path;

use crate::Failure;

/// The number of servers.
pub const NODES: usize = 3;

/// The ports of a node.
pub struct Node {
    pub postgres: u16,
    pub rest: u16,
    pub etcd: u16,
    etcd_peers: u16,
}

/// The ports of the cluster.
pub struct Ports {
    pub nodes: Vec<Node>,
    pub proxy: u16,
}

impl Ports {
    pub fn free(port: impl Fn() -> Result<u16, Failure>) -> Result<Ports, Failure> {
        let node = |_| Ok(Node { postgres: port()?, rest: port()?, etcd: port()?, etcd_peers: port()? });
        Ok(Ports { nodes: (0..NODES).map(node).collect::<Result<_, Failure>>()?, proxy: port()? })
    }

    /// The arguments of an etcd member.
    pub fn etcd(&self, node: usize, folder: &Path) -> Vec<String> {
        let peers = |node: usize| format!("http://127.0.0.1:{}", self.nodes[node].etcd_peers);
        let clients = format!("http://127.0.0.1:{}", self.nodes[node].etcd);
        let all: Vec<String> = (0..NODES).map(|node| format!("etcd{node}={}", peers(node))).collect();
        let pairs = [
            ("--name", format!("etcd{node}")),
            ("--data-dir", folder.join(format!("etcd{node}")).display().to_string()),
            ("--listen-client-urls", clients.clone()),
            ("--advertise-client-urls", clients),
            ("--listen-peer-urls", peers(node)),
            ("--initial-advertise-peer-urls", peers(node)),
            ("--initial-cluster", all.join(",")),
            ("--initial-cluster-state", "new".into()),
            ("--heartbeat-interval", "200".into()),
            ("--election-timeout", "2000".into()),
            ("--logger", "zap".into()),
            ("--log-level", "warn".into()),
        ];
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }

    /// A node's `patroni.yml`. The time to live is at least the loop's wait and two retry timeouts. A crashed leader is replaced at once. A
    /// commit waits for a standby, so that a failover loses no acknowledged commit.
    pub fn patroni(&self, node: usize, folder: &Path, programs: &Path) -> String {
        let etcd: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.etcd)).collect();
        let Node { postgres, rest, .. } = &self.nodes[node];
        format!(
            "\
scope: fsm
name: node{node}
restapi: {{ listen: 127.0.0.1:{rest}, connect_address: 127.0.0.1:{rest} }}
etcd3: {{ hosts: \"{etcd}\" }}
bootstrap:
  dcs:
    ttl: 5
    loop_wait: 1
    retry_timeout: 2
    maximum_lag_on_failover: 1048576
    master_start_timeout: 0
    synchronous_mode: true
    synchronous_mode_strict: true
    synchronous_node_count: 1
    postgresql:
      use_pg_rewind: true
      use_slots: true
      parameters: {{ max_connections: 300, max_wal_senders: 8, wal_keep_size: 64MB, wal_log_hints: \"on\", max_wal_size: 256MB }}
  initdb: [ {{ encoding: UTF8 }}, {{ locale: C.UTF-8 }}, data-checksums ]
postgresql:
  listen: 127.0.0.1:{postgres}
  connect_address: 127.0.0.1:{postgres}
  bin_dir: {programs}
  data_dir: {folder}/data{node}
  pgpass: {folder}/pgpass{node}
  authentication: {{ superuser: {{ username: postgres }}, replication: {{ username: postgres }}, rewind: {{ username: postgres }} }}
  pg_hba: [ \"local all all trust\", \"host all all 127.0.0.1/32 trust\", \"host replication all 127.0.0.1/32 trust\" ]
  parameters:
    unix_socket_directories: {folder}
    shared_buffers: 32MB
    synchronous_commit: \"on\"
    wal_receiver_status_interval: 1s
    wal_retrieve_retry_interval: 500ms
watchdog: {{ mode: \"off\" }}
tags: {{ nofailover: false, noloadbalance: false, clonefrom: false, nosync: false }}
",
            etcd = etcd.join(","),
            programs = programs.display(),
            folder = folder.display(),
        )
    }

    /// `haproxy.cfg`: forwards to the node whose Patroni reports that it is the leader.
    pub fn haproxy(&self) -> String {
        let servers: String = (self.nodes.iter().enumerate())
            .map(|(node, ports)| format!("  server node{node} 127.0.0.1:{} check port {}\n", ports.postgres, ports.rest))
            .collect();
        format!(
            "\
global
  maxconn 500
defaults
  mode tcp
  timeout connect 1s
  timeout client 30m
  timeout server 30m
  timeout check 1s
listen primary
  bind 127.0.0.1:{}
  option httpchk OPTIONS /primary
  http-check expect status 200
  default-server inter 500ms fastinter 200ms fall 2 rise 1 on-marked-down shutdown-sessions
{servers}",
            self.proxy
        )
    }
}
