//! How a process enters its rack once it is connected with all others of its machine: it exchanges
//! [`HostMemory`] with each, and starts its service thread. Racks within one process begin here.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::{io, thread};

use transport_api::HostId;

use crate::control::connection::Connection;
use crate::control::host::Host;
use crate::control::service::Service;
use crate::control::waker::Waker;
use crate::handshake::end::{End, cause};
use crate::handshake::error::{JoinError, Party, check_size};
use crate::memory::alarm_sockets::AlarmSockets;
use crate::memory::barrier::Barrier;
use crate::memory::host_memory::{HostMemory, Layout, Waking};
use crate::memory::mapping;
use crate::transport::ShmTransport;
use crate::wire::packet::{MAX_FILES, Packet};
use crate::wire::socket;

impl ShmTransport {
    /// A rack of one host: `threads` threads of this process, which delegate to each other over
    /// lanes to their own host.
    ///
    /// ```
    /// use gossamer_transport_shm::ShmTransport;
    /// use transport_api::{HostId, RegionKey, Rights, Transport};
    /// let rack = ShmTransport::threads(2)?;
    /// let region = rack.export(RegionKey(1), 64, Rights::ALL.into())?;
    /// let remote = rack.import(HostId(0), RegionKey(1), std::time::Duration::ZERO)?;
    /// let mut lane = rack.lane(0, HostId(0)).unwrap();
    /// lane.signal(&remote, 8, 7).unwrap();
    /// assert_eq!(region.memory().load(8, primitive::sync::Ordering::Acquire), 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`JoinError::Size`]; [`JoinError::System`] if the process has no address space left for the
    /// threads (about 1 MiB for each pair of them).
    pub fn threads(threads: u32) -> Result<Arc<ShmTransport>, JoinError> {
        check_size(1, threads)?;
        let memory = mapping::private(Layout::new(1, threads).bytes())?;
        let barrier = Barrier::within_process();
        let memories = vec![Some(HostMemory::new(memory, Waking::PRIVATE, barrier))];
        let host = Host::new(HostId(0), threads, memories, None);
        Ok(Arc::new(ShmTransport::new(Arc::new(host), None)))
    }

    /// A rack of `hosts` hosts that all live in this process, for tests and measurements: their
    /// memory, sockets and service threads are those of separate processes.
    ///
    /// # Errors
    /// [`JoinError::Size`], [`JoinError::System`].
    pub fn in_process(hosts: u32, threads: u32) -> Result<Vec<Arc<ShmTransport>>, JoinError> {
        check_size(hosts, threads)?;
        let pid = std::process::id();
        let mut ends: Vec<Vec<End>> = (0..hosts).map(|_| Vec::new()).collect();
        for (one, other) in (0..hosts).flat_map(|one| (0..one).map(move |other| (one, other))) {
            let (of_one, of_other) = socket::pair()?;
            for (at, to, socket) in [(one, other, of_one), (other, one, of_other)] {
                let host = HostId(to);
                ends[at as usize].push(End::new(Party::Host(host, pid), host, pid, socket)?);
            }
        }
        thread::scope(|scope| {
            let joins: Vec<_> = (0..)
                .zip(ends)
                .map(|(host, ends)| {
                    let rank = Rank { host: HostId(host), hosts, threads, has_alarms: false };
                    scope.spawn(move || assemble(rank, ends))
                })
                .collect();
            let panicked = |_| Err(io::Error::other("a joining thread panicked").into());
            joins.into_iter().map(|join| join.join().unwrap_or_else(panicked)).collect()
        })
    }
}

/// Which host of its rack a process is.
#[derive(Clone, Copy)]
pub(crate) struct Rank {
    pub(crate) host: HostId,
    /// Of the whole rack.
    pub(crate) hosts: u32,
    pub(crate) threads: u32,
    /// Whether threads are woken by alarms, because they wait for others than these hosts, too.
    pub(crate) has_alarms: bool,
}

/// Exchanges host memories over `ends`, one to every other host of this machine, and starts the
/// service thread.
pub(crate) fn assemble(rank: Rank, ends: Vec<End>) -> Result<Arc<ShmTransport>, JoinError> {
    let memories = exchange(rank, &ends).map_err(|error| cause(error, &ends))?;
    let host = Arc::new(Host::new(rank.host, rank.threads, memories, Some(Waker::new()?)));
    let connections =
        ends.into_iter().map(|end| Connection::new(end.host, end.peer, end.socket, end.pidfd));
    let service = Service::new(host.clone(), connections.collect());
    let thread = thread::Builder::new().name("gossamer-shm".into()).spawn(|| service.run())?;
    Ok(Arc::new(ShmTransport::new(host, Some(thread))))
}

/// Sends the memory of this host over `ends`; the memories of all hosts at the other ends and of this
/// one.
fn exchange(rank: Rank, ends: &[End]) -> Result<Vec<Option<HostMemory>>, JoinError> {
    let Rank { host: local, hosts, threads, has_alarms } = rank;
    let bytes = Layout::new(hosts, threads).bytes();
    let (memory, file) = mapping::shared(bytes, true)?;
    // No thread of another process wakes one of a host that is alone on its machine.
    let barrier =
        if ends.is_empty() { Barrier::within_process() } else { Barrier::between_processes() };
    let AlarmSockets { waiting, ringing } =
        AlarmSockets::new(if has_alarms { threads } else { 0 })?;
    for end in ends {
        end.send(&Packet::Memory { host: local }, std::slice::from_ref(&file))?;
        for some in ringing.chunks(MAX_FILES) {
            end.send(&Packet::Alarms { count: some.len() as u32 }, some)?;
        }
    }
    let waking = |ringing: Vec<OwnedFd>, waiting: Vec<OwnedFd>| match has_alarms {
        true => Waking::Alarms { ringing: ringing.into(), waiting: waiting.into() },
        false => Waking::SHARED,
    };
    let mut memories: Vec<Option<HostMemory>> = (0..hosts).map(|_| None).collect();
    let own = HostMemory::new(memory, waking(ringing, waiting), barrier);
    memories[local.0 as usize] = Some(own);
    for end in ends {
        let file = match end.receive()? {
            (Packet::Memory { host }, mut files) if host == end.host => files.pop(),
            (other, _) => return Err(end.violation(format!("{other:?} instead of a host memory"))),
        };
        let file = file.ok_or_else(|| end.violation("a host memory without its file"))?;
        let memory = mapping::of_peer(&file, bytes, true)?;
        let mut alarms = Vec::new();
        while has_alarms && alarms.len() < threads as usize {
            match end.receive()? {
                (Packet::Alarms { count }, more) if count > 0 => alarms.extend(more),
                (other, _) => return Err(end.violation(format!("{other:?} instead of alarms"))),
            }
        }
        match memories.get_mut(end.host.0 as usize) {
            Some(slot @ None) => {
                *slot = Some(HostMemory::new(memory, waking(alarms, Vec::new()), barrier));
            }
            _ => {
                return Err(
                    end.violation(format!("the memory of {} in a rack of {hosts} hosts", end.host))
                );
            }
        }
    }
    Ok(memories)
}

#[cfg(test)]
mod tests {
    use primitive::limits::HOSTS;

    use super::*;

    #[test]
    fn sizes_beyond_the_limits_are_refused() {
        for (hosts, threads) in [(0, 1), (1, 0), (HOSTS as u32 + 1, 1), (1, u32::MAX)] {
            assert!(matches!(
                ShmTransport::in_process(hosts, threads),
                Err(JoinError::Size(h, t)) if (h, t) == (hosts, threads)
            ));
        }
    }
}
