//! The kernel threads that do the work of software RDMA devices.
//!
//! Much of it is done where a packet is sent. What is put off goes to a thread of the kernel on
//! that processor, `ksoftirqd`, which has no more rights than the programs that poll there and wait
//! for it: they use up their time slices first, 4 milliseconds each. A device would not wait. So
//! these threads are given a real-time priority, for perftest and for us.

use std::process::{Command, Stdio};
use std::{fs, io};

/// Gives them the priority; that needs root and `chrt` of util-linux.
pub(crate) fn favour() -> io::Result<()> {
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        // A process may have ended since.
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if !name.starts_with("ksoftirqd/") {
            continue;
        }
        let mut chrt = Command::new("chrt");
        chrt.args(["--fifo", "--pid", "50"]).arg(entry.file_name());
        let output = chrt.stdin(Stdio::null()).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(io::Error::other(format!("chrt: {}", said.trim())));
        }
    }
    Ok(())
}
