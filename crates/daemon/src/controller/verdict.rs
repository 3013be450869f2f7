//! [`Verdict`]: the cause of a job's end, among the endings of its processes.
//!
//! When one process of a job fails the others end soon after, because they have lost a peer or because
//! the controller ends them. The reports come from many hosts, in no reliable order. A requested end
//! is not a cause. Among the others, the one that is least likely a consequence is the cause: first a
//! lost host, then a process killed by a signal, then an exit status chosen by the program, then a
//! panic, which the loss of a peer may cause, and last the exit status for the loss of a peer.

use std::fmt;

use daemon_protocol::{EndedBy, Ending, How};
use gossamer_job::JobId;

use crate::escape;

/// The exit status for a job that did not run, or whose host was lost.
pub const NO_JOB: u8 = 125;

/// The exit statuses for success, for an error of `main`, and for a panic.
const COMMON: [i32; 3] = [0, 1, 101];

/// How a process of a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its process has ended.
    Ended(Ending),
    /// Its daemon could not start the process.
    Refused(String),
    /// Its daemon was lost.
    Lost(String),
}

impl Outcome {
    /// Whether this ends the job.
    pub fn is_bad(&self) -> bool {
        match self {
            Self::Ended(ending) => ending.how != How::Exited(0) && ending.ended_by.is_none(),
            Self::Refused(_) | Self::Lost(_) => true,
        }
    }

    /// Whether the controller has to end the other processes because of this.
    pub(crate) fn ends_others(&self) -> bool {
        match self {
            // A controller that ends one ends all, and has told them how long they may take.
            Self::Ended(Ending { ended_by: Some(EndedBy::Controller), .. }) => false,
            // Also if a member ended the job on that host: a job does not run in part.
            Self::Ended(Ending { ended_by: Some(_), .. }) => true,
            _ => self.is_bad(),
        }
    }

    /// The lower, the less likely it is a consequence of another outcome.
    fn rank(&self) -> u32 {
        match self {
            Self::Lost(_) => 0,
            Self::Ended(Ending { how: How::Unsupervised, .. }) => 1,
            Self::Ended(Ending { how: How::Killed(_), .. }) => 2,
            Self::Refused(_) => 3,
            Self::Ended(Ending { how: How::Exited(status), .. }) if !COMMON.contains(status) => 4,
            Self::Ended(Ending { panic: Some(_), .. }) => 5,
            Self::Ended(_) => 6,
        }
    }

    fn status(&self) -> u8 {
        match self {
            Self::Ended(ending) => ending.how.status(),
            Self::Refused(_) | Self::Lost(_) => NO_JOB,
        }
    }
}

/// How a job has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The job.
    pub job: JobId,
    /// The first cause; `None` if it ended normally or on request.
    pub cause: Option<(String, Outcome)>,
    /// The source of the request to end it, if there was one and no process had failed before.
    pub ended_by: Option<String>,
    /// The exit status for the shell.
    pub status: u8,
}

impl Verdict {
    /// Judges the outcomes of a job's processes, by their names, in the order of the reports.
    /// `interrupted` is the signal with which the user ended the job, if any.
    pub fn of(job: JobId, outcomes: &[(String, Outcome)], interrupted: Option<i32>) -> Self {
        let cause =
            outcomes.iter().filter(|(_, outcome)| outcome.is_bad()).min_by_key(|(_, f)| f.rank());
        if let Some(signal) = interrupted {
            let status = How::Killed(signal).status();
            let ended_by = Some(format!("signal {signal}"));
            // The reaction of a process to the signal is no failure; the loss of a host is one.
            let cause = cause.filter(|(_, outcome)| matches!(outcome, Outcome::Lost(_))).cloned();
            return Self { job, cause, ended_by, status };
        }
        let ended_by = outcomes.iter().find_map(|(_, outcome)| match outcome {
            Outcome::Ended(Ending { ended_by: Some(by), .. }) => Some(by),
            _ => None,
        });
        match cause {
            Some((host, outcome)) => {
                let (cause, status) = (Some((host.clone(), outcome.clone())), outcome.status());
                Self { job, cause, ended_by: None, status }
            }
            None => {
                // A job that its own controller ended has ended normally: host 0 was done.
                let ended_by = ended_by.filter(|by| **by != EndedBy::Controller);
                let ended_by = ended_by.map(|by| escape::name(&by.to_string()).into_owned());
                let status = if ended_by.is_some() { 128 + 15 } else { 0 };
                Self { job, cause: None, ended_by, status }
            }
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { job, cause, ended_by, .. } = self;
        match (cause, ended_by) {
            (Some((host, outcome)), _) => {
                write!(f, "job {job} ended because of {host}: ")?;
                match outcome {
                    Outcome::Lost(reason) => write!(f, "lost its daemon: {reason}"),
                    Outcome::Refused(reason) => f.write_str(&escape::name(reason)),
                    Outcome::Ended(Ending { how, panic, last_lines, .. }) => {
                        write!(f, "the program {how}")?;
                        if let Some(panic) = panic {
                            write!(f, ", {}", escape::line(panic))?;
                        }
                        if !last_lines.is_empty() {
                            write!(f, "\nlast lines of {host}:")?;
                        }
                        let mut lines = last_lines.iter().map(|line| escape::line(line));
                        lines.try_for_each(|line| write!(f, "\n  | {line}"))
                    }
                }
            }
            (None, Some(by)) => write!(f, "job {job} was ended by {by}"),
            (None, None) => write!(f, "job {job} ended normally"),
        }
    }
}

#[cfg(test)]
mod tests {
    use daemon_protocol::Role;

    use super::*;

    fn ended(how: How) -> Outcome {
        let last_lines = vec!["last".to_owned()];
        Outcome::Ended(Ending { how, ended_by: None, panic: None, last_lines })
    }

    fn ended_by(by: EndedBy) -> Outcome {
        let (ended_by, panic, last_lines) = (Some(by), None, vec![]);
        Outcome::Ended(Ending { how: How::Killed(15), ended_by, panic, last_lines })
    }

    fn judge(outcomes: Vec<Outcome>, interrupted: Option<i32>) -> Verdict {
        let name = |number| format!("h{number}");
        let outcomes: Vec<_> = outcomes
            .into_iter()
            .enumerate()
            .map(|(number, outcome)| (name(number), outcome))
            .collect();
        Verdict::of(JobId(1), &outcomes, interrupted)
    }

    fn cause(verdict: &Verdict) -> &str {
        verdict.cause.as_ref().unwrap().0.as_str()
    }

    #[test]
    fn what_cannot_be_a_consequence_was_the_cause() {
        let exited = ended(How::Exited(1));
        let verdict = judge(vec![exited.clone(), ended(How::Killed(9)), exited.clone()], None);
        assert_eq!((cause(&verdict), verdict.status), ("h1", 137));
        let text = verdict.to_string();
        assert!(text.contains("h1: the program was killed by signal 9 (SIGKILL)"), "{text}");
        assert!(text.contains("\n  | last"), "{text}");
        let lost = Outcome::Lost("the connection was closed".into());
        let verdict = judge(vec![exited.clone(), ended(How::Killed(9)), lost], None);
        assert_eq!((cause(&verdict), verdict.status), ("h2", NO_JOB));
        let verdict = judge(vec![ended_by(EndedBy::Controller), exited.clone(), exited], None);
        assert_eq!((cause(&verdict), verdict.status), ("h1", 1));
    }

    #[test]
    fn a_panic_goes_before_a_status_that_says_nothing() {
        let Outcome::Ended(ending) = ended(How::Exited(101)) else { unreachable!("made so above") };
        let panicked =
            Outcome::Ended(Ending { panic: Some("thread 'a' panicked".into()), ..ending });
        let verdict = judge(vec![ended(How::Exited(1)), panicked.clone()], None);
        assert_eq!(verdict.status, 101);
        assert!(verdict.to_string().contains("status 101, thread 'a' panicked"));
        // But not before an exit status other than that for the loss of a peer.
        let verdict = judge(vec![panicked, ended(How::Exited(3))], None);
        assert_eq!((cause(&verdict), verdict.status), ("h1", 3));
    }

    #[test]
    fn a_job_that_was_ended_on_request_has_no_cause() {
        let ann = EndedBy::Member("ann".parse().unwrap(), Role::Admin);
        let verdict = judge(vec![ended_by(ann.clone()), ended_by(ann)], None);
        assert_eq!((verdict.cause.is_none(), verdict.status), (true, 143));
        assert!(verdict.to_string().contains("was ended by ann (admin)"));
        let verdict = judge(vec![ended(How::Killed(2)), ended_by(EndedBy::Controller)], Some(2));
        assert_eq!((verdict.cause.is_none(), verdict.status), (true, 130));
    }

    #[test]
    fn a_job_that_ended_well() {
        let verdict = judge(vec![ended(How::Exited(0)), ended_by(EndedBy::Controller)], None);
        assert_eq!(
            (verdict.cause.is_none(), verdict.ended_by.is_none(), verdict.status),
            (true, true, 0)
        );
    }
}
