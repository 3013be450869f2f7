//! An estimate of the memory that a graph takes, before anything is built.

use std::fmt;
use std::fs;
use std::path::Path;

use gossamer::{Team, topology};
use serde::{Deserialize, Serialize};

use crate::layout::Layout;

/// What a graph takes on all members together, at most, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate(pub u64);

impl Estimate {
    /// The estimate for vertices that are laid out so, and `edges` (those of undirected graphs counted
    /// twice).
    ///
    /// An edge takes 8 bytes in its row, and 12 beside it while the rows are built, with some room since
    /// members do not have the same number of edges. A vertex takes about 40 in the arrays of searches. A
    /// place, of which there are up to twice as many, takes 12 at every member in what all members have
    /// of all vertices: bitmaps, and what a validation compares. The exchange takes slices of the edges.
    #[must_use]
    pub fn new(layout: &Layout, edges: u64) -> Estimate {
        let (places, members) = (layout.places() as u64, u64::from(layout.members()));
        let edges = edges.saturating_mul(8 + 12 + 2);
        let vertices = layout.vertices() * 40 + places * 12 * members;
        Estimate(edges.saturating_add(vertices + members * (64 << 20)))
    }

    /// Whether it fits into what the machines of the rack have available; the first member also prints
    /// that for its machine. All members call this together.
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
                if team.index() == 0 {
                    let (graph, available) = (Estimate(share), Estimate(available));
                    eprintln!("graph: it takes about {graph} of {available} available here");
                }
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

/// Bytes of memory that this machine can give out, to processes of this one's control group.
fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    Some((kibibytes << 10).min(left_in_groups(Path::new("/sys/fs/cgroup"), &groups)))
}

/// What the limits of these control groups, and of those around them, leave: `groups` is
/// `/proc/self/cgroup`. Pages of files that were not used for a while count as available.
fn left_in_groups(root: &Path, groups: &str) -> u64 {
    let mut left = u64::MAX;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        // The second version has one hierarchy, whose name is empty.
        let (folder, files) = match controllers {
            "" => (root.to_owned(), ["memory.max", "memory.current", "inactive_file"]),
            "memory" => (
                root.join("memory"),
                ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"],
            ),
            _ => continue,
        };
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            let read = |name| fs::read_to_string(folder.join(group).join(name)).ok();
            let number = |name| read(name)?.trim().parse::<u64>().ok();
            let (Some(limit), Some(used)) = (number(files[0]), number(files[1])) else { continue };
            let inactive = read("memory.stat").and_then(|text| {
                let line = text.lines().find_map(|line| line.strip_prefix(files[2]))?;
                line.trim().parse().ok()
            });
            left = left.min(limit.saturating_sub(used).saturating_add(inactive.unwrap_or(0)));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_says_what_it_has() {
        assert!(available().unwrap() > 1 << 20);
    }

    #[test]
    fn limits_of_control_groups_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let left = |groups: &str| left_in_groups(folder.path(), groups);
        assert_eq!(left("0::/\n"), u64::MAX);
        write("job/memory.max", "1000\n");
        write("job/memory.current", "300\n");
        write("job/memory.stat", "anon 200\ninactive_file 50\n");
        write("job/step/memory.max", "max\n");
        write("job/step/memory.current", "5\n");
        assert_eq!(left("0::/job/step\n"), 750);
        write("memory/old/memory.limit_in_bytes", "700\n");
        write("memory/old/memory.usage_in_bytes", "800\n");
        assert_eq!(left("5:cpu:/old\n4:memory:/old\n0::/job\n"), 0);
    }

    /// Just above a power of two, what all members have by place is twice as large as their vertices.
    #[test]
    fn an_estimate_has_room_for_every_place() {
        let estimate = |vertices| Estimate::new(&Layout::new(vertices, 32).unwrap(), 0).0;
        let at_every_member = |places: u64| places * 12 * 32;
        assert!(estimate((32 << 20) + 1) > at_every_member(64 << 20));
        assert!(
            (at_every_member(32 << 20)..at_every_member(64 << 20)).contains(&estimate(32 << 20))
        );
        assert_eq!(Estimate::new(&Layout::new(1, 1).unwrap(), u64::MAX), Estimate(u64::MAX));
    }

    #[test]
    fn an_estimate_is_printed_in_its_unit() {
        let texts = [5 << 10, 20 << 20, 20 << 30].map(|bytes| Estimate(bytes).to_string());
        assert_eq!(texts, ["5 KiB", "20 MiB", "20 GiB"]);
    }
}
