//! `gossamer`: runs programs on the hosts of a rack. See `gossamer help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    gossamer_daemon::cli::gossamer()
}
