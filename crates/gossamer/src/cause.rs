//! Which loss to report when one host's end follows from another's.
//!
//! One killed process ends others: a host that loses it while the rack starts fails, leaves the
//! rack and exits. Host 0 may notice that exit first. Two sources show which process failed first:
//!
//! 1. The transport: a host that failed because of another says goodbye, the other does not
//!    ([`of_wiring`]). This works for every transport.
//! 2. The exit status of the processes that host 0 started itself: one that a signal ended is the
//!    cause ([`of_failure`]).

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use transport_api::{Event, HostId, LossReason, PeerEvent, RegionError, Transport};
use trust_core::WiringError;

use crate::RackError;

/// Time after the end of one host in which the loss of another counts as its cause: host 0 sees a
/// closed connection at once, other losses only when the process has ended.
pub(crate) const WAIT: Duration = Duration::from_millis(200);

/// Time between two checks.
const LOOK: Duration = Duration::from_millis(1);

/// The error to report when sharing slots failed with `error`: if a host left, the loss of another
/// that made it leave, should one be noticed within [`WAIT`].
///
/// The transport must not have lanes of thread 0 open.
pub(crate) fn of_wiring(transport: &dyn Transport, error: WiringError) -> WiringError {
    if lost_in(&error).is_none() {
        return error;
    }
    let others = (0..transport.hosts()).map(HostId).filter(|host| *host != transport.local());
    let mut lanes: Vec<_> = others.filter_map(|host| transport.lane(0, host).ok()).collect();
    let deadline = Instant::now() + WAIT;
    loop {
        let mut lost = None;
        for lane in &mut lanes {
            lane.poll(&mut |event| {
                if let Event::Peer(PeerEvent::Lost(host, reason)) = event {
                    lost.get_or_insert((host, reason));
                }
            });
        }
        if let Some((host, reason)) = lost {
            return RegionError::PeerLost(host, reason).into();
        }
        if Instant::now() >= deadline {
            return error;
        }
        thread::sleep(LOOK);
    }
}

/// The host whose end is the reason of `error`.
fn lost_in(error: &WiringError) -> Option<HostId> {
    match error {
        WiringError::Region(RegionError::PeerLost(host, _)) => Some(*host),
        _ => None,
    }
}

/// The error to report when the rack of host 0 and `children`, the processes of hosts 1 and up,
/// failed with `error`: if a host is lost, the child that was ended by a signal, should one be
/// found within [`WAIT`].
pub(crate) fn of_failure(error: RackError, children: &mut [Child]) -> RackError {
    let is_loss = match &error {
        RackError::PeerLost { .. } => true,
        RackError::Wiring(error) => lost_in(error).is_some(),
        _ => false,
    };
    if !is_loss {
        return error;
    }
    let deadline = Instant::now() + WAIT;
    loop {
        let mut some_run = false;
        for (host, child) in (1..).map(HostId).zip(&mut *children) {
            match child.try_wait() {
                Ok(Some(status)) => {
                    if let Some(how) = signal(status) {
                        let reason = LossReason::ProcessEnded { pid: child.id(), how };
                        return RackError::PeerLost { host, reason };
                    }
                }
                Ok(None) => some_run = true,
                Err(_) => {}
            }
        }
        if !some_run || Instant::now() >= deadline {
            return error;
        }
        thread::sleep(LOOK);
    }
}

/// The signal that ended a process, in words, if one did.
fn signal(status: ExitStatus) -> Option<String> {
    status.signal().map(|_| status.to_string().replacen("signal: ", "signal ", 1))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    struct Children(Vec<Child>);

    impl Drop for Children {
        fn drop(&mut self) {
            for child in &mut self.0 {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }

    /// Children that run these scripts.
    fn children(scripts: &[&str]) -> Children {
        let start = |script: &&str| Command::new("sh").args(["-c", script]).spawn().expect("sh");
        Children(scripts.iter().map(start).collect())
    }

    fn left(host: u32) -> RackError {
        let host = HostId(host);
        RackError::PeerLost { host, reason: PeerEvent::Left(host).reason() }
    }

    #[test]
    fn a_child_ended_by_a_signal_is_the_cause() {
        let mut started = children(&["exit 1", "sleep 60", "kill -KILL $$"]);
        let pid = started.0[2].id();
        let error = of_failure(left(1), &mut started.0);
        let expected =
            format!("host 3 was lost and the rack ended: process {pid} exited (signal 9");
        let printed = format!("{error:?}");
        assert!(printed.starts_with(&expected) && printed.contains("SIGKILL"), "{printed}");
    }

    #[test]
    fn without_a_signal_the_error_stays() {
        let error = of_failure(left(1), &mut children(&["exit 1", "sleep 60"]).0);
        assert!(matches!(error, RackError::PeerLost { host: HostId(1), .. }), "{error}");
    }

    #[test]
    fn an_error_that_is_no_loss_stays() {
        let mut started = children(&["kill -KILL $$"]);
        started.0[0].wait().expect("an exit");
        let error = of_failure(RackError::Leaked(vec!["u64".into()]), &mut started.0);
        assert!(matches!(error, RackError::Leaked(_)), "{error}");
    }
}
