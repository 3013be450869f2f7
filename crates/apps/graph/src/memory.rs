//! An estimate of the memory that a graph takes, before anything is built.

use std::fmt;

use gossamer::{Team, topology};
use serde::{Deserialize, Serialize};

/// What a graph takes on all members together, at most, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate(pub u64);

impl Estimate {
    /// The estimate for `vertices`, `edges` (those of undirected graphs counted twice) and `members`.
    ///
    /// An edge takes 8 bytes in its row, and 12 beside it while the rows are built; vectors that grow may
    /// be half empty. A vertex takes about 40 in the arrays of searches, and 12 at every member in what
    /// all members have of all vertices: bitmaps, and what a validation compares. The exchange takes
    /// slices of the edges.
    #[must_use]
    pub fn new(vertices: u64, edges: u64, members: usize) -> Estimate {
        let members = members as u64;
        Estimate(edges * (8 + 2 * 12) + vertices * (40 + 12 * members) + members * (64 << 20))
    }

    /// Whether it fits into what the machines of the rack have available. All members call this together.
    ///
    /// # Errors
    /// The machine that has too little.
    pub fn check(self, team: &Team) -> Result<(), String> {
        let here = gossamer::local_host();
        let topology = topology();
        let machine = topology.machines.iter().find(|machine| machine.hosts.contains(&here));
        let mine = match (machine, available()) {
            (Some(machine), Some(available)) => {
                let hosts =
                    topology.machines.iter().map(|machine| machine.hosts.len()).sum::<usize>();
                let share = self.0 / hosts as u64 * machine.hosts.len() as u64;
                match share <= available {
                    true => Ok(()),
                    false => Err(format!(
                        "the graph takes about {} on {}, which has {} available: use more machines",
                        Estimate(share),
                        machine.name,
                        Estimate(available)
                    )),
                }
            }
            // A machine that does not say what it has is not asked twice.
            _ => Ok(()),
        };
        team.all_reduce(mine, Result::and)
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes < 10 << 20 => write!(f, "{} KiB", bytes >> 10),
            bytes if bytes < 10 << 30 => write!(f, "{} MiB", bytes >> 20),
            bytes => write!(f, "{} GiB", bytes >> 30),
        }
    }
}

/// Bytes of memory that this machine can give out.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_says_what_it_has() {
        assert!(available().unwrap() > 1 << 20);
    }

    #[test]
    fn an_estimate_is_printed_in_its_unit() {
        let texts = [5 << 10, 20 << 20, 20 << 30].map(|bytes| Estimate(bytes).to_string());
        assert_eq!(texts, ["5 KiB", "20 MiB", "20 GiB"]);
    }
}
