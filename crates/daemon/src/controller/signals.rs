//! The signals that are sent to `gossamer run`: some end the job, others are forwarded to its
//! processes.

use std::io;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that are sent to the command.
pub(crate) struct Signals([(Action, Signal); 5]);

/// The reaction to a signal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// End the job.
    End(i32),
    /// Forward it to the processes.
    Forward(i32),
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        let end = |kind: SignalKind| {
            Ok::<_, io::Error>((Action::End(kind.as_raw_value()), signal(kind)?))
        };
        let forward = |kind: SignalKind| {
            Ok::<_, io::Error>((Action::Forward(kind.as_raw_value()), signal(kind)?))
        };
        Ok(Self([
            end(SignalKind::interrupt())?,
            end(SignalKind::terminate())?,
            end(SignalKind::hangup())?,
            forward(SignalKind::user_defined1())?,
            forward(SignalKind::user_defined2())?,
        ]))
    }

    /// The next signal.
    pub(crate) async fn next(&mut self) -> Action {
        std::future::poll_fn(|context| {
            let sent = self.0.iter_mut().find_map(|(action, signal)| {
                signal.poll_recv(context).is_ready().then_some(*action)
            });
            sent.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// The next signal that ends the job.
    pub(crate) async fn end(&mut self) -> i32 {
        loop {
            if let Action::End(signal) = self.next().await {
                return signal;
            }
        }
    }
}
