//! tarpc over TCP with bincode, as its documentation sets it up: every request is a task.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use ::tarpc::server::{BaseChannel, Channel};
use ::tarpc::tokio_serde::formats::Bincode;
use ::tarpc::{client, context, serde_transport};
use bench_kit::roles::{Lifeline, Role};
use futures::StreamExt;
use tokio::net::{TcpListener, TcpStream};

use super::RpcClient;

#[::tarpc::service]
trait Adder {
    /// Adds to the sum, and returns it.
    async fn add(addend: u64) -> u64;
}

/// The process that answers.
pub(crate) const SERVER: Role = Role { name: "tarpc-server", run: serve };

/// A client; clones share its connection.
#[derive(Clone)]
pub(crate) struct Client(AdderClient);

impl RpcClient for Client {
    const SERVER: Role = SERVER;

    async fn connect(to: SocketAddr) -> Result<Client, String> {
        let socket = TcpStream::connect(to).await.map_err(|e| e.to_string())?;
        socket.set_nodelay(true).map_err(|e| e.to_string())?;
        let transport = serde_transport::Transport::from((socket, Bincode::default()));
        Ok(Client(AdderClient::new(client::Config::default(), transport).spawn()))
    }

    async fn ask(&mut self, addend: u64) -> Result<u64, String> {
        self.0.add(context::current(), addend).await.map_err(|e| e.to_string())
    }
}

#[derive(Clone, Default)]
struct Sum(Arc<AtomicU64>);

impl Adder for Sum {
    async fn add(self, _: context::Context, addend: u64) -> u64 {
        self.0.fetch_add(addend, Relaxed) + addend
    }
}

fn serve(line: Lifeline) -> ExitCode {
    super::serve(&line, |listener: TcpListener| async move {
        let (socket, _) = listener.accept().await.map_err(|e| e.to_string())?;
        socket.set_nodelay(true).map_err(|e| e.to_string())?;
        let transport = serde_transport::Transport::from((socket, Bincode::default()));
        let requests = BaseChannel::with_defaults(transport).execute(Sum::default().serve());
        requests.for_each(|request| async { drop(tokio::spawn(request)) }).await;
        Ok(())
    })
}
