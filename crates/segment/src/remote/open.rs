//! [`OpenOptions`]: finding and opening a segment.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use transport_api::{HostId, RegionError};

use crate::engine::{Engine, PEER_TIMEOUT, attached, current, run};
use crate::error::{Label, SegmentError};
use crate::lookup::{self, Found, Query};
use crate::name::Name;
use crate::remote::renewal::{Info, Origin};
use crate::remote::segment::RemoteSegment;
use crate::shared::Shared;
use crate::table::{Published, Strategy};

/// How long a waiting open sleeps between two lookups: the first and the longest sleep.
const RETRY: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(20));

/// Options of finding and opening a segment: `segments.options().host(h).open("prices")`.
#[derive(Clone)]
#[must_use = "options do nothing until `open` is called"]
pub struct OpenOptions {
    shared: Arc<Shared>,
    host: Option<HostId>,
    timeout: Duration,
    query: Query,
}

impl RemoteSegment {
    /// Opens the segment that some host exports under `name`, in the rack that the calling thread is
    /// attached to, as [`Segments::open`](crate::Segments::open) does.
    ///
    /// # Errors
    /// As [`OpenOptions::open`]; [`SegmentError::NotAttached`].
    #[track_caller]
    pub fn open(name: &str) -> Result<RemoteSegment, SegmentError> {
        OpenOptions::new(current().ok_or(SegmentError::NotAttached)?).open(name)
    }

    /// As [`open`](Self::open), but only at `host`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[track_caller]
    pub fn open_at(host: HostId, name: &str) -> Result<RemoteSegment, SegmentError> {
        OpenOptions::new(current().ok_or(SegmentError::NotAttached)?).host(host).open(name)
    }
}

impl OpenOptions {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, host: None, timeout: Duration::ZERO, query: Query::default() }
    }

    /// Looks the name up at `host` only. The default is all hosts, in parallel.
    pub fn host(mut self, host: HostId) -> Self {
        self.host = Some(host);
        self
    }

    /// Waits up to `timeout` for the name to be published. The default is to return
    /// [`SegmentError::NotFound`] at once.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Reads the registry of the host even if the name is cached: the forced lookup of the paper's
    /// section 4.1.
    pub fn uncached(mut self) -> Self {
        self.query.is_forced = true;
        self
    }

    /// Selects how a lookup handles a hash collision in a registry (section 4.2).
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.query.strategy = strategy;
        self
    }

    /// Opens the segment. A fiber that has to wait parks; a thread that is not attached blocks.
    ///
    /// # Errors
    /// [`SegmentError::InvalidName`], [`SegmentError::NotFound`], [`SegmentError::Ambiguous`],
    /// [`SegmentError::OtherKind`], [`SegmentError::PeerLost`], [`SegmentError::Denied`] if the owner
    /// allows this host nothing, [`SegmentError::NoSuchHost`], [`SegmentError::Malformed`],
    /// [`SegmentError::Unanswered`], [`SegmentError::NotAttached`], [`SegmentError::RackEnded`].
    #[track_caller]
    pub fn open(&self, name: &str) -> Result<RemoteSegment, SegmentError> {
        let name = Name::new(name)?;
        self.retry(move |options, engine, query| options.try_open(engine, &name, query))
    }

    /// Finds what is published under the name, of any kind, and the host that publishes it; opens
    /// nothing. This is LOOKUPNAME of the paper's section 4.1.
    ///
    /// The entry may come from the cache: if its object is gone, look the name up again
    /// [`uncached`](Self::uncached).
    ///
    /// # Errors
    /// As [`open`](Self::open), except [`SegmentError::OtherKind`].
    #[track_caller]
    pub fn lookup(&self, name: &str) -> Result<Found, SegmentError> {
        let name = Name::new(name)?;
        self.retry(move |options, engine, query| lookup::lookup(engine, &name, options.host, query))
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Repeats `attempt` until it succeeds, fails for good, or times out.
    #[track_caller]
    fn retry<R: Send + 'static>(
        &self,
        attempt: impl Fn(&OpenOptions, &Engine, Query) -> Result<R, SegmentError>
        + Copy
        + Send
        + 'static,
    ) -> Result<R, SegmentError> {
        let (mut first_failure, mut pause) = (None, RETRY.0);
        let mut query = self.query;
        loop {
            let found = match attached(&self.shared) {
                Some(engine) => attempt(self, &engine, query),
                None => {
                    let options = self.clone();
                    run(&self.shared, move |engine| attempt(&options, engine, query))
                }
            };
            let timeout = match &found {
                // The cached entry may be stale.
                Err(SegmentError::OtherKind { .. }) if !query.is_forced => PEER_TIMEOUT,
                Err(SegmentError::PeerLost(..)) if !query.is_forced && self.host.is_none() => {
                    PEER_TIMEOUT
                }
                Err(SegmentError::NotFound { .. }) => self.timeout,
                // The entry was stale, or is listed while its region is being exported again.
                Err(error) if is_outdated(error) => self.timeout.max(PEER_TIMEOUT),
                _ => return found,
            };
            if first_failure.get_or_insert_with(Instant::now).elapsed() >= timeout {
                return found;
            }
            if self.shared.has_ended() {
                return Err(SegmentError::RackEnded);
            }
            // A name that was not found was not in the cache, so this was a real lookup.
            if query.is_forced || matches!(found, Err(SegmentError::NotFound { .. })) {
                self.sleep(pause);
                pause = (pause * 2).min(RETRY.1);
            }
            query.is_forced = true;
        }
    }

    /// Sleeps on the calling thread, so that the thread that serves it is free meanwhile.
    #[track_caller]
    fn sleep(&self, duration: Duration) {
        match attached(&self.shared) {
            Some(engine) => engine.sleep(duration),
            None => thread::sleep(duration),
        }
    }

    #[track_caller]
    fn try_open(
        &self,
        engine: &Engine,
        name: &Name,
        query: Query,
    ) -> Result<RemoteSegment, SegmentError> {
        let found = lookup::lookup(engine, name, self.host, query)?;
        let Found { host, entry, region: opened } = found;
        let Published::Segment { key, len, notify, thread } = entry.what else {
            return Err(SegmentError::OtherKind { name: *name, host, expected: "segment".into() });
        };
        let label = Label { name: *name, host };
        let region = engine.import(host, key, Duration::ZERO).map_err(|error| match error {
            RegionError::Denied { .. } => {
                SegmentError::Denied { segment: label.clone(), host: self.shared.local() }
            }
            error => SegmentError::region(label.clone(), error),
        })?;
        // The name may have been exported anew since the entry was written, and the region is then
        // that of a later one.
        if opened != Some(region.generation()) {
            let now = lookup::at_host(engine, name, host)?;
            if now != Some(entry) || region.len() as u64 != len {
                return Err(SegmentError::Revoked {
                    segment: label,
                    generation: Some(entry.generation),
                });
            }
            engine.shared.clerk.learn_region(host, &entry, region.generation());
        }
        let origin = Origin { label, generation: entry.generation, notify, thread };
        let info = Info::new(&self.shared, &region, origin);
        Ok(RemoteSegment::new(self.shared.clone(), region, info))
    }
}

/// Whether an open has failed because its entry was stale.
fn is_outdated(error: &SegmentError) -> bool {
    match error {
        SegmentError::Revoked { .. } => true,
        SegmentError::Region { source, .. } => {
            matches!(**source, RegionError::Unknown { .. } | RegionError::NoAnswer { .. })
        }
        _ => false,
    }
}
