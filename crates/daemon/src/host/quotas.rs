//! How many requests a daemon serves at a time, for each member and in total, so that no member can
//! lock out others.
//!
//! | | each member | all together |
//! |---|---|---|
//! | viewers | [`PER_VIEWER`], of which [`FOLLOWED_BY_VIEWER`] follow logs | [`VIEWERS`] |
//! | administrators | [`PER_ADMIN`], of which [`FOLLOWED_BY_ADMIN`] follow logs | [`TOTAL`], with viewers |
//!
//! So viewers always leave `TOTAL - VIEWERS` places to administrators. A request to kill a job takes
//! no place: it is always served.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use daemon_protocol::{Name, Role};
use parking_lot::Mutex;
use thiserror::Error;

use crate::security::member::Member;

/// Requests served at a time.
const TOTAL: usize = 1024;
/// Of these, requests of viewers. All their connections fit into the 1024 descriptors that a process
/// may open by default, and leave most of these to administrators.
const VIEWERS: usize = 256;
const PER_VIEWER: usize = 64;
/// One administrator can run as many processes here as a daemon runs, and still call it.
const PER_ADMIN: usize = 512;
const FOLLOWED_BY_VIEWER: usize = 16;
const FOLLOWED_BY_ADMIN: usize = 64;

/// The limit for which a request is refused.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum QuotaReached {
    #[error(
        "{role} {name} has {limit} requests in progress at this daemon, the limit: wait for one to end"
    )]
    Member { name: Name, role: Role, limit: usize },
    #[error("{role} {name} follows {limit} logs at this daemon, the limit: stop following one")]
    Followed { name: Name, role: Role, limit: usize },
    #[error(
        "viewers have {VIEWERS} requests in progress at this daemon, the limit: try again later"
    )]
    Viewers,
    #[error("{TOTAL} requests are in progress at this daemon, the limit: try again later")]
    Total,
}

/// The requests that are being served.
#[derive(Debug, Default)]
pub(crate) struct Quotas(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    members: HashMap<(Name, Role), Count>,
    viewers: usize,
    total: usize,
}

#[derive(Debug, Default)]
struct Count {
    requests: usize,
    followed: usize,
}

impl Quotas {
    /// Takes a place for a request of `member`, which `follows` a log or not.
    ///
    /// # Errors
    /// [`QuotaReached`], if the member, all viewers or all members have too many already.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        member: &Member,
        follows: bool,
    ) -> Result<Permit, QuotaReached> {
        let is_admin = member.role == Role::Admin;
        let (requests, followed) = if is_admin {
            (PER_ADMIN, FOLLOWED_BY_ADMIN)
        } else {
            (PER_VIEWER, FOLLOWED_BY_VIEWER)
        };
        let key = (member.name.clone(), member.role);
        let (name, role) = key.clone();
        let mut table = self.0.lock();
        let theirs = table.members.get(&key);
        if theirs.is_some_and(|count| count.requests >= requests) {
            return Err(QuotaReached::Member { name, role, limit: requests });
        }
        if follows && theirs.is_some_and(|count| count.followed >= followed) {
            return Err(QuotaReached::Followed { name, role, limit: followed });
        }
        if !is_admin && table.viewers >= VIEWERS {
            return Err(QuotaReached::Viewers);
        }
        if table.total >= TOTAL {
            return Err(QuotaReached::Total);
        }
        table.total += 1;
        table.viewers += usize::from(!is_admin);
        let count = table.members.entry(key.clone()).or_default();
        count.requests += 1;
        count.followed += usize::from(follows);
        Ok(Permit { quotas: self.clone(), key, follows })
    }
}

/// The place of a request, freed when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    quotas: Arc<Quotas>,
    key: (Name, Role),
    follows: bool,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut table = self.quotas.0.lock();
        table.total -= 1;
        table.viewers -= usize::from(self.key.1 != Role::Admin);
        if let Entry::Occupied(mut theirs) = table.members.entry(self.key.clone()) {
            let count = theirs.get_mut();
            count.requests -= 1;
            count.followed -= usize::from(self.follows);
            // Removed, because a daemon serves many members over time.
            if count.requests == 0 {
                theirs.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, role: Role) -> Member {
        Member { rack: "r".parse().unwrap(), role, name: name.parse().unwrap() }
    }

    /// Takes places for `member` until one is refused; returns them and the reason.
    fn take_all(
        quotas: &Arc<Quotas>,
        member: &Member,
        follows: bool,
    ) -> (Vec<Permit>, QuotaReached) {
        let mut taken = Vec::new();
        loop {
            match quotas.acquire(member, follows) {
                Ok(permit) => taken.push(permit),
                Err(reached) => return (taken, reached),
            }
        }
    }

    #[test]
    fn a_viewer_follows_few_logs_and_may_ask_more() {
        let quotas = Arc::new(Quotas::default());
        let viewer = member("v", Role::Viewer);
        let (followed, reached) = take_all(&quotas, &viewer, true);
        assert_eq!(followed.len(), FOLLOWED_BY_VIEWER);
        assert!(matches!(reached, QuotaReached::Followed { .. }), "{reached}");
        let (others, reached) = take_all(&quotas, &viewer, false);
        assert_eq!(others.len(), PER_VIEWER - FOLLOWED_BY_VIEWER);
        let text =
            "viewer v has 64 requests in progress at this daemon, the limit: wait for one to end";
        assert_eq!(reached.to_string(), text);
        drop(followed);
        assert!(quotas.acquire(&viewer, true).is_ok(), "a place that was given back is free");
    }

    #[test]
    fn all_viewers_together_leave_most_places_to_administrators() {
        let quotas = Arc::new(Quotas::default());
        let mut held = Vec::new();
        for number in 0..=VIEWERS / PER_VIEWER {
            let viewer = member(&format!("v{number}"), Role::Viewer);
            let (taken, reached) = take_all(&quotas, &viewer, false);
            let is_last = number == VIEWERS / PER_VIEWER;
            assert_eq!(taken.is_empty(), is_last);
            assert_eq!(reached == QuotaReached::Viewers, is_last, "{reached}");
            held.extend(taken);
        }
        let (first, _) = take_all(&quotas, &member("a", Role::Admin), false);
        let (second, reached) = take_all(&quotas, &member("b", Role::Admin), false);
        assert_eq!(first.len(), PER_ADMIN);
        assert_eq!((second.len(), reached), (TOTAL - VIEWERS - PER_ADMIN, QuotaReached::Total));
    }

    #[test]
    fn members_who_are_gone_are_forgotten() {
        let quotas = Arc::new(Quotas::default());
        for number in 0..100 {
            let viewer = member(&format!("v{number}"), Role::Viewer);
            drop(quotas.acquire(&viewer, number % 2 == 0).unwrap());
        }
        let table = quotas.0.lock();
        assert_eq!((table.members.len(), table.viewers, table.total), (0, 0, 0));
    }
}
