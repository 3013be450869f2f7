//! Two hosts that share memory: host 0 starts host 1, on the second core.

use std::env;
use std::error::Error;
use std::process::{Command, ExitCode};

use transport_shm::{Leader, ShmTransport};

use super::{Host, Pair, run_host};
use crate::measure::cores::on_core;
use crate::roles::{Lifeline, Role, RoleProcess};

/// One host of the pair.
pub const HOST: Role = Role { name: "segment-host-shm", run: host };

/// The second core, for host 0; unset for host 1.
const CORE: &str = "BENCH_SEGMENT_CORE";
/// The build identity that both hosts present.
const BUILD: [u8; 32] = [1; 32];

/// Two hosts that share memory.
pub fn pair() -> Pair {
    Pair::new(|sampler, request| {
        let core = sampler.cores.second.to_string();
        let variables = [(CORE, core.into()), (request.0, request.1.into())];
        Ok(RoleProcess::spawn(HOST, Some(sampler.cores.first), &variables)?.first_line()?)
    })
}

/// Host 1's standard input is its connection with host 0, and so no lifeline; it ends with that.
fn host(_: Lifeline) -> ExitCode {
    match env::var(CORE) {
        Ok(core) => lead(&core),
        Err(_) => run_host(|| Ok(Host::new(ShmTransport::join_leader(&BUILD)?))),
    }
}

fn lead(core: &str) -> ExitCode {
    let mut child = None;
    let code = run_host(|| -> Result<Host, Box<dyn Error>> {
        let mut leader = Leader::new(2)?;
        let mut command = Command::new(env::current_exe()?);
        command.env_remove(CORE);
        child = Some(on_core(core.parse()?, || leader.spawn(&mut command))??);
        Ok(Host::new(leader.lead(1, &BUILD)?))
    });
    if let Some(mut child) = child {
        // It has ended, or is about to: this process has left.
        let _ = child.wait();
    }
    code
}
