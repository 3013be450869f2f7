//! Requests of the hot path; the tests that count what they take step this program.

#![forbid(unsafe_code)]

use std::process::ExitCode;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod program;

fn main() -> ExitCode {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    if let Some(status) = program::run() {
        return status;
    }
    eprintln!("this program is stepped by the tests of the hot path, on Linux and x86-64");
    ExitCode::FAILURE
}
