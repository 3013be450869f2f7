//! [`SessionState`]: which message a daemon may send next in a session, as drawn in
//! [`daemon_protocol`].

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use daemon_protocol::{FromDaemon, OUTPUT_WINDOW};

use crate::connection::ConnectionError;

/// Bytes in flight between a controller and a process.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    /// Output received and not printed yet.
    unprinted: AtomicUsize,
    /// Input sent, but not acknowledged as taken by the process.
    untaken: AtomicUsize,
}

impl Windows {
    /// Notes that input is about to be sent.
    pub(crate) fn sends_input(&self, bytes: usize) {
        self.untaken.fetch_add(bytes, Relaxed);
    }

    /// Notes that output was printed, before that is acknowledged.
    pub(crate) fn has_printed(&self, bytes: usize) {
        self.unprinted.fetch_sub(bytes, Relaxed);
    }
}

/// The progress of a daemon with a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Requested,
    Sending,
    Prepared,
    Started,
    Ended,
}

/// Checks the messages of one daemon in one session.
#[derive(Debug)]
pub(crate) struct SessionState {
    stage: Stage,
    windows: Arc<Windows>,
}

impl SessionState {
    pub(crate) fn new(windows: Arc<Windows>) -> Self {
        Self { stage: Stage::Requested, windows }
    }

    /// Returns the message if the daemon may send it now.
    ///
    /// # Errors
    /// [`ConnectionError::Violation`], after which the daemon is not trusted any more.
    pub(crate) fn check(&mut self, message: FromDaemon) -> Result<FromDaemon, ConnectionError> {
        use Stage::{Ended, Prepared, Requested, Sending, Started};
        let (is_in_turn, next) = match &message {
            FromDaemon::Heartbeat => (true, self.stage),
            FromDaemon::SendProgram => (self.stage == Requested, Sending),
            FromDaemon::Prepared { .. } => (self.stage < Prepared, Prepared),
            FromDaemon::Started { .. } => (self.stage == Prepared, Started),
            FromDaemon::Refused(_) => (self.stage < Started, Ended),
            FromDaemon::Ended(_) => (self.stage == Started, Ended),
            FromDaemon::Output(..) | FromDaemon::Taken(_) => (self.stage >= Started, self.stage),
        };
        if !is_in_turn {
            let text = format!("{} after {:?}", kind(&message), self.stage);
            return Err(ConnectionError::Violation(text));
        }
        self.stage = next;
        match &message {
            FromDaemon::Output(_, bytes) => self.takes_output(bytes.len())?,
            FromDaemon::Taken(bytes) => self.input_was_taken(*bytes as usize)?,
            _ => {}
        }
        Ok(message)
    }

    fn takes_output(&self, bytes: usize) -> Result<(), ConnectionError> {
        let unprinted = self.windows.unprinted.fetch_add(bytes, Relaxed) + bytes;
        // Messages without output would use memory without using the window.
        if bytes > 0 && unprinted <= OUTPUT_WINDOW {
            return Ok(());
        }
        Err(ConnectionError::Violation(format!(
            "{bytes} bytes of output make {unprinted} unprinted bytes: at most {OUTPUT_WINDOW} are \
             allowed"
        )))
    }

    fn input_was_taken(&self, bytes: usize) -> Result<(), ConnectionError> {
        let less = |untaken: usize| untaken.checked_sub(bytes);
        match self.windows.untaken.fetch_update(Relaxed, Relaxed, less) {
            Ok(_) => Ok(()),
            Err(untaken) => Err(ConnectionError::Violation(format!(
                "{bytes} bytes of input acknowledged, but only {untaken} are outstanding"
            ))),
        }
    }
}

fn kind(message: &FromDaemon) -> &'static str {
    match message {
        FromDaemon::Refused(_) => "Refused",
        FromDaemon::SendProgram => "SendProgram",
        FromDaemon::Prepared { .. } => "Prepared",
        FromDaemon::Started { .. } => "Started",
        FromDaemon::Taken(_) => "Taken",
        FromDaemon::Output(..) => "Output",
        FromDaemon::Ended(_) => "Ended",
        FromDaemon::Heartbeat => "Heartbeat",
    }
}

#[cfg(test)]
mod tests {
    use daemon_protocol::{Ending, How, Stream};

    use super::*;

    fn prepared() -> FromDaemon {
        FromDaemon::Prepared { address: ([127, 0, 0, 1], 1).into(), owns_cores: false }
    }

    fn output(bytes: usize) -> FromDaemon {
        FromDaemon::Output(Stream::Out, vec![b'x'; bytes])
    }

    fn ended() -> FromDaemon {
        let how = How::Exited(0);
        FromDaemon::Ended(Ending { how, ended_by: None, panic: None, last_lines: vec![] })
    }

    /// The violation by the last of `messages`; those before it must be allowed.
    fn wrong(messages: &[FromDaemon]) -> Option<String> {
        let mut state = SessionState::new(Arc::default());
        let (last, before) = messages.split_last().unwrap();
        before.iter().for_each(|message| drop(state.check(message.clone()).unwrap()));
        state.check(last.clone()).err().map(|error| error.to_string())
    }

    #[test]
    fn a_process_from_its_program_to_its_last_output_is_fine() {
        let started = FromDaemon::Started { pid: 1 };
        let all = [
            FromDaemon::SendProgram,
            prepared(),
            FromDaemon::Heartbeat,
            started,
            output(1),
            ended(),
            output(1),
        ];
        assert_eq!(wrong(&all), None);
        assert_eq!(wrong(&[prepared(), FromDaemon::Refused("no".into())]), None);
    }

    #[test]
    fn what_is_out_of_turn_is_a_violation() {
        let started = FromDaemon::Started { pid: 1 };
        let refused = FromDaemon::Refused("no".into());
        for (messages, expected) in [
            (vec![FromDaemon::SendProgram, FromDaemon::SendProgram], "SendProgram after Sending"),
            (vec![prepared(), FromDaemon::SendProgram], "SendProgram after Prepared"),
            (vec![prepared(), prepared()], "Prepared after Prepared"),
            (vec![started.clone()], "Started after Requested"),
            (vec![prepared(), output(1)], "Output after Prepared"),
            (vec![prepared(), started.clone(), refused.clone()], "Refused after Started"),
            (vec![refused.clone(), refused], "Refused after Ended"),
            (vec![prepared(), started, ended(), ended()], "Ended after Ended"),
        ] {
            assert_eq!(wrong(&messages), Some(format!("protocol violation: {expected}")));
        }
    }

    #[test]
    fn output_keeps_to_its_window() {
        let windows = Arc::new(Windows::default());
        let mut state = SessionState { stage: Stage::Started, windows: windows.clone() };
        state.check(output(OUTPUT_WINDOW)).unwrap();
        windows.has_printed(10);
        state.check(output(10)).unwrap();
        let error = state.check(output(1)).unwrap_err().to_string();
        assert!(error.contains("make 1048577 unprinted bytes"), "{error}");
        let mut state = SessionState { stage: Stage::Started, windows: Arc::default() };
        assert!(state.check(output(0)).is_err(), "it would cost memory and no window");
    }

    #[test]
    fn only_input_that_was_sent_is_taken() {
        let windows = Arc::new(Windows::default());
        let mut state = SessionState { stage: Stage::Started, windows: windows.clone() };
        windows.sends_input(10);
        state.check(FromDaemon::Taken(4)).unwrap();
        let error = state.check(FromDaemon::Taken(7)).unwrap_err().to_string();
        assert!(
            error.contains("7 bytes of input acknowledged, but only 6 are outstanding"),
            "{error}"
        );
    }
}
