//! Prints what the hosts of a job say, whole lines with the host's name in front, in a thread of
//! its own: whoever reads it may be slow, and the job is watched meanwhile.

use crate::{
    controller::{lines::Lines, link::Link},
    message::Stream,
};
use std::{
    io::{self, Write},
    sync::mpsc,
    thread,
};

/// What is to be printed.
struct Part {
    host: usize,
    stream: Stream,
    bytes: Vec<u8>,
}

/// The thread that prints.
pub(crate) struct Printer {
    parts: mpsc::Sender<Part>,
    thread: thread::JoinHandle<()>,
}

impl Printer {
    /// Prints for the processes with these names, and tells their hosts what was printed.
    pub(crate) fn new(hosts: Vec<(String, Link)>) -> io::Result<Self> {
        // What waits here is bounded by the windows of the hosts.
        let (parts, queue) = mpsc::channel::<Part>();
        let run = move || {
            let mut lines: Vec<_> = hosts.iter().map(|(name, _)| Lines::new(name)).collect();
            for Part { host, stream, bytes } in queue {
                write(stream, &lines[host].take(stream, &bytes));
                hosts[host].1.printed(bytes.len());
            }
            for lines in lines {
                lines.finish().into_iter().for_each(|(stream, text)| write(stream, &text));
            }
        };
        let thread = thread::Builder::new().name("printer".into()).spawn(run)?;
        Ok(Self { parts, thread })
    }

    /// Prints what a host has said, some time.
    pub(crate) fn print(&self, host: usize, stream: Stream, bytes: Vec<u8>) {
        // The thread ends only when it is told to.
        let _ = self.parts.send(Part { host, stream, bytes });
    }

    /// Prints what is left, and waits until it is printed.
    pub(crate) fn finish(self) {
        drop(self.parts);
        // If it has panicked, that was said.
        let _ = self.thread.join();
    }
}

/// Writes to the output or error of this process. If nobody reads it any more the job goes on, as
/// under nohup.
pub(crate) fn write(stream: Stream, text: &[u8]) {
    fn to(mut to: impl Write, text: &[u8]) {
        let _ = to.write_all(text).and_then(|()| to.flush());
    }
    match stream {
        Stream::Out => to(io::stdout().lock(), text),
        Stream::Err => to(io::stderr().lock(), text),
    }
}
