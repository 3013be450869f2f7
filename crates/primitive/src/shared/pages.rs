//! What a program asks of the pages behind a [`SharedBytes`]: to keep them in memory, and to make them
//! huge.

use std::io;

use rustix::mm::{Advice, madvise, mlock, munlock};
use rustix::process::{Resource, getrlimit};

use crate::shared::SharedBytes;

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;

impl SharedBytes {
    /// Pins the run: the pages in which it lies are in memory when this returns, and stay there until
    /// they are [unpinned](Self::unpin) or unmapped. Accesses by this process then never wait for a
    /// page. Pages are pinned whole and do not count how often: pinning twice is pinning once.
    /// Unpin the run before you drop it: an allocator may keep the pages, pinned.
    ///
    /// ```
    /// use gossamer_primitive::SharedBytes;
    /// let memory = SharedBytes::heap(4096);
    /// match memory.pin() {
    ///     Ok(()) => memory.unpin()?,
    ///     Err(error) => eprintln!("{error}"),
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// What the system says; mostly that a process may pin no more than its `RLIMIT_MEMLOCK`
    /// (`ulimit -l`).
    pub fn pin(&self) -> io::Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        // SAFETY: mapped as long as `self` lives; pinning changes no byte.
        let pinned = unsafe { mlock(self.base.as_ptr().cast(), self.len()) };
        let limit = || getrlimit(Resource::Memlock).current;
        pinned.map_err(|error| refusal(self.len(), &error.into(), limit()))
    }

    /// Takes [`pin`](Self::pin) back: the system may move the pages out of memory again. Other runs in
    /// the same pages are no longer pinned, either.
    ///
    /// # Errors
    /// What the system says.
    pub fn unpin(&self) -> io::Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        // SAFETY: as in `pin`.
        Ok(unsafe { munlock(self.base.as_ptr().cast(), self.len()) }?)
    }

    /// Asks for transparent huge pages of 2 MiB wherever one fits into the run. They make random
    /// accesses to a large run faster, and cost memory if little of it is used: the first touch takes
    /// all of a page. Where the system makes none, the pages stay as they are.
    ///
    /// # Errors
    /// What the system says, if it knows no such pages.
    pub fn ask_huge_pages(&self) -> io::Result<()> {
        let (start, end) = (self.base.as_ptr().addr(), self.base.as_ptr().addr() + self.len());
        let (first, last) = (start.next_multiple_of(HUGE), end / HUGE * HUGE);
        if first >= last {
            return Ok(());
        }
        let first = self.base.as_ptr().wrapping_add(first - start);
        let len = last - first.addr();
        // SAFETY: inside the run, which is mapped as long as `self` lives; the advice changes no byte.
        Ok(unsafe { madvise(first.cast(), len, Advice::LinuxHugepage) }?)
    }
}

/// That `len` bytes could not be pinned, by a process that may pin `limit` bytes.
fn refusal(len: usize, error: &io::Error, limit: Option<u64>) -> io::Error {
    let limit = limit.map_or("unlimited".into(), |bytes| format!("{bytes} bytes"));
    let text = format!(
        "cannot pin {len} bytes: {error}; RLIMIT_MEMLOCK of this process is {limit}: raise it \
         (`ulimit -l`, `LimitMEMLOCK=` of a systemd unit) or pin less"
    );
    io::Error::new(error.kind(), text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::sync::Ordering;

    /// Kibibytes that this process has pinned.
    fn pinned() -> usize {
        let status = fs::read_to_string("/proc/self/status").expect("a status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
        let count = line.and_then(|line| line.trim().strip_suffix(" kB")).expect("a count");
        count.parse().expect("a number")
    }

    /// The only test that pins: the count is the process's.
    #[test]
    fn pinned_pages_are_counted_until_they_are_unpinned() {
        let memory = SharedBytes::heap(1 << 20);
        let part = memory.slice(256 << 10, 512 << 10);
        let before = pinned();
        part.pin().expect("RLIMIT_MEMLOCK (`ulimit -l`) of 1 MiB or more");
        let with = pinned();
        assert!((512..=516).contains(&(with - before)), "{before} kB, then {with} kB");
        part.pin().expect("once more");
        assert_eq!(pinned(), with, "pages do not count how often");
        part.store(0, 7, Ordering::Relaxed);
        part.unpin().expect("it was pinned");
        assert_eq!((pinned(), part.load(0, Ordering::Relaxed)), (before, 7));
        let empty = memory.slice(8, 0);
        empty.pin().and_then(|()| empty.unpin()).expect("nothing to do");
    }

    #[test]
    fn a_refusal_names_the_limit() {
        let error = rustix::io::Errno::NOMEM.into();
        let refused = refusal(65536, &error, Some(8192));
        assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory);
        let text = refused.to_string();
        assert!(text.starts_with("cannot pin 65536 bytes: "), "{text}");
        assert!(text.contains("RLIMIT_MEMLOCK of this process is 8192 bytes"), "{text}");
        assert!(refusal(1, &error, None).to_string().contains("is unlimited"));
    }

    #[test]
    #[cfg_attr(not(target_arch = "x86_64"), ignore = "an emulator has mappings of its own")]
    fn the_system_is_asked_for_huge_pages_inside_the_run_only() {
        let memory = SharedBytes::heap(3 * HUGE);
        let flags_at = |address: usize| {
            let maps = fs::read_to_string("/proc/self/smaps").expect("a list of mappings");
            let mut is_it = false;
            let found = maps.lines().find_map(|line| {
                let range = line.split(' ').next().and_then(|range| range.split_once('-'));
                let range = range.map(|(from, to)| {
                    (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16))
                });
                if let Some((Ok(from), Ok(to))) = range {
                    is_it = (from..to).contains(&address);
                }
                line.strip_prefix("VmFlags:").filter(|_| is_it).map(str::to_owned)
            });
            found.expect("the mapping of the run")
        };
        let start = memory.base.as_ptr().addr();
        let first = start.next_multiple_of(HUGE);
        assert!(!flags_at(first).contains(" hg"), "not asked yet");
        memory.slice(0, HUGE - 8).ask_huge_pages().expect("none fits");
        memory.ask_huge_pages().expect("a kernel with transparent huge pages");
        assert!(flags_at(first).contains(" hg"));
        assert!(flags_at(first + HUGE).contains(" hg"));
        // The allocator puts a header in front of the run, so no huge page begins with it.
        let (before, behind) = (start, (start + 3 * HUGE) / HUGE * HUGE);
        assert!(before < first && behind < start + 3 * HUGE);
        for outside in [before, behind] {
            assert!(!flags_at(outside).contains(" hg"), "no whole page is there");
        }
        memory.store(3 * HUGE - 8, 1, Ordering::Relaxed);
        assert_eq!(memory.load(HUGE, Ordering::Relaxed), 0);
    }
}
