//! The signals that are sent to `gossamer run`: some end the job, others are its processes' affair.

use std::{io, task::Poll};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that are sent to the command.
pub(crate) struct Signals([(Asked, Signal); 5]);

/// What a signal asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    /// The end of the job.
    End(i32),
    /// Something that is the affair of its processes.
    Forward(i32),
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        let end =
            |kind: SignalKind| Ok::<_, io::Error>((Asked::End(kind.as_raw_value()), signal(kind)?));
        let forward = |kind: SignalKind| {
            Ok::<_, io::Error>((Asked::Forward(kind.as_raw_value()), signal(kind)?))
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
    pub(crate) async fn next(&mut self) -> Asked {
        std::future::poll_fn(|context| {
            let sent = self
                .0
                .iter_mut()
                .find_map(|(asked, signal)| signal.poll_recv(context).is_ready().then_some(*asked));
            sent.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// The next signal that asks for the end.
    pub(crate) async fn end(&mut self) -> i32 {
        loop {
            if let Asked::End(signal) = self.next().await {
                return signal;
            }
        }
    }
}
