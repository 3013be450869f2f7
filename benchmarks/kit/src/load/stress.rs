//! `stress-ng`, which keeps memory and paging busy beside a measurement, as in Grodowitz et al. 2021,
//! section VII.C. They run its whole class `vm`; here ten of it run, which can be made to stand still
//! between two samples.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;
use std::{env, fs, io};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::measure::cores::Cores;
use crate::measure::processes::Ended;
use crate::measure::sampling::CaseError;
use crate::roles::{Lifeline, Role, RoleProcess};

/// Runs `stress-ng` until its lifeline closes, and ends all of its processes then.
pub const STRESS: Role = Role { name: "stress-ng", run };

const PROGRAM: &str = "stress-ng";
/// One of each of these, which are of its class `vm`. Others of the class take all memory there is, or
/// need seconds to stand still.
const STRESSORS: [&str; 10] = [
    "vm",
    "vm-rw",
    "vm-splice",
    "malloc",
    "mmap",
    "mremap",
    "mprotect",
    "madvise",
    "msync",
    "munmap",
];
/// Those of them whose memory has a size, and that.
const SIZED: [(&str, &str); 6] = [
    ("vm", "64m"),
    ("vm-rw", "16m"),
    ("malloc", "16m"),
    ("mmap", "16m"),
    ("mremap", "16m"),
    ("msync", "16m"),
];
const CORES: &str = "BENCH_STRESS_CORES";
/// What the role says when the program is missing.
const ABSENT: &str = "absent";
/// How long the load takes to be what it is.
const SETTLE: Duration = Duration::from_millis(50);

/// `stress-ng` in a process group of its own, which stands still unless it is wanted.
#[derive(Debug)]
pub struct Stress {
    _role: RoleProcess,
    group: Pid,
}

impl Stress {
    /// Starts it on these cores.
    ///
    /// # Errors
    /// [`CaseError::Absent`] if it is not installed; [`CaseError::Failed`] if it cannot be started.
    pub fn start(cores: Cores) -> Result<Stress, CaseError> {
        let cores = cores.both().map(|core| core.to_string()).join(",");
        let mut role = RoleProcess::spawn(STRESS, None, &[(CORES, cores.into())])?;
        let line = role.first_line()?;
        if line == ABSENT {
            return Err(CaseError::Absent(format!("{PROGRAM} (Debian's package {PROGRAM})")));
        }
        let group = line.parse().ok().and_then(Pid::from_raw);
        let group = group.ok_or_else(|| CaseError::Failed(format!("{PROGRAM}: {line}")))?;
        // All of them have started by then.
        thread::sleep(SETTLE * 10);
        let stress = Stress { _role: role, group };
        stress.signal(Signal::STOP)?;
        Ok(stress)
    }

    /// Does `work` while it runs.
    ///
    /// # Errors
    /// Those of `work`; if it has ended before its time.
    pub fn beside<T>(&self, work: impl FnOnce() -> Result<T, CaseError>) -> Result<T, CaseError> {
        self.signal(Signal::CONT)?;
        thread::sleep(SETTLE);
        let done = work();
        self.signal(Signal::STOP)?;
        done
    }

    fn signal(&self, signal: Signal) -> Result<(), CaseError> {
        kill_process_group(self.group, signal)
            .map_err(|e| CaseError::Failed(format!("{PROGRAM} has ended: {e}")))
    }
}

fn run(line: Lifeline) -> ExitCode {
    match burn(&line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            println!("{ABSENT}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            println!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn burn(line: &Lifeline) -> io::Result<()> {
    let folder = env::temp_dir().join(format!("gossamer-stress-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let mut command = Command::new(PROGRAM);
    for stressor in STRESSORS {
        command.args([format!("--{stressor}"), "1".to_owned()]);
    }
    for (stressor, bytes) in SIZED {
        command.args([format!("--{stressor}-bytes"), bytes.to_owned()]);
    }
    command.arg("--taskset").arg(env::var(CORES).unwrap_or_default());
    command.arg("--temp-path").arg(&folder).args(["--timeout", "1h"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let child = Ended(command.spawn()?);
    let group = Pid::from_child(&child.0);
    println!("{}", group.as_raw_nonzero());
    while !line.is_closed() {
        thread::sleep(Duration::from_millis(5));
    }
    kill_process_group(group, Signal::KILL)?;
    drop(child);
    // Some may still be ending, and write there.
    let _ = fs::remove_dir_all(folder);
    Ok(())
}
