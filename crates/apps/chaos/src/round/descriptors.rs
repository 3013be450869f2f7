//! Whether a process of a rack keeps another's memory open.
//!
//! A descriptor of memory that is passed on is mapped, then closed. With segments, descriptors are
//! passed on all the time, so one look may catch a descriptor in transit; a descriptor that
//! leaked is in every look.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use crate::Plan;
use crate::procfs;
use crate::round::running::{POLL_INTERVAL, RunningRound};
use crate::round::starvation::Starvation;

/// How long a descriptor may take from one process to another until it is closed there, beside the time
/// in which the threads of the rack wait for a processor.
const TIMEOUT: Duration = Duration::from_millis(100);

/// A memory file, by device and inode.
type MemoryFile = (u64, u64);

impl RunningRound {
    /// Every process of the rack has memory files, and none keeps one that another has, too.
    ///
    /// On a busy machine the rack may have ended already: a process without runtime threads has
    /// rightly closed its memory.
    pub(super) fn check_memory_files(&mut self) {
        let (begin, mut starvation) = (Instant::now(), Starvation::default());
        let Some(mut kept) = self.held_twice() else { return };
        while !kept.is_empty() && begin.elapsed() < TIMEOUT + starvation.longest() {
            let now = Instant::now();
            if starvation.is_due(now) {
                starvation.sample(now, self.hosts.values().copied());
            }
            thread::sleep(POLL_INTERVAL);
            let Some(now) = self.held_twice() else { return };
            kept.retain(|held| now.contains(held));
        }
        for (host, other, _) in kept {
            self.violation(format!("host {host} and host {other} both hold a memory file"));
        }
    }

    /// The memory files that two processes hold open, with the hosts of these. `None` if a process
    /// holds none, which is a violation.
    fn held_twice(&mut self) -> Option<BTreeSet<(u32, u32, MemoryFile)>> {
        let open: Vec<_> =
            self.hosts.iter().map(|(host, pid)| (*host, procfs::memory_files(*pid))).collect();
        let is_closed = |(host, files): &(u32, BTreeSet<_>)| {
            files.is_empty() && procfs::runs_threads_of(*host, self.hosts[host])
        };
        if open.len() != Plan::HOSTS as usize || open.iter().any(is_closed) {
            self.violation(format!(
                "expected memory files in every process of the rack, found {open:?}"
            ));
            return None;
        }
        Some(in_two(&open))
    }
}

/// The files that two hosts have.
fn in_two(open: &[(u32, BTreeSet<MemoryFile>)]) -> BTreeSet<(u32, u32, MemoryFile)> {
    let pairs = open
        .iter()
        .enumerate()
        .flat_map(|(index, one)| open[..index].iter().map(move |other| (one, other)));
    let both = pairs.flat_map(|((host, files), (other, others))| {
        files.intersection(others).map(move |file| (*host, *other, *file))
    });
    both.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_if_two_processes_have_it() {
        let open = |files: [&[u64]; 3]| -> Vec<_> {
            let files = files.map(|files| files.iter().map(|file| (1, *file)).collect());
            (0..).zip(files).collect()
        };
        assert_eq!(in_two(&open([&[3, 4], &[5], &[6, 7]])), BTreeSet::new());
        let held = in_two(&open([&[3, 4], &[5, 7], &[4, 6, 7]]));
        assert_eq!(held, BTreeSet::from([(2, 0, (1, 4)), (2, 1, (1, 7))]));
    }
}
