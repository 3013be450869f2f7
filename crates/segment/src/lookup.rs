//! Lookups of names (section 4.1 of the paper): here, in the cache, or by READs of other hosts'
//! registries, all hosts at once if none is named.

use std::time::{Duration, Instant};

use progress::{Import, Operation};
use transport_api::{HostId, OpError, RegionError, RemoteRegion};

use crate::clerk::{Known, REGISTRY};
use crate::engine::{Engine, PEER_TIMEOUT};
use crate::error::{Label, SegmentError};
use crate::name::Name;
use crate::table::{ENTRY_BYTES, Entry, Lookup, Next, Probe, Published, Strategy};

/// How a name is looked up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Query {
    /// Whether to ignore the cache.
    pub(crate) is_forced: bool,
    pub(crate) strategy: Strategy,
}

/// A name that was found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The host that publishes it.
    pub host: HostId,
    /// What that host publishes.
    pub entry: Entry,
    /// If the entry is from the cache: the generation of the region that it was opened with.
    pub(crate) region: Option<u32>,
}

/// The thread of every host that answers lookups with control transfer.
const CLERK: u32 = 0;

/// Finds a name at `host`, or at the one host that publishes it.
///
/// # Errors
/// [`SegmentError::NotFound`], [`SegmentError::Ambiguous`], [`SegmentError::Malformed`],
/// [`SegmentError::PeerLost`] if it is the named host that is gone.
#[track_caller]
pub(crate) fn lookup(
    engine: &Engine,
    name: &Name,
    host: Option<HostId>,
    query: Query,
) -> Result<Found, SegmentError> {
    if let Some(host) = host.filter(|host| host.0 >= engine.progress.hosts()) {
        return Err(SegmentError::NoSuchHost(host));
    }
    if !query.is_forced
        && let Some(host) = host.or_else(|| engine.shared.clerk.only_host(name))
        && let Some(found) = known(engine, name, host)
    {
        return Ok(found);
    }
    match host {
        Some(host) if host == engine.shared.local() => known(engine, name, host),
        Some(host) => {
            if let Some((generation, what)) = read_first(engine, name, host, query.strategy) {
                let entry = Entry { name: *name, generation, what };
                return Ok(Found { host, entry, region: None });
            }
            let entry = search(engine, name, host, query.strategy)?;
            entry.map(|entry| Found { host, entry, region: None })
        }
        None => return lookup_everywhere(engine, name, query.strategy),
    }
    .ok_or_else(|| SegmentError::NotFound { name: *name, hosts: host.into_iter().collect() })
}

/// What this host knows without asking another: all of its own names, and those of other hosts that it
/// has found before.
fn known(engine: &Engine, name: &Name, host: HostId) -> Option<Found> {
    let clerk = &engine.shared.clerk;
    if host == engine.shared.local() {
        return clerk.find(name).map(|entry| Found { host, entry, region: None });
    }
    clerk.cached(host, name).map(|Known { entry, region }| Found { host, entry, region })
}

/// Generation and object of a name from the first slot of a registry that is mapped. Most lookups find
/// the name there.
#[inline]
fn read_first(
    engine: &Engine,
    name: &Name,
    host: HostId,
    strategy: Strategy,
) -> Option<(u32, Published)> {
    let may_read = !matches!(strategy, Strategy::Ask | Strategy::ProbeThenAsk(0));
    let read = || engine.shared.clerk.read_first(host, name, || engine.progress.is_lost(host));
    if may_read { read() } else { None }
}

/// Searches the registry of another host.
#[cold]
#[inline(never)]
#[track_caller]
fn search(
    engine: &Engine,
    name: &Name,
    host: HostId,
    strategy: Strategy,
) -> Result<Option<Entry>, SegmentError> {
    let search = Registry::begin(engine, host).begin_search(engine, name, strategy);
    end_search(engine, name, host, search)
}

/// Finds a name at the one host that publishes it: reads all registries side by side.
#[track_caller]
fn lookup_everywhere(
    engine: &Engine,
    name: &Name,
    strategy: Strategy,
) -> Result<Found, SegmentError> {
    let (clerk, local) = (&engine.shared.clerk, engine.shared.local());
    let others = (0..engine.progress.hosts()).map(HostId).filter(|host| *host != local);
    let registries: Vec<_> = others.map(|host| Registry::begin(engine, host)).collect();
    let begin = |registry: Registry| (registry.host, registry.begin_search(engine, name, strategy));
    // All first reads are under way before the first is waited for.
    let searches: Vec<_> = registries.into_iter().map(begin).collect();
    let mut found: Vec<_> = known(engine, name, local).into_iter().collect();
    let mut failed = None;
    for (host, search) in searches {
        match end_search(engine, name, host, search) {
            Ok(entry) => found.extend(entry.map(|entry| Found { host, entry, region: None })),
            // A lost host counts as one without the name.
            Err(SegmentError::PeerLost(..)) => clerk.forget(host, name),
            // An unreadable registry is an error only if no other host publishes the name.
            Err(error) => _ = failed.get_or_insert(error),
        }
    }
    if let Some(error) = failed.filter(|_| found.is_empty()) {
        return Err(error);
    }
    let only = if let [only] = found[..] { Some(only.host) } else { None };
    clerk.learn_only(name, only);
    match found[..] {
        [one] => Ok(one),
        [] => Err(SegmentError::NotFound { name: *name, hosts: Vec::new() }),
        _ => {
            let mut hosts: Vec<_> = found.iter().map(|found| found.host).collect();
            hosts.sort();
            Err(SegmentError::Ambiguous { name: *name, hosts })
        }
    }
}

/// What `host` publishes under a name now.
#[track_caller]
pub(crate) fn at_host(
    engine: &Engine,
    name: &Name,
    host: HostId,
) -> Result<Option<Entry>, SegmentError> {
    let query = Query { is_forced: true, ..Query::default() };
    match lookup(engine, name, Some(host), query) {
        Ok(found) => Ok(Some(found.entry)),
        Err(SegmentError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads every cached entry again, and drops those that no longer exist (the refresh of section 4.1);
/// the number that remain.
#[track_caller]
pub(crate) fn refresh(engine: &Engine) -> Result<usize, SegmentError> {
    let mut left = 0;
    for (host, entry) in engine.shared.clerk.all_cached() {
        match at_host(engine, &entry.name, host) {
            Ok(now) => left += usize::from(now.is_some()),
            Err(SegmentError::PeerLost(..)) => engine.shared.clerk.forget_host(host),
            Err(error) => return Err(error),
        }
    }
    Ok(left)
}

/// The registry of another host, which is imported for the first lookup.
struct Registry {
    host: HostId,
    known: Result<RemoteRegion, Result<Import, RegionError>>,
}

impl Registry {
    fn begin(engine: &Engine, host: HostId) -> Registry {
        let known = engine.shared.clerk.registry_of(host);
        let import = || engine.begin_import(host, REGISTRY, Duration::ZERO);
        Registry { host, known: known.ok_or_else(import) }
    }

    /// The region; `None` if the host publishes nothing.
    #[track_caller]
    fn finish(self, engine: &Engine, name: &Name) -> Result<Option<RemoteRegion>, SegmentError> {
        let Registry { host, known } = self;
        let mut import = match known {
            Ok(region) => return Ok(Some(region)),
            Err(import) => import,
        };
        let deadline = Instant::now() + PEER_TIMEOUT;
        let imported = loop {
            match import.and_then(|import| engine.wait_import(import)) {
                // A host that is busy may publish the name: ask again.
                Err(RegionError::NoAnswer { .. })
                    if Instant::now() < deadline && !engine.shared.has_ended() =>
                {
                    import = engine.begin_import(host, REGISTRY, Duration::ZERO);
                }
                imported => break imported,
            }
        };
        match imported {
            Ok(region) => match engine.loss_of(host) {
                Some(lost) => Err(lost),
                None => {
                    engine.shared.clerk.learn_registry(host, region.clone());
                    Ok(Some(region))
                }
            },
            Err(RegionError::Unknown { .. }) => Ok(None),
            Err(RegionError::NoAnswer { .. }) => {
                Err(SegmentError::Unanswered { name: *name, host })
            }
            Err(error) => Err(SegmentError::region(Label { name: *name, host }, error)),
        }
    }

    /// Begins to look a name up; `None` if the host publishes nothing.
    #[track_caller]
    fn begin_search(
        self,
        engine: &Engine,
        name: &Name,
        strategy: Strategy,
    ) -> Result<Option<Search>, SegmentError> {
        let region = self.finish(engine, name)?;
        Ok(region.map(|region| Search::begin(engine, name, region, strategy)))
    }
}

/// Ends a search at `host`, and notes in the cache what it found.
#[track_caller]
fn end_search(
    engine: &Engine,
    name: &Name,
    host: HostId,
    search: Result<Option<Search>, SegmentError>,
) -> Result<Option<Entry>, SegmentError> {
    let entry = match search {
        Ok(Some(search)) => search.finish(engine, name),
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    };
    // The host may have been lost while others were asked; where its memory is mapped, no other check
    // notices that.
    let entry = engine.loss_of(host).map_or(entry, Err)?;
    match entry {
        Some(entry) => engine.shared.clerk.learn(host, entry),
        None => engine.shared.clerk.forget(host, name),
    }
    Ok(entry)
}

/// A lookup in one registry.
struct Search {
    region: RemoteRegion,
    probe: Probe,
    /// The READ of the first slot, which is begun early; `None` if the registry is mapped, or the
    /// strategy asks the owner.
    first: Option<Result<(Operation, primitive::SharedBytes), OpError>>,
}

impl Search {
    fn begin(engine: &Engine, name: &Name, region: RemoteRegion, strategy: Strategy) -> Search {
        let probe = Probe::new(*name, strategy);
        let first = match probe.next() {
            Next::Read(bytes) if region.window().is_none() => {
                Some(engine.begin_read(&region, bytes.start, ENTRY_BYTES))
            }
            _ => None,
        };
        Search { region, probe, first }
    }

    #[track_caller]
    fn finish(mut self, engine: &Engine, name: &Name) -> Result<Option<Entry>, SegmentError> {
        let host = self.region.owner();
        let refused = |error| SegmentError::refused(Label { name: *name, host }, error);
        loop {
            let at = match self.probe.next() {
                Next::Read(bytes) => bytes.start,
                Next::Done(Lookup::Found(entry)) => return Ok(Some(entry)),
                Next::Done(Lookup::NotFound) => return Ok(None),
                // The owner can answer even if its entry is torn at every READ.
                Next::Done(Lookup::Ask | Lookup::Torn { .. }) => {
                    return engine.ask(host, CLERK, name);
                }
                Next::Done(Lookup::Malformed { reason, .. }) => {
                    return Err(SegmentError::Malformed { name: *name, host, reason });
                }
            };
            let mut entry = [0; ENTRY_BYTES];
            match self.region.window() {
                Some(window) => window.read_into(at, &mut entry).map_err(refused)?,
                None => {
                    let begun = self.first.take();
                    let begun =
                        begun.unwrap_or_else(|| engine.begin_read(&self.region, at, ENTRY_BYTES));
                    let (read, bytes) = begun.map_err(refused)?;
                    engine.wait(read).map_err(refused)?;
                    bytes.read_into(0, &mut entry);
                }
            }
            self.probe.take(&entry);
        }
    }
}
