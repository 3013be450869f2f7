//! `gossamerd`: the daemon of a host of a rack. See `gossamerd --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    gossamer_daemon::cli::gossamerd()
}
