//! Lookups of names (section 4.1 of the paper): here, in the cache, or by READs of other hosts'
//! registries, all hosts at once if none is named.

use std::time::{Duration, Instant};

use progress::Operation;
use transport_api::{HostId, OpError, RegionError, RemoteRegion};

use crate::clerk::{Known, REGISTRY};
use crate::engine::{Engine, PEER_TIMEOUT};
use crate::error::{Label, SegmentError};
use crate::name::Name;
use crate::table::{ENTRY_BYTES, Entry, Lookup, Next, Probe, Strategy};

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
    let all = || (0..engine.progress.hosts()).map(HostId).collect::<Vec<_>>();
    if let Some(host) = host.filter(|host| host.0 >= engine.progress.hosts()) {
        return Err(SegmentError::NoSuchHost(host));
    }
    let hosts = host.map_or_else(all, |host| vec![host]);
    let clerk = &engine.shared.clerk;
    let local = engine.shared.local();
    let own = || clerk.find(name).map(|entry| Found { host: local, entry, region: None });
    if !query.is_forced
        && let Some(host) = host.or_else(|| clerk.only_host(name))
    {
        let cached = if host == local {
            own()
        } else {
            let known = clerk.cached(host, name);
            known.map(|Known { entry, region }| Found { host, entry, region })
        };
        if let Some(found) = cached {
            return Ok(found);
        }
    }
    let mut found: Vec<_> = own().filter(|_| hosts.contains(&local)).into_iter().collect();
    let others: Vec<_> = hosts.into_iter().filter(|host| *host != local).collect();
    let mut failed = None;
    for (of, result) in search(engine, name, &others, query.strategy) {
        // It may have been lost while others were asked; where its memory is mapped, no other check
        // notices that.
        let result = engine.loss_of(of).map_or(result, Err);
        match result {
            Ok(Some(entry)) => {
                clerk.learn(of, entry);
                found.push(Found { host: of, entry, region: None });
            }
            Ok(None) => clerk.forget(of, name),
            // If the caller named no host, a lost host counts as one without the name.
            Err(SegmentError::PeerLost(..)) if host.is_none() => clerk.forget(of, name),
            // Nor does one whose registry cannot be read stand in the way of others.
            Err(error) => _ = failed.get_or_insert(error),
        }
    }
    if let Some(error) = failed.filter(|_| found.is_empty()) {
        return Err(error);
    }
    if host.is_none() {
        let only = if let [only] = found[..] { Some(only.host) } else { None };
        clerk.learn_only(name, only);
    }
    match found[..] {
        [one] => Ok(one),
        [] => Err(SegmentError::NotFound { name: *name, hosts: host.into_iter().collect() }),
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

type Searched = (HostId, Result<Option<Entry>, SegmentError>);

/// Looks a name up in the registries of `hosts`, side by side.
#[track_caller]
fn search(engine: &Engine, name: &Name, hosts: &[HostId], strategy: Strategy) -> Vec<Searched> {
    let registries = registries(engine, name, hosts);
    // All first reads are under way before the first is waited for.
    let begun: Vec<_> = registries
        .into_iter()
        .map(|(host, region)| {
            let search = region
                .map(|region| region.map(|region| Search::begin(engine, name, region, strategy)));
            (host, search)
        })
        .collect();
    let end = |search: Result<Option<Search>, SegmentError>| match search? {
        Some(search) => search.finish(engine, name),
        None => Ok(None),
    };
    begun.into_iter().map(|(host, search)| (host, end(search))).collect()
}

/// The registries of hosts, `None` for one that publishes nothing.
#[track_caller]
fn registries(
    engine: &Engine,
    name: &Name,
    hosts: &[HostId],
) -> Vec<(HostId, Result<Option<RemoteRegion>, SegmentError>)> {
    let (clerk, deadline) = (&engine.shared.clerk, Instant::now() + PEER_TIMEOUT);
    let begun: Vec<_> = hosts
        .iter()
        .map(|host| match clerk.registry_of(*host) {
            Some(region) => (*host, Ok(region)),
            None => (*host, Err(engine.begin_import(*host, REGISTRY, Duration::ZERO))),
        })
        .collect();
    let end = |(host, known)| {
        let region = match known {
            Ok(region) => return (host, Ok(Some(region))),
            Err(import) => import,
        };
        let mut import: Result<progress::Import, RegionError> = region;
        let imported = loop {
            match import.and_then(|import| engine.wait_import(import)) {
                // A busy host is not one without names.
                Err(RegionError::NoAnswer { .. })
                    if Instant::now() < deadline && !engine.shared.has_ended() =>
                {
                    import = engine.begin_import(host, REGISTRY, Duration::ZERO);
                }
                imported => break imported,
            }
        };
        let result = match imported {
            Ok(region) => match engine.loss_of(host) {
                Some(lost) => Err(lost),
                None => {
                    clerk.learn_registry(host, region.clone());
                    Ok(Some(region))
                }
            },
            Err(RegionError::Unknown { .. }) => Ok(None),
            Err(RegionError::NoAnswer { .. }) => {
                Err(SegmentError::Unanswered { name: *name, host })
            }
            Err(error) => Err(SegmentError::region(Label { name: *name, host }, error)),
        };
        (host, result)
    };
    begun.into_iter().map(end).collect()
}

/// A lookup in one registry.
struct Search {
    region: RemoteRegion,
    probe: Probe,
    /// The read of the first entry, if it is not mapped and not asked for otherwise.
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
