//! `kv serve`.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use gossamer_kv::fibers::run_blocking;
use gossamer_kv::server::rack::{FiberExecutor, RackShards};
use gossamer_kv::server::{Options, Server};

use crate::RackArgs;

#[derive(Args, Clone)]
pub(super) struct Serve {
    #[command(flatten)]
    rack: RackArgs,
    /// Port to listen on; 0 picks a free port
    #[arg(long, default_value_t = 11211)]
    port: u16,
    /// Address to listen on. The protocol has no authentication: every client that can connect can
    /// read and write all items
    #[arg(long, default_value = "127.0.0.1")]
    listen: IpAddr,
    /// Memory limit for items in MiB, over all hosts. Unsent responses use up to 64 MiB more on the
    /// serving host
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    memory: u32,
    /// Maximum number of open connections
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Close connections after this many seconds without traffic; 0 never closes them
    #[arg(long, default_value_t = 600)]
    idle_timeout: u32,
    /// Requests served concurrently, one fiber each
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=4096))]
    fibers: u64,
}

impl Serve {
    pub(super) fn run(self) -> ExitCode {
        self.rack.clone().run(move || self.main())
    }

    fn main(self) -> Result<(), String> {
        let address = SocketAddr::new(self.listen, self.port);
        let options = Options {
            connections_max: self.connections as usize,
            threads: gossamer::threads().count(),
            idle: (self.idle_timeout > 0).then(|| Duration::from_secs(self.idle_timeout.into())),
            ..Options::default()
        };
        let server = Server::bind(address, options)
            .map_err(|error| format!("cannot listen on {address}: {error}"))?;
        let address = server.local_address().map_err(|error| error.to_string())?;
        let shards = RackShards::new(self.memory as usize * (1 << 20));
        let executor = FiberExecutor::start(&shards, self.fibers);
        println!("kv: serving the memcached protocol on {address}");
        run_blocking(move || server.run(&executor))
            .map_err(|error| format!("the server stopped: {error}"))
    }
}
