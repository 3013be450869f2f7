//! Trusts under names: [`publish`] and [`lookup`].
//!
//! The entry in the registry of the publisher's host contains a thread and the number of the
//! publication; that thread returns a clone of the trust. So a lookup is a READ of one entry and one
//! delegated call.

use std::any::type_name;
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Weak};

use gossamer_segment::{
    Found, Name, OpenOptions, Published, PublishedName, SegmentError, Segments,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use transport_api::{HostId, ThreadId};
use trust_core::{DelegateError, Node, Trust, Trustee};

use crate::publications::Unlike;
use crate::shared::Shared;
use crate::worker;

/// A trust that is published under a name until this is dropped. It keeps a clone of the trust.
#[must_use = "the name is taken back when this is dropped"]
pub struct Publication {
    /// `None` only while this is dropped.
    name: Option<PublishedName>,
    id: u64,
    shared: Weak<Shared>,
}

/// Why a lookup returned no trust. A delegated closure may return it.
#[derive(Clone, Debug, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum LookupError {
    /// The name was not found, or is not that of a trust.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The trust has a property of another type.
    #[error("\"{name}\" of {host} is a trust of {published}, not of {expected}")]
    OtherType {
        /// The name.
        name: Name,
        /// The host that publishes it.
        host: HostId,
        /// The type of the property.
        published: String,
        /// The type that was asked for.
        expected: Cow<'static, str>,
    },
    /// The delegated call to the host that publishes it failed.
    #[error("cannot ask {host} for \"{name}\"")]
    Delegate {
        /// The name.
        name: Name,
        /// The host that publishes it.
        host: HostId,
        /// Why.
        source: DelegateError,
    },
}

/// Publishes a trust under a name of this host, under which every host of the rack finds it with
/// [`lookup`]. The result keeps a clone of the trust, and withdraws the name when it is dropped;
/// clones that were looked up before stay valid.
///
/// A host has one name space for trusts and segments.
///
/// ```
/// use gossamer::Rack;
///
/// Rack::new().threads(2).run(|| {
///     let orders = gossamer::entrust(Vec::<String>::new());
///     let publication = gossamer::publish("orders", &orders).unwrap();
///
///     // On any host:
///     let found = gossamer::lookup::<Vec<String>>("orders").unwrap();
///     found.apply_with(|orders, order| orders.push(order), "buy 7".to_owned());
///
///     assert_eq!(orders.apply(|orders| orders.len()), 1);
///     drop(publication);
///     assert!(gossamer::lookup::<Vec<String>>("orders").is_err());
/// })?;
/// # Ok::<(), gossamer::RackError>(())
/// ```
///
/// # Errors
/// [`SegmentError::InvalidName`], [`SegmentError::NameTaken`], [`SegmentError::NamesFull`];
/// [`SegmentError::NotAttached`] outside a thread of a rack.
pub fn publish<T: 'static>(name: &str, trust: &Trust<T>) -> Result<Publication, SegmentError> {
    let shared = worker::shared().ok_or(SegmentError::NotAttached)?;
    let thread = trust_core::local_trustee().trustee().thread().thread;
    // Before the name is published, so that a lookup that finds the name finds the trust.
    let id = shared.publications.add(trust.clone());
    let mut publication = Publication { name: None, id, shared: Arc::downgrade(&shared) };
    let what = Published::Trust { thread, id };
    publication.name = Some(shared.segments.publish_entry(name, what)?);
    Ok(publication)
}

impl Publication {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &Name {
        self.name.as_ref().expect("only its drop takes it").name()
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        drop(self.name.take());
        if let Some(shared) = self.shared.upgrade() {
            shared.publications.remove(self.id);
        }
    }
}

impl fmt::Debug for Publication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publication").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The trust that a host has [published](publish) under `name`. Waits for that host's reply.
///
/// # Errors
/// [`SegmentError::NotFound`], also if the publication was dropped meanwhile or its host is gone;
/// [`SegmentError::Ambiguous`], if several hosts publish the name; [`SegmentError::OtherKind`], if it
/// is the name of a segment; [`LookupError::OtherType`]; [`SegmentError::NotAttached`] outside a
/// thread of a rack.
///
/// # Panics
/// In delegated context, which must not wait.
#[track_caller]
pub fn lookup<T: 'static>(name: &str) -> Result<Trust<T>, LookupError> {
    lookup_with(&Segments::current()?.options(), name)
}

/// As [`lookup`], with options: at which host, how long to wait until the name is published.
///
/// ```
/// use std::time::Duration;
/// use gossamer::Rack;
///
/// Rack::new().threads(2).run(|| {
///     drop(gossamer::spawn(|| {
///         let orders = gossamer::entrust(Vec::<String>::new());
///         let publication = gossamer::publish("orders", &orders).unwrap();
///         gossamer::sleep(Duration::from_secs(3600)); // published until the rack ends
///         drop(publication);
///     }));
///     let options = gossamer::segments().options().timeout(Duration::from_secs(60));
///     let orders = gossamer::lookup_with::<Vec<String>>(&options, "orders").unwrap();
///     assert_eq!(orders.apply(|orders| orders.len()), 0);
/// })?;
/// # Ok::<(), gossamer::RackError>(())
/// ```
///
/// # Errors
/// As [`lookup`]; [`SegmentError::PeerLost`], if the options name a host that is gone.
///
/// # Panics
/// As [`lookup`].
#[track_caller]
pub fn lookup_with<T: 'static>(options: &OpenOptions, name: &str) -> Result<Trust<T>, LookupError> {
    let found = options.lookup(name)?;
    if let Some(trust) = ask(&found)? {
        return Ok(trust);
    }
    // The cached entry may be stale.
    let found = options.clone().uncached().lookup(name)?;
    let gone = || SegmentError::NotFound { name: found.entry.name, hosts: vec![found.host] };
    Ok(ask(&found)?.ok_or_else(gone)?)
}

/// Asks the publishing thread for the trust; `None` if it no longer publishes it, or is gone.
#[track_caller]
fn ask<T: 'static>(found: &Found) -> Result<Option<Trust<T>>, LookupError> {
    let (host, name) = (found.host, found.entry.name);
    let Published::Trust { thread, id } = found.entry.what else {
        return Err(SegmentError::OtherKind { name, host, expected: "trust".into() }.into());
    };
    // No host of this build publishes a trust of a thread that it does not have.
    let Some(trustee) = Trustee::from_thread(ThreadId { host, thread }) else { return Ok(None) };
    match trustee.try_visit_node(|_: &Node, id: u64| find::<T>(id), id) {
        Ok(Ok(trust)) => Ok(Some(trust)),
        Ok(Err(None)) | Err(DelegateError::PeerLost { .. }) => Ok(None),
        Ok(Err(Some(published))) => {
            Err(LookupError::OtherType { name, host, published, expected: type_name::<T>().into() })
        }
        Err(source) => Err(LookupError::Delegate { name, host, source }),
    }
}

/// Runs at the host that publishes the trust.
fn find<T: 'static>(id: u64) -> Result<Trust<T>, Unlike> {
    worker::shared().ok_or(None)?.publications.find(id)
}
