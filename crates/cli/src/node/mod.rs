//! `hinterland node`: lends this machine's memory, and is listed in a pool. Its subcommands ask nodes and pools.

mod client;
mod default_url;
mod drain_and_exit;
mod http;
mod list;
mod log;
mod metrics;
mod progress;
mod register;
mod renewal;
mod serve;
mod status;

use crate::config::flags::{Credentials, Flags};
use crate::error::{EXIT_REFUSED, complain};
use clap::{Args, Subcommand, ValueEnum};
pub use client::{addresses, chosen, resolved};
use hinterland_abi::{parse_switch, variables};
use hinterland_tls::{CredentialError, Sources};
use hinterland_units::whole_number;
use hinterland_wire::Protection;
use std::path::PathBuf;
use std::process::ExitCode;

/// `hinterland node`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = EXAMPLES)]
pub struct NodeArgs {
    #[command(subcommand)]
    command: Option<NodeCommand>,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Subcommand)]
enum NodeCommand {
    /// Show the nodes of a pool that is kept in etcd.
    List(ListArgs),
    /// Show how much a node lends, to whom, and what it has done.
    Status(StatusArgs),
    /// Empty a node: it leases no more memory, and programs that have other nodes with room move their pages there.
    Drain(DrainArgs),
    /// Have a node lend more or less. What is leased above that moves to other nodes, as with drain.
    Resize(ResizeArgs),
}

/// What a node lends, and where it listens.
#[derive(Args)]
pub struct ServeArgs {
    /// Memory to lend, in whole slabs of 2 MiB: a size (16G)
    #[arg(long, value_name = "SIZE", required = true)]
    capacity: Option<String>,
    /// Most that one client may keep: with certificates, all programs that show the same one; else a program and the children that it
    /// forks. Default: the capacity
    #[arg(long, value_name = "SIZE")]
    quota: Option<String>,
    /// Rate of the link to the programs, such as 10Gb/s: replies take turns on it, each tenant's and each program's with equal parts, and of each the
    /// most urgent first. Default: the kernel sends replies in order of arrival
    #[arg(long, value_name = "RATE", value_parser = link_rate)]
    link: Option<u64>,
    /// Where to listen: a socket for programs of the same user and of root, unix:/PATH; with --tls or --key-file any address,
    /// tcp://ADDRESS:PORT (port 0 takes a free one). A service manager's socket is taken when it hands one over (LISTEN_FDS).
    /// Default: unix:/run/hinterland.sock for root, unix:$XDG_RUNTIME_DIR/hinterland.sock for others
    #[arg(long, value_name = "URL")]
    listen: Option<String>,
    #[command(flatten)]
    identity: Identity,
    /// The CA that has signed the programs' certificates: --tls-ca by another name
    #[arg(long, value_name = "CA", conflicts_with = "tls-ca")]
    clients: Option<String>,
    /// Certificates whose holders may drain and resize the node, a PEM file; with --tls. Default: the node's own certificate alone
    #[arg(long, value_name = "FILE")]
    operators: Option<PathBuf>,
    /// List the node in etcd, so that programs find it by the pool's name: etcd://HOST:PORT/POOL, or etcds:// with the
    /// certificates of --tls
    #[arg(long, value_name = "URL")]
    register: Option<String>,
    /// Where programs find the node, when that is not where it listens: tcp://HOST:PORT; with --register
    #[arg(long, value_name = "URL", requires = "register")]
    advertise: Option<String>,
    /// Answer /metrics (Prometheus) and /healthz here: HOST:PORT, or a port on loopback. Plain HTTP without authentication, with
    /// the names of sessions
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// Seconds for which SIGTERM and SIGINT first drain the node, where programs can move pages to other nodes; a second signal ends it at
    /// once. 0: never
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = whole_number::<u16>(..=u64::from(u16::MAX), "--drain-seconds 20"))]
    drain_seconds: u16,
    /// How to write the log, on standard error
    #[arg(long, alias = "log", value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
    /// Log every connection and refusal
    #[arg(long, short)]
    verbose: bool,
}

fn link_rate(written: &str) -> Result<u64, String> {
    hinterland_backend::bandwidth(written).map_err(|error| error.to_string())
}

impl ServeArgs {
    /// What proves who the node is, and who programs are.
    fn identity(&self) -> Identity {
        Identity { flags: self.identity.flags.clone().or(variables::TLS_CA, self.clients.as_deref()) }
    }
}

/// How node and program prove to each other who they are.
#[derive(Args, Clone, Default)]
pub struct Identity {
    #[command(flatten)]
    flags: Flags<Credentials>,
}

impl Identity {
    /// What keeps others from a connection.
    fn protection(&self, has_credentials: bool) -> Protection {
        Protection::of(has_credentials, self.is_insecure_loopback())
    }

    /// Whether loopback addresses will do without credentials: by flag or variable.
    fn is_insecure_loopback(&self) -> bool {
        let by_variable =
            || std::env::var(variables::INSECURE_LOOPBACK).is_ok_and(|value| parse_switch(&value).unwrap_or(false));
        !self.flags.values(variables::INSECURE_LOOPBACK).is_empty() || by_variable()
    }

    /// The files that are named.
    fn sources(&self) -> Result<Option<Sources>, CredentialError> {
        let text = |variable| self.flags.value(variable).unwrap_or_default();
        Sources::new(text(variables::TLS), text(variables::TLS_CA), text(variables::KEY_FILE))
    }
}

/// How the log looks.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// Text.
    Text,
    /// One JSON object for each line.
    Json,
}

#[derive(Args)]
#[command(after_help = LIST_EXAMPLES)]
struct ListArgs {
    /// The pool: etcd://HOST:PORT/POOL
    #[arg(value_name = "URL")]
    pool: String,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    identity: Identity,
}

#[derive(Args)]
#[command(after_help = STATUS_EXAMPLES)]
struct StatusArgs {
    /// The node. Default: as for a node's --listen
    #[arg(value_name = "URL")]
    node: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Again every second, until it is interrupted
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    identity: Identity,
}

#[derive(Args)]
#[command(after_help = DRAIN_EXAMPLES)]
struct DrainArgs {
    /// The node. Default: as for a node's --listen
    #[arg(value_name = "URL")]
    node: Option<String>,
    /// Lease memory again
    #[arg(long)]
    end: bool,
    /// Wait until it is empty, and show what is still to move
    #[arg(long, conflicts_with = "end")]
    wait: bool,
    #[command(flatten)]
    identity: Identity,
}

#[derive(Args)]
#[command(after_help = RESIZE_EXAMPLES)]
struct ResizeArgs {
    /// The node
    #[arg(value_name = "URL")]
    node: String,
    /// What it lends from now on, in whole slabs of 2 MiB: a size (8G)
    #[arg(value_name = "SIZE")]
    capacity: String,
    /// Wait until no more is leased than that, and show what is still to move
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    identity: Identity,
}

const EXAMPLES: &str = "\
Examples:
  hinterland node --capacity 16G
  hinterland node --capacity 16G --quota 4G --listen unix:/run/user/1000/far.sock --log-format json
  hinterland node --capacity 16G --metrics 9440
  hinterland node status
  hinterland node drain unix:/run/user/1000/far.sock --wait
  hinterland node resize unix:/run/user/1000/far.sock 8G
  hinterland node --capacity 16G --listen tcp://0.0.0.0:7440 --key-file far.key
  hinterland node --capacity 16G --listen tcp://0.0.0.0:7440 --tls node.pem,node.key --clients clients-ca.pem --operators ops.pem
  hinterland node status tcp://10.0.0.7:7440 --key-file far.key
  hinterland node --capacity 16G --listen tcp://0.0.0.0:7440 --advertise tcp://node-7:7440 --key-file far.key --register etcd://etcd-1:2379/pool
  hinterland node list etcd://127.0.0.1:2379/pool

Without --tls or --key-file a node listens on sockets only: by TCP any user of this machine could connect, and could listen in its place \
once it has ended; --insecure-loopback allows loopback addresses all the same. A key file:
(umask 077; head -c 32 /dev/urandom > far.key). Certificates, keys and operators are read again when their files change, and at once on \
SIGHUP. SIGTERM and SIGINT end the node: where programs have other nodes with room, it drains first (--drain-seconds). Programs that \
still use it end with a message.

Exit code: 0 after an orderly end, 125 when the node cannot be started or asked (the message says why).";

const LIST_EXAMPLES: &str = "\
Examples:
  hinterland node list etcd://127.0.0.1:2379/pool
  hinterland node list etcd://127.0.0.1:2379/pool --json | jq '.nodes[].member.node'
  hinterland node list etcds://etcd-1:2379/pool --tls ops.pem,ops.key --tls-ca ca.pem

Exit code: 0, also when no node is listed; 125 when the pool cannot be asked (the message says why).";

const STATUS_EXAMPLES: &str = "\
Examples:
  hinterland node status
  hinterland node status unix:/run/user/1000/far.sock --watch
  hinterland node status tcp://10.0.0.7:7440 --key-file far.key --json | jq .removable

Exit code: 0, or 125 when the node cannot be asked (the message says why).";

const DRAIN_EXAMPLES: &str = "\
Examples:
  hinterland node drain
  hinterland node drain unix:/run/user/1000/far.sock --wait
  hinterland node drain unix:/run/user/1000/far.sock --end
  hinterland node drain tcp://10.0.0.7:7440 --tls ops.pem,ops.key --tls-ca ca.pem

Pages of programs that know of no other node with room stay where they are, and the programs go on.

Exit code: 0 when the node is told, with --wait when it is empty; 125 when it cannot be asked or refuses (the message says why).";

const RESIZE_EXAMPLES: &str = "\
Examples:
  hinterland node resize unix:/run/user/1000/far.sock 8G
  hinterland node resize tcp://10.0.0.7:7440 8G --wait --key-file far.key

Exit code: 0 when the node is told, with --wait when no more is leased than that; 125 when it cannot be asked or refuses (the message says why).";

/// Why a node cannot be started or asked.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A flag.
    #[error("{flag}: {why}")]
    Flag {
        /// Which.
        flag: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// It cannot be started.
    #[error(transparent)]
    Start(#[from] hinterland_node::NodeError),
    /// The URL of a node.
    #[error(transparent)]
    Endpoint(#[from] hinterland_wire::EndpointError),
    /// The URL of a pool.
    #[error(transparent)]
    Directory(#[from] hinterland_wire::DirectoryError),
    /// The pool's list cannot be used.
    #[error(transparent)]
    Etcd(#[from] hinterland_etcd::EtcdError),
    /// What is to prove who we are.
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    /// The name of a node.
    #[error("the host name in {0} does not resolve")]
    Name(hinterland_wire::Endpoint),
    /// A service manager hands over more than is used.
    #[error("the service manager hands over {0} sockets; a node listens on one")]
    Sockets(usize),
    /// There is no default for this user.
    #[error(
        "XDG_RUNTIME_DIR names no directory for sockets; say where the node listens, for example --listen unix:/PATH or status unix:/PATH"
    )]
    NoUsualPlace,
    /// It cannot be asked.
    #[error("the node {node} cannot be asked: {why}")]
    Ask {
        /// Which.
        node: hinterland_wire::Endpoint,
        /// Why not.
        why: String,
    },
    /// Signals cannot be received, or the answer cannot be written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Runs the command.
pub fn run(args: &NodeArgs) -> ExitCode {
    let done = match &args.command {
        None => serve::run(&args.serve),
        Some(NodeCommand::List(list)) => list::run(&list.pool, &list.identity, list.json),
        Some(NodeCommand::Status(status)) => default_url::or_default(status.node.as_deref())
            .and_then(|node| status::run(&node, &status.identity, status.json, status.watch)),
        Some(NodeCommand::Drain(drain)) => default_url::or_default(drain.node.as_deref())
            .and_then(|node| progress::drain(&node, &drain.identity, !drain.end, drain.wait)),
        Some(NodeCommand::Resize(resize)) => {
            progress::resize(&resize.node, &resize.identity, &resize.capacity, resize.wait)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(EXIT_REFUSED)
        }
    }
}
