//! Which processor a runtime thread is pinned to: the cores of one NUMA node first, then those of
//! the others, and the second processors of cores last.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Where Linux describes its processors.
const SYSFS_CPUS: &str = "/sys/devices/system/cpu";

/// The processors of this process, in the order in which threads are pinned to them.
pub(crate) struct Processors(Vec<usize>);

impl Processors {
    /// The processors that the current thread may use; empty if the system does not report them.
    pub(crate) fn allowed() -> Self {
        let Ok(allowed) = sched_getaffinity(None) else { return Self(Vec::new()) };
        let all: Vec<_> = (0..CpuSet::MAX_CPU).filter(|one| allowed.is_set(*one)).collect();
        Self::in_order(&all, Path::new(SYSFS_CPUS))
    }

    /// `all` in the order that follows from their descriptions in `sysfs`. One without a
    /// description counts as a core of the first node.
    fn in_order(all: &[usize], sysfs: &Path) -> Self {
        let mut threads: HashMap<[String; 3], u32> = HashMap::new();
        let mut places: Vec<_> = all
            .iter()
            .map(|number| {
                let folder = sysfs.join(format!("cpu{number}"));
                let before = core_of(&folder).map_or(0, |core| {
                    let threads = threads.entry(core).or_default();
                    *threads += 1;
                    *threads - 1
                });
                (before, node_of(&folder), *number)
            })
            .collect();
        places.sort_unstable();
        Self(places.into_iter().map(|(.., number)| number).collect())
    }

    /// Pins the current thread to the processor for thread `number` of this machine, modulo the
    /// number of processors.
    pub(crate) fn pin(&self, number: u32) {
        if self.0.is_empty() {
            return;
        }
        let mut one = CpuSet::new();
        one.set(self.0[number as usize % self.0.len()]);
        // A thread that may not be pinned stays unpinned.
        let _ = sched_setaffinity(None, &one);
    }
}

/// What identifies the core of a processor.
fn core_of(folder: &Path) -> Option<[String; 3]> {
    let text = |name| fs::read_to_string(folder.join("topology").join(name)).ok();
    // Not every machine has dies.
    let die = text("die_id").unwrap_or_default();
    Some([text("physical_package_id")?, die, text("core_id")?])
}

/// The NUMA node of a processor, which its folder has an entry for.
fn node_of(folder: &Path) -> u32 {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let node = |name: std::ffi::OsString| name.to_str()?.strip_prefix("node")?.parse().ok();
    names.into_iter().find_map(node).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of two nodes with two cores each, and two processors in each core, which the
    /// system has numbered as it often does.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (number, (node, core)) in [(0, 0), (1, 0), (0, 1), (1, 1)].repeat(2).iter().enumerate()
        {
            let folder = root.path().join(format!("cpu{number}"));
            fs::create_dir_all(folder.join("topology")).expect("a folder");
            fs::create_dir(folder.join(format!("node{node}"))).expect("a folder");
            for (name, value) in [("physical_package_id", node), ("core_id", core)] {
                fs::write(folder.join("topology").join(name), format!("{value}\n"))
                    .expect("a file");
            }
        }
        root
    }

    #[test]
    fn cores_come_first_and_those_of_one_node_together() {
        let machine = machine();
        let order = |all: &[usize]| Processors::in_order(all, machine.path()).0;
        assert_eq!(order(&[0, 1, 2, 3, 4, 5, 6, 7]), [0, 2, 1, 3, 4, 6, 5, 7]);
        // Unusable processors take no place: the only usable processor of a core comes first.
        assert_eq!(order(&[4, 1, 5]), [4, 1, 5]);
    }

    #[test]
    fn a_system_that_tells_nothing_has_its_own_order() {
        let nowhere = Path::new("/nowhere");
        assert_eq!(Processors::in_order(&[3, 5, 7], nowhere).0, [3, 5, 7]);
    }

    #[test]
    fn a_thread_is_pinned_to_one_of_its_processors() {
        let before = sched_getaffinity(None).expect("processors");
        let count = before.count();
        std::thread::spawn(move || {
            Processors::allowed().pin(count + 1);
            let now = sched_getaffinity(None).expect("processors");
            let one = (0..CpuSet::MAX_CPU).find(|one| now.is_set(*one)).expect("one");
            assert!(now.count() == 1 && before.is_set(one));
        })
        .join()
        .expect("no panic");
    }
}
