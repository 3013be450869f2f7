//! A running `kv serve`, for tests.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

/// `kv serve` on a free port, on a rack of two processes; killed when dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) port: u16,
    output: BufReader<ChildStdout>,
}

#[allow(dead_code)] // Not all used by every test program.
impl Server {
    pub(crate) fn start() -> Self {
        Self::with(&["--hosts", "2", "--threads", "1"])
    }

    /// The same, with other options.
    pub(crate) fn with(options: &[&str]) -> Self {
        Self::after("true", options)
    }

    /// The same, after a shell command in the same process.
    pub(crate) fn after(command: &str, options: &[&str]) -> Self {
        let mut process = Command::new("sh")
            .args(["-c", &format!("{command} && exec \"$@\""), "sh", env!("CARGO_BIN_EXE_kv")])
            .args(["serve", "--port", "0"])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let port = line.trim().rsplit(':').next().and_then(|port| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("the server printed {line:?}"));
        Self { process, port, output }
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// How the serving process ended, once it has.
    pub(crate) fn ended(&mut self) -> std::process::ExitStatus {
        self.process.wait().unwrap()
    }

    /// What it has printed since it began to serve, once it has ended.
    pub(crate) fn rest_of_output(&mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        rest
    }

    /// Peak memory of the serving process in bytes.
    pub(crate) fn peak_memory_bytes(&self) -> usize {
        self.bytes_in_status("VmHWM:")
    }

    /// The size of the serving process once it has been the same for a while: fibers that begin with
    /// the server get their stacks after it has printed its address.
    fn settled_size(&self) -> usize {
        let (mut size, mut same) = (0, 0);
        while same < 20 {
            std::thread::sleep(std::time::Duration::from_millis(10));
            let now = self.bytes_in_status("VmSize:");
            (size, same) = (now, if now == size { same + 1 } else { 0 });
        }
        size
    }

    /// Lets the serving process map no further stack of a fiber: only what an allocator asks for at once.
    pub(crate) fn map_no_further_stack(&self) {
        let bytes = Some(self.settled_size() as u64 + (160 << 10));
        let pid = rustix::process::Pid::from_child(&self.process);
        let limit = rustix::process::Rlimit { current: bytes, maximum: bytes };
        rustix::process::prlimit(Some(pid), rustix::process::Resource::As, limit).unwrap();
    }

    fn bytes_in_status(&self, name: &str) -> usize {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The other host ends with this one.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
