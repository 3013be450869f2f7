//! [`Printer`]: prints the output of a job, in complete lines with the host's name in front. It uses a
//! separate thread, since the reader of the output may be slow.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc;
use std::thread;

use daemon_protocol::Stream;

use crate::controller::lines::Lines;
use crate::controller::link::Link;
use crate::escape::{self, Colours};

/// Output to print.
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
    /// Prints for the processes with these names, and acknowledges printed bytes to their hosts.
    pub(crate) fn new(hosts: Vec<(String, Link)>) -> io::Result<Self> {
        // The windows of the hosts bound this queue.
        let (parts, queue) = mpsc::channel::<Part>();
        let run = move || {
            let mut lines: Vec<_> = hosts.iter().map(|(name, _)| Lines::new(name)).collect();
            for Part { host, stream, bytes } in queue {
                write(stream, &lines[host].take(stream, &bytes), Colours::Passed);
                hosts[host].1.printed(bytes.len());
            }
            for lines in lines {
                let last = lines.finish();
                last.into_iter().for_each(|(stream, text)| write(stream, &text, Colours::Passed));
            }
        };
        let thread = thread::Builder::new().name("printer".into()).spawn(run)?;
        Ok(Self { parts, thread })
    }

    /// Queues output of a host for printing.
    pub(crate) fn print(&self, host: usize, stream: Stream, bytes: Vec<u8>) {
        // The thread ends only when the queue is closed.
        let _ = self.parts.send(Part { host, stream, bytes });
    }

    /// Prints the rest, and waits until it is printed.
    pub(crate) fn finish(self) {
        drop(self.parts);
        // A panic has been printed already.
        let _ = self.thread.join();
    }
}

/// Writes complete lines to the output or error of this process. On a terminal they are escaped,
/// except for `colours`; files and pipes get every byte unchanged. If the reader has closed the
/// output, the job continues, as under nohup.
pub(crate) fn write(stream: Stream, text: &[u8], colours: Colours) {
    fn to(mut to: impl Write + IsTerminal, text: &[u8], colours: Colours) {
        let shown;
        let text = if to.is_terminal() {
            shown = escape::lines(text, colours);
            &shown
        } else {
            text
        };
        let _ = to.write_all(text).and_then(|()| to.flush());
    }
    match stream {
        Stream::Out => to(io::stdout().lock(), text, colours),
        Stream::Err => to(io::stderr().lock(), text, colours),
    }
}
