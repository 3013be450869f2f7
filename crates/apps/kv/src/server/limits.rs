//! The limit of open files, which bounds the connections of a process.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files of a process besides connections: the program, its rack, listeners, and one connection more
/// than there may be, which is told so.
const OTHER_FILES: u64 = 128;

/// Raises the limit of open files of this process, if it is too low for so many connections.
///
/// # Errors
/// If the system does not allow as many.
pub fn raise_open_files(connections: usize) -> io::Result<()> {
    let needed = connections as u64 + OTHER_FILES;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    // Some may raise the maximum, too.
    let maximum = maximum.map(|maximum| maximum.max(needed));
    let raised = Rlimit { current: Some(needed), maximum };
    setrlimit(Resource::Nofile, raised).map_err(|error| {
        let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let text = format!(
            "{connections} connections need {needed} open files and the limit is {limit} ({error}): \
             raise it (`ulimit -Hn`), or lower --connections"
        );
        io::Error::new(error.kind(), text)
    })
}
