//! The daemon's side of [`Request::Run`](crate::protocol::Request::Run): from the request to the
//! last byte of output (`supervise.rs`, once the process runs).
//!
//! Some tasks share a session. One reads what the controller says, one writes what is sent to
//! it, one for each of the process's outputs reads that. [`run`] and what it calls decide. None of
//! them waits for a controller that does not print or a process that does not read: what is on its
//! way to either is bounded by a window, and so the word that something has ended always gets
//! through.

mod cleanup;
mod error;
mod peer;
mod prepare;
mod supervise;

use crate::causes::with_causes;
use crate::host::session::{
    error::SessionError,
    peer::{Session, listen, speak},
};
use crate::{
    host::{daemon::Daemon, state::State},
    protocol::{
        FromDaemon, RunRequest,
        connection::{Receiver, Sender},
    },
    security::member::Member,
};
use std::sync::{Arc, atomic::Ordering::Relaxed};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
};

/// Messages of the controller that wait for being acted on.
const QUEUE: usize = 16;

/// Runs a process as `request` says.
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
    let (said, hears) = mpsc::channel(QUEUE);
    let listening = tokio::spawn(listen(receiver, said));
    let (tell, told) = mpsc::unbounded_channel();
    let speaking = tokio::spawn(speak(sender, told));
    let mut session = Session { daemon, request, hears, tell };
    if let Err(error) = session.hold(owner).await {
        let error = with_causes(&error).to_string();
        tracing::warn!(error, "did not run a process");
        let _ = session.tell.send(FromDaemon::Refused(error));
    }
    drop(session);
    // Ends when all is sent, or nobody takes it.
    let _ = speaking.await;
    listening.abort();
}

impl Session<'_> {
    async fn hold(&mut self, owner: &Member) -> Result<(), SessionError> {
        let admitted = self.daemon.jobs.admit(&self.request, &owner.name)?;
        self.check_limits()?;
        let program = self.program().await?;
        let address = self.daemon.config.data_address();
        let listener = std::net::TcpListener::bind((address, 0));
        let listener = listener.map_err(|error| SessionError::Listen(address, error))?;
        let address =
            listener.local_addr().map_err(|error| SessionError::Listen(address, error))?;
        self.say(FromDaemon::Prepared { address, owns_cores: self.owns_cores() });
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
                        self.supervise(supervised, &admitted, &mark, cgroup).await;
                        Ok(())
                    }
                    Err(error) => {
                        self.end_what_is_left(&mark, cgroup).await;
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
