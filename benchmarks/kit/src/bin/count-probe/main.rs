//! Workloads whose exact counts are known beforehand; the tests of the counter step this program.

use std::process::ExitCode;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod probe;

fn main() -> ExitCode {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    if let Some(status) = probe::run() {
        return status;
    }
    eprintln!("this program is stepped by the tests of the counter, on Linux and x86-64");
    ExitCode::FAILURE
}
