//! [`TeamError`]: why a team has no results.

use transport_api::ThreadId;
use trust_core::DelegateError;

/// Why [`Team::try_run`](crate::Team::try_run) has no results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TeamError {
    /// A member panicked, or could not be reached.
    #[error("member {member} of the team, on {thread}, failed")]
    Member {
        /// Its number.
        member: usize,
        /// Where it ran.
        thread: ThreadId,
        /// How it ended.
        #[source]
        error: DelegateError,
    },
    /// The members did not call the same collectives: one waited for another that had ended, or that
    /// sent a value of another type.
    #[error("member {member} of the team was out of step: {reason}")]
    OutOfStep {
        /// The member that noticed it.
        member: usize,
        /// What it noticed.
        reason: String,
    },
}
