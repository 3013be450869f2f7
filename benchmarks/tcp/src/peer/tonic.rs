//! tonic: gRPC over HTTP/2 with protocol buffers, unary calls on one connection.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use ::tonic::transport::server::TcpIncoming;
use ::tonic::transport::{Channel, Endpoint, Server};
use ::tonic::{Request, Response, Status, async_trait};
use bench_kit::roles::{Lifeline, Role};
use tokio::net::TcpListener;

use super::RpcClient;

/// What build.rs has made.
#[allow(missing_docs, unreachable_pub)]
mod generated {
    ::tonic::include_proto!("bench.Adder");
}

use generated::adder_client::AdderClient;
use generated::adder_server::{Adder, AdderServer};

/// A number on its way.
#[derive(Clone, Copy, PartialEq, ::prost::Message)]
pub(crate) struct Number {
    #[prost(uint64, tag = "1")]
    value: u64,
}

/// The process that answers.
pub(crate) const SERVER: Role = Role { name: "tonic-server", run: serve };

/// A client; clones share its connection.
#[derive(Clone)]
pub(crate) struct Client(AdderClient<Channel>);

impl RpcClient for Client {
    const SERVER: Role = SERVER;

    async fn connect(to: SocketAddr) -> Result<Client, String> {
        let endpoint = Endpoint::from_shared(format!("http://{to}")).map_err(|e| e.to_string())?;
        let channel = endpoint.tcp_nodelay(true).connect().await.map_err(|e| e.to_string())?;
        Ok(Client(AdderClient::new(channel)))
    }

    async fn ask(&mut self, addend: u64) -> Result<u64, String> {
        let answer = self.0.add(Number { value: addend }).await.map_err(|e| e.to_string())?;
        Ok(answer.into_inner().value)
    }
}

#[derive(Default)]
struct Sum(AtomicU64);

#[async_trait]
impl Adder for Sum {
    async fn add(&self, request: Request<Number>) -> Result<Response<Number>, Status> {
        let addend = request.into_inner().value;
        Ok(Response::new(Number { value: self.0.fetch_add(addend, Relaxed) + addend }))
    }
}

fn serve(line: Lifeline) -> ExitCode {
    super::serve(&line, |listener: TcpListener| async move {
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let server = Server::builder().add_service(AdderServer::new(Sum::default()));
        server.serve_with_incoming(incoming).await.map_err(|e| e.to_string())
    })
}
