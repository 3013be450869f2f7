//! [`Placement`]: where values and fibers go that name no trustee. `shared.rs` carries it out, and
//! `docs/decisions/0044-placement.md` gives the reasons for the default.

/// Where values and fibers go that name no trustee: those of
/// [`entrust_with`](crate::entrust_with) and [`spawn_with`](crate::spawn_with), which can be made on
/// any host. [`entrust`](crate::entrust) and [`spawn`](crate::spawn) take values and closures that
/// cannot travel, and stay on their host under every policy.
///
/// ```
/// use gossamer::{Placement, Rack};
///
/// let rack = Rack::new().hosts(1).threads(2).placement(Placement::OwnHost);
/// let host = rack.run(|| gossamer::spawn_with(|()| gossamer::local_host(), ()).join().unwrap())?;
/// assert_eq!(host.0, 0);
/// # Ok::<(), gossamer::RackError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// To the threads of the caller's host in turn.
    OwnHost,
    /// To the threads of all hosts in turn, a host after another; those that are lost are passed
    /// over.
    #[default]
    Rack,
}
