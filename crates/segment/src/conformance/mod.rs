//! The suite that segments pass on every transport, instantiated by one macro.
//!
//! ```text
//!   // a test program of a crate that has a transport
//!   fn rack(hosts: u32, threads: u32) -> transport_api::conformance::Rack { .. }
//!   gossamer_segment::conformance!(rack);
//! ```
//!
//! A test is a play with one script for each [`Player`]. In a rack with fewer hosts than players, checks
//! that need different hosts are skipped. A test that does not end within [`DEADLINE`] fails.
//!
//! Reading order: `player` (plays, also for the suites of layers above), `transfer` (bytes, words, fences, atomics), `refusals` (operations that fail before
//! anything is sent), `notification`, `revocation`, `names`, `life` (lost hosts, threads that are not
//! attached, sleep).

pub mod life;
pub mod names;
pub mod notification;
pub mod player;
pub mod refusals;
pub mod revocation;
pub mod transfer;

use transport_api::HostId;
#[doc(hidden)]
pub use transport_api::conformance_tests;

pub use self::player::DEADLINE;
use self::player::{Player, bounded, places, play, play_in, script};
use crate::{RemoteSegment, Segment, SegmentError};

/// Instantiates the whole suite for the racks that a [`Make`](transport_api::conformance::Make) makes. Attributes in front of the
/// function apply to every test: a transport that needs a device passes `#[ignore = ".."]`.
/// `one_host` behind it leaves out the tests that need several hosts.
#[macro_export]
macro_rules! conformance {
    ($(#[$attribute:meta])* $make:path) => {
        $crate::conformance!($(#[$attribute])* $make, one_host);
        $crate::conformance::conformance_tests! {
            [$(#[$attribute])*] $make, [$crate::conformance]:
            refusals {
                access_is_per_host,
            }
            names {
                a_name_of_two_hosts_is_ambiguous, a_cached_name_is_checked_when_it_is_opened,
                a_refresh_forgets_what_is_gone, colliding_names_are_found_by_every_strategy,
                an_entry_is_never_torn,
            }
            life {
                a_lost_host_is_reported_and_its_names_go,
            }
        }
    };
    ($(#[$attribute:meta])* $make:path, one_host) => {
        $crate::conformance::conformance_tests! {
            [$(#[$attribute])*] $make, [$crate::conformance]:
            transfer {
                bytes_come_back, values_come_back, blocks_of_any_length_come_back,
                a_word_is_never_torn, a_fence_covers_earlier_writes,
                a_fence_covers_all_segments_of_a_host, atomics_of_several_hosts_add_up,
                a_host_opens_its_own_segment,
            }
            refusals {
                operations_stay_inside_the_segment, words_are_aligned,
                operations_have_a_largest_size, operations_need_their_rights,
                bad_exports_and_opens_are_refused,
            }
            notification {
                a_notification_follows_its_data, the_segment_says_when_its_owner_is_notified,
                a_block_notifies_once, no_bytes_notify_too, untaken_notifications_are_counted,
                a_sleeping_owner_is_notified, a_callback_may_notify_again,
                a_notification_of_an_earlier_export_costs_nothing, waiting_ends_with_the_segment,
            }
            revocation {
                nothing_is_written_after_a_revocation, a_stale_handle_is_refused,
                a_fence_names_the_segment_that_refused, a_new_export_is_out_of_reach_of_old_handles,
                exports_that_follow_each_other_do_not_mix, a_dropped_segment_is_revoked,
                nothing_is_written_while_writes_are_inhibited,
                an_atomic_is_done_once_while_access_changes,
            }
            names {
                a_name_that_is_not_published_is_not_found, an_open_waits_for_a_later_export,
                a_host_has_room_for_a_limited_number_of_names,
            }
            life {
                threads_that_are_not_attached_use_segments, an_open_that_waits_keeps_nobody_waiting,
                a_server_that_cannot_start_can_be_started_again, operations_need_an_attached_thread,
                a_write_without_notification_takes_no_time_of_the_owner,
            }
        }
    };
}

impl Player {
    /// Exports a segment that grants all rights to all hosts.
    fn export(&self, name: &str, len: usize) -> Segment {
        self.segments.builder(name).len(len).export().expect("a segment")
    }

    /// Opens a segment that is exported.
    fn open(&self, name: &str) -> RemoteSegment {
        self.segments.open(name).expect("an open segment")
    }

    /// The host of this player.
    fn host(&self) -> HostId {
        self.segments.local()
    }

    /// How often to repeat a step: ten times as often where memory is mapped, as it costs little there.
    fn times(&self, times: u64) -> u64 {
        let is_mapped = self.segments.0.transport.maps(HostId(0));
        if is_mapped { 10 * times } else { times }
    }
}

/// `len` bytes that differ from those of other seeds, and from their neighbours.
fn pattern(len: usize, seed: u32) -> Vec<u8> {
    let byte = |n: u32| (n.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 23) as u8 | 1;
    (0..len as u32).map(byte).collect()
}

/// All bytes of a segment, as its owner sees them.
fn bytes(of: &Segment) -> Vec<u8> {
    let mut bytes = vec![0; of.len()];
    of.read(0, &mut bytes).expect("its own memory");
    bytes
}

/// Whether an operation was refused because the segment `name` was revoked.
fn is_revoked<T>(result: &Result<T, SegmentError>, name: &str) -> bool {
    matches!(result, Err(SegmentError::Revoked { segment, .. }) if segment.name.as_str() == name)
}
