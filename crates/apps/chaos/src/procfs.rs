//! Processes in `/proc`: members of a group, open descriptors, shared memory.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, io};

/// A process as `/proc` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// `R`, `S`, `Z` for a zombie, and so on.
    pub(crate) state: char,
    parent: u32,
    group: u32,
}

/// The processes of a process group, including zombies, ordered by id.
pub(crate) fn members(group: u32) -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        found.extend(process(pid).filter(|process| process.group == group));
    }
    found.sort_by_key(|process| process.pid);
    Ok(found)
}

/// A process, if there is one with this id.
fn process(pid: u32) -> Option<Process> {
    // The name may hold bytes that are not UTF-8.
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse(pid, &String::from_utf8_lossy(&stat))
}

fn parse(pid: u32, stat: &str) -> Option<Process> {
    // The name is in parentheses and can contain any character.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    Some(Process { pid, state, parent, group })
}

/// What a thread has had of the processors, as `/proc` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scheduling {
    /// Whether it runs, or waits for a processor.
    pub(crate) is_runnable: bool,
    /// How long it has run.
    pub(crate) ran: Duration,
    /// How long it has waited for a processor, without a wait that has not ended.
    pub(crate) waited: Duration,
}

/// The threads of a process that have not ended, by id. Those of a process that was killed are among
/// them until they have ended, although the process may be a zombie already.
pub(crate) fn scheduling(pid: u32) -> Vec<(u32, Scheduling)> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let each = threads.flatten().filter_map(|thread| {
        let read = |what| fs::read_to_string(thread.path().join(what)).ok();
        let id = thread.file_name().to_str()?.parse().ok()?;
        let state = parse(pid, &read("stat")?)?.state;
        Some((id, parse_scheduling(state, &read("schedstat")?)?))
    });
    each.collect()
}

fn parse_scheduling(state: char, schedstat: &str) -> Option<Scheduling> {
    let mut fields = schedstat.split_whitespace().map(|field| field.parse().ok());
    let mut next = || Some(Duration::from_nanos(fields.next()??));
    let (ran, waited) = (next()?, next()?);
    Some(Scheduling { is_runnable: state == 'R', ran, waited })
}

/// The open descriptors of a process (`self` for this one) and their targets.
pub(crate) fn descriptors(pid: &str) -> BTreeMap<u32, PathBuf> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return BTreeMap::new() };
    let all = entries.flatten().filter_map(|entry| {
        // The descriptor of the listing itself is closed, or its target is the directory.
        let target = fs::read_link(entry.path()).ok()?;
        let number = entry.file_name().to_str()?.parse().ok()?;
        (!target.ends_with("fd")).then_some((number, target))
    });
    all.collect()
}

/// Environment variable with the descriptors that the parent of the rack was started with.
pub(crate) const DESCRIPTORS: &str = "GOSSAMER_CHAOS_DESCRIPTORS";

/// Open descriptors of this process except standard streams and those in [`DESCRIPTORS`].
pub(crate) fn surplus_descriptors() -> BTreeMap<u32, PathBuf> {
    let listed = env::var(DESCRIPTORS).unwrap_or_default();
    let known: BTreeSet<u32> = listed.split(',').flat_map(str::parse).chain(0..3).collect();
    let all = descriptors("self").into_iter();
    all.filter(|(number, _)| !known.contains(number)).collect()
}

/// The memfds that this process has open.
pub(crate) fn own_memory_files() -> Vec<PathBuf> {
    descriptors("self").into_values().filter(|target| is_memory_file(target)).collect()
}

/// The memfds that a process has open, by device and inode.
pub(crate) fn memory_files(pid: u32) -> BTreeSet<(u64, u64)> {
    descriptors(&pid.to_string())
        .into_iter()
        .filter(|(_, target)| is_memory_file(target))
        .filter_map(|(number, _)| fs::metadata(format!("/proc/{pid}/fd/{number}")).ok())
        .map(|file| (file.dev(), file.ino()))
        .collect()
}

/// Whether runtime threads of `host` run in process `pid`.
pub(crate) fn runs_threads_of(host: u32, pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let mut names =
        threads.flatten().flat_map(|entry| fs::read_to_string(entry.path().join("comm")));
    names.any(|name| name.starts_with(&format!("gossamer-{host}.")))
}

fn is_memory_file(target: &Path) -> bool {
    target.to_string_lossy().starts_with("/memfd:")
}

/// New names in `/dev/shm` that no process maps or holds open.
pub(crate) fn unheld_shared_memory(known: &BTreeSet<PathBuf>) -> io::Result<Vec<PathBuf>> {
    let mut new: Vec<_> = shared_memory()?.difference(known).cloned().collect();
    if !new.is_empty() {
        for entry in fs::read_dir("/proc")?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.parse::<u32>().is_ok() {
                let maps = fs::read_to_string(entry.path().join("maps")).unwrap_or_default();
                let open = descriptors(&name);
                new.retain(|path| {
                    !maps.contains(&*path.to_string_lossy()) && !open.values().any(|o| o == path)
                });
            }
        }
    }
    Ok(new)
}

/// The names in `/dev/shm`.
pub(crate) fn shared_memory() -> io::Result<BTreeSet<PathBuf>> {
    fs::read_dir("/dev/shm")?.map(|entry| Ok(entry?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_confuse_the_fields() {
        let process = parse(7, "7 (a) Z 1 (b) S 12 34 34 0 -1").expect("a process");
        assert_eq!(process, Process { pid: 7, state: 'S', parent: 12, group: 34 });
    }

    #[test]
    fn a_thread_that_runs_is_seen_to_run() {
        let expected = Scheduling {
            is_runnable: true,
            ran: Duration::from_nanos(76_374),
            waited: Duration::from_nanos(3_143_729),
        };
        assert_eq!(parse_scheduling('R', "76374 3143729 2\n"), Some(expected));
        assert_eq!(parse_scheduling('S', "76374"), None);
        let own = scheduling(std::process::id());
        assert!(own.iter().any(|(_, thread)| thread.is_runnable), "{own:?}");
        assert!(own.iter().any(|(_, thread)| !thread.ran.is_zero()), "{own:?}");
    }

    #[test]
    fn this_process_is_found_in_its_group() {
        let own = process(std::process::id()).expect("this process");
        let members = members(own.group).expect("a list");
        assert!(members.iter().any(|other| other.pid == own.pid));
        assert!(descriptors("self").len() >= 3);
    }

    #[test]
    fn runtime_threads_are_found_by_their_host() {
        let started = std::sync::Arc::new(std::sync::Barrier::new(2));
        let thread = {
            let started = started.clone();
            let named = std::thread::Builder::new().name("gossamer-1.0".into());
            named.spawn(move || (started.wait(), started.wait())).expect("a thread")
        };
        started.wait();
        let this = std::process::id();
        assert!(runs_threads_of(1, this) && !runs_threads_of(0, this));
        started.wait();
        thread.join().expect("no panic");
        assert!(!runs_threads_of(1, u32::MAX), "there is no such process");
    }
}
