//! How a case starts two hosts, and what each of them runs.

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;

use transport_api::{HostId, Transport};

use super::board::Board;
use super::plan::{Figure, Request};
use super::{exporter, importer};
use crate::measure::sampling::{CaseError, Sampler};

/// Names the request in the environment of the hosts.
const REQUEST: &str = "BENCH_SEGMENT_REQUEST";

/// What a device counts, of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Work requests that were posted.
    pub work_requests: u64,
    /// Doorbells that they were posted with.
    pub doorbells: u64,
}

/// Says what was counted so far, where something counts.
pub type Counters = Option<Box<dyn Fn() -> Counted>>;

/// Starts two hosts, with these variables in their environment beside what they need to join, and
/// returns the first line of host 0.
type Start = dyn Fn(&Sampler, (&'static str, String)) -> Result<String, CaseError>;

/// Two hosts that a sample starts.
#[derive(Clone)]
pub struct Pair(Rc<Start>);

impl Pair {
    /// Two hosts that `start` starts, with a variable in their environment beside what they need to
    /// join; it returns the first line that host 0 prints.
    pub fn new(
        start: impl Fn(&Sampler, (&'static str, String)) -> Result<String, CaseError> + 'static,
    ) -> Pair {
        Pair(Rc::new(start))
    }

    /// Has them do what is asked.
    ///
    /// # Errors
    /// [`CaseError::Failed`] with what host 0 says, if it is no figure.
    pub fn figure(&self, sampler: &Sampler, request: Request) -> Result<Figure, CaseError> {
        let failed = |e: serde_json::Error| CaseError::Failed(e.to_string());
        let text = serde_json::to_string(&request).map_err(failed)?;
        let line = (self.0)(sampler, (REQUEST, text))?;
        serde_json::from_str(&line).map_err(|_| CaseError::Failed(line))
    }
}

/// A host that has joined.
pub struct Host {
    /// Its transport.
    pub transport: Arc<dyn Transport>,
    /// What its device counts.
    pub counters: Counters,
}

impl Host {
    /// A host of which nothing is counted.
    pub fn new(transport: Arc<dyn Transport>) -> Host {
        Host { transport, counters: None }
    }
}

/// The main function of a host, which `join` makes one.
pub fn run_host(join: impl FnOnce() -> Result<Host, Box<dyn Error>>) -> ExitCode {
    match take_part(join) {
        Ok(Some(line)) => println!("{line}"),
        Ok(None) => {}
        Err(e) => {
            // The case reads this line and reports it as the error.
            println!("{}", with_causes(&*e));
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Returns what host 0 prints.
fn take_part(
    join: impl FnOnce() -> Result<Host, Box<dyn Error>>,
) -> Result<Option<String>, Box<dyn Error>> {
    let request: Request = serde_json::from_str(&env::var(REQUEST)?)?;
    let Host { transport, counters } = join()?;
    let board = Board::new(&transport)?;
    let line = if transport.local() == HostId(0) {
        let figure = importer::measure(&board, &counters, request);
        // Stop the other host even after an error; report the first error.
        let stopped = board.stop_peer();
        let line = serde_json::to_string(&figure?)?;
        stopped?;
        Some(line)
    } else {
        exporter::serve(&board, request.plan)?;
        None
    };
    transport.leave();
    Ok(line)
}

/// An error and its causes in one line.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text.replace('\n', " ")
}
