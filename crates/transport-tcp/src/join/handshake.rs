//! [`Pending`]: a connection whose other side is not identified yet.
//!
//! ```text
//!   dialled:   Connecting --> Securing --> Speaking (hello)   --> Hearing (verdict) --> complete
//!   accepted:                 Securing --> Hearing (hello)    --> Speaking (verdict) --> complete
//! ```

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use gossamer_job::Tls;
use rustix::event::PollFlags;
use rustix::net::sockopt;
use transport_api::HostId;
use transport_control::Violation;

use crate::join::hello::{ConnectionKind, HELLO, Hello, VERDICT, Verdict};
use crate::wire::{Wire, WireError};

/// Which side of it this process is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Dialled(HostId, ConnectionKind),
    Accepted(SocketAddr),
}

enum Step {
    Connecting,
    Securing,
    Speaking { said: usize },
    Hearing { heard: Box<[u8]>, have: usize },
}

/// Why a pending connection failed.
pub(crate) enum Failure {
    /// One side refused it, and sent the reason to the other.
    Refused(String),
    /// The connection failed.
    Broken(WireError),
}

impl From<WireError> for Failure {
    fn from(broken: WireError) -> Self {
        Failure::Broken(broken)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Broken(error.into())
    }
}

/// A connection whose other side is not identified yet.
pub(crate) struct Pending {
    pub(crate) role: Role,
    pub(crate) since: Instant,
    wire: Wire,
    step: Step,
    /// What this side sends: the hello, or the verdict once there is one.
    words: Vec<u8>,
    /// Which host dialled an accepted connection, and why it is refused, if it is.
    found: Option<(HostId, ConnectionKind)>,
    refusal: Option<String>,
}

impl Pending {
    pub(crate) fn dialled(wire: Wire, peer: HostId, hello: &Hello, now: Instant) -> Self {
        let role = Role::Dialled(peer, hello.kind);
        let words = hello.encode().to_vec();
        Self { role, since: now, wire, step: Step::Connecting, words, found: None, refusal: None }
    }

    pub(crate) fn accepted(wire: Wire, from: SocketAddr, now: Instant) -> Self {
        let (role, words) = (Role::Accepted(from), Vec::new());
        Self { role, since: now, wire, step: Step::Securing, words, found: None, refusal: None }
    }

    /// Whether this side has begun to identify itself, on a connection that it dialled. The other may
    /// read that at any later time and assign the place, also if this side has hung up by then.
    pub(crate) fn has_identified_itself(&self) -> bool {
        let says = matches!(self.step, Step::Speaking { .. } | Step::Hearing { .. });
        matches!(self.role, Role::Dialled(..)) && says
    }

    /// What it waits for.
    pub(crate) fn waits_for(&self) -> PollFlags {
        match self.step {
            Step::Connecting | Step::Speaking { .. } => PollFlags::OUT,
            Step::Securing if self.wire.tls().is_some_and(|tls| tls.wants_write()) => {
                PollFlags::IN | PollFlags::OUT
            }
            Step::Securing | Step::Hearing { .. } => PollFlags::IN,
        }
    }

    /// Goes on as far as possible; returns which host and kind it is for, once that is settled. `judge`
    /// checks the hello of an accepted connection and returns why it is refused, if it is.
    pub(crate) fn advance(
        &mut self,
        tls: Option<&Tls>,
        judge: &mut dyn FnMut(&Hello) -> Option<String>,
    ) -> Result<Option<(HostId, ConnectionKind)>, Failure> {
        let is_dialled = matches!(self.role, Role::Dialled(..));
        loop {
            match &mut self.step {
                Step::Connecting => {
                    sockopt::socket_error(&self.wire)
                        .and_then(|error| error)
                        .map_err(io::Error::from)?;
                    self.step = Step::Securing;
                }
                Step::Securing => {
                    if !self.wire.handshake()? {
                        return Ok(None);
                    }
                    self.step =
                        if is_dialled { Step::Speaking { said: 0 } } else { hearing(HELLO) };
                }
                Step::Speaking { said } => {
                    while *said < self.words.len() {
                        let count = self.wire.send(&self.words[*said..])?;
                        *said += count;
                        if !self.wire.flush()? || count == 0 {
                            return Ok(None);
                        }
                    }
                    if !self.wire.flush()? {
                        return Ok(None);
                    }
                    if !is_dialled {
                        return match self.refusal.clone() {
                            Some(why) => Err(Failure::Refused(why)),
                            None => Ok(self.found),
                        };
                    }
                    self.step = hearing(VERDICT);
                }
                Step::Hearing { heard, have } => {
                    if !self.wire.read_exactly(heard, have)? {
                        return Ok(None);
                    }
                    if let Role::Dialled(host, kind) = self.role {
                        return verdict(heard).map(|()| Some((host, kind)));
                    }
                    let hello = heard.first_chunk().and_then(Hello::decode);
                    let hello = hello.ok_or_else(|| {
                        Failure::Refused("it does not speak the protocol of a rack".into())
                    })?;
                    let secured = self.wire.tls().zip(tls);
                    let why = secured.and_then(|(wire, tls)| tls.objection(wire, hello.from));
                    let why = why.or_else(|| judge(&hello));
                    self.found = Some((hello.from, hello.kind));
                    self.words =
                        why.clone().map_or(Verdict::Welcome, Verdict::Refused).encode().into();
                    self.refusal = why;
                    self.step = Step::Speaking { said: 0 };
                }
            }
        }
    }

    /// The place that it was welcomed to, if it was.
    pub(crate) fn welcomed(&self) -> Option<(HostId, ConnectionKind)> {
        self.found.filter(|_| self.refusal.is_none())
    }

    pub(crate) fn into_wire(self) -> Wire {
        self.wire
    }
}

impl AsFd for Pending {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}

fn hearing(bytes: usize) -> Step {
    Step::Hearing { heard: vec![0; bytes].into(), have: 0 }
}

fn verdict(heard: &[u8]) -> Result<(), Failure> {
    match heard.first_chunk().and_then(Verdict::decode) {
        Some(Verdict::Welcome) => Ok(()),
        Some(Verdict::Refused(why)) => Err(Failure::Refused(why)),
        None => Err(WireError::Violation(Violation::new("an answer that is no verdict")).into()),
    }
}
