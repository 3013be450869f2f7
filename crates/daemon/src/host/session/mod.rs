//! The daemon's side of [`Request::Run`](daemon_protocol::Request::Run): from the request to the
//! last byte of output (`supervise.rs`, once the process runs).
//!
//! Several tasks share a session: one receives the messages of the controller, one sends messages to
//! it, and one reads each output of the process. [`run`] and its callees decide. No task waits for a
//! controller that does not print or a process that does not read: data in flight to either is bounded
//! by a window, so the message that something has ended always gets through.

mod cleanup;
mod error;
mod peer;
mod prepare;
mod supervise;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use daemon_protocol::{FromDaemon, RunRequest};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use crate::causes::with_causes;
use crate::connection::{Receiver, Sender};
use crate::host::daemon::Daemon;
use crate::host::session::error::SessionError;
use crate::host::session::peer::{Session, receive_loop, send_loop};
use crate::host::state::State;
use crate::security::member::Member;

/// Messages of the controller that wait to be handled.
const QUEUE: usize = 16;

/// Runs a session: the process of `request`, from its preparation to its end.
pub(crate) async fn run<R, W>(
    daemon: &Arc<Daemon>,
    owner: &Member,
    request: RunRequest,
    receiver: Receiver<R>,
    sender: Sender<W>,
) where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (to_session, incoming) = mpsc::channel(QUEUE);
    let receiving = tokio::spawn(receive_loop(receiver, to_session));
    let (outgoing, queue) = mpsc::unbounded_channel();
    let sending = tokio::spawn(send_loop(sender, queue));
    let mut session = Session { daemon, request, incoming, outgoing };
    if let Err(error) = session.run(owner).await {
        let error = with_causes(&error).to_string();
        tracing::warn!(error, "did not run a process");
        let _ = session.outgoing.send(FromDaemon::Refused(error));
    }
    drop(session);
    // Ends when all is sent, or the controller reads nothing.
    let _ = sending.await;
    receiving.abort();
}

impl Session<'_> {
    /// Prepares the process, starts it and supervises it until its end.
    async fn run(&mut self, owner: &Member) -> Result<(), SessionError> {
        let admitted = self.daemon.jobs.admit(&self.request, &owner.name)?;
        self.check_limits()?;
        let program = self.program().await?;
        let address = self.daemon.config.data_address();
        let listener = std::net::TcpListener::bind((address, 0));
        let listener = listener.map_err(|error| SessionError::Listen(address, error))?;
        let address =
            listener.local_addr().map_err(|error| SessionError::Listen(address, error))?;
        self.send(FromDaemon::Prepared { address, owns_cores: self.owns_cores() });
        let description = self.description(&admitted.job).await?;

        let mark = format!("{}.{}", self.request.job, self.request.host);
        let work = self.on_disk(&mark, State::note).await.map_err(SessionError::Start)?;
        let cgroup = self.cgroup(&mark);
        let result = match cgroup {
            Err(error) => Err(error),
            Ok(cgroup) => {
                let started =
                    self.start(program, &work, &mark, &description, listener, cgroup.clone()).await;
                match started {
                    Ok(supervised) => {
                        self.daemon.counts.started.fetch_add(1, Relaxed);
                        let authority = description.signing;
                        self.supervise(supervised, &admitted, &mark, cgroup, authority).await;
                        Ok(())
                    }
                    Err(error) => {
                        self.kill_leftovers(&mark, cgroup).await;
                        Err(error)
                    }
                }
            }
        };
        let forget = |state: &State, mark: &str| {
            state.forget(mark);
            Ok(())
        };
        // It does not fail.
        let _ = self.on_disk(&mark, forget).await;
        self.daemon.sweep.notify_one();
        result
    }
}
