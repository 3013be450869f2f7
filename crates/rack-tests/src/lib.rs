//! What holds on every rack, however many hosts it has and whatever connects them. Each behaviour
//! is the main function of a rack that is checked for leaks afterwards; `api.rs` runs them over the
//! threads and hosts of one process, `processes.rs` over real processes, and `rdma.rs` over devices. A
//! library, so that the compiler makes the code of each closure once for all
//! of these programs.
//!
//! Emulated devices are slow, so `rdma.rs` runs the behaviours that depend on the transport: batches and
//! values of every size, their order, back-pressure, and access to the memory of another host. The
//! others (chains of callbacks, latches, channels, timeouts, panics and the forms of a call) are code above the transport,
//! which sends nothing else. With the feature `rdma` these others are not compiled.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "the name of a behaviour is what it says")]

pub mod calls;
#[cfg(not(feature = "rdma"))]
pub mod fibers;
#[cfg(not(feature = "rdma"))]
pub mod latches;
#[cfg(not(feature = "rdma"))]
pub mod lending;
#[cfg(not(feature = "rdma"))]
pub mod matrix;
#[cfg(not(feature = "rdma"))]
pub mod panics;
#[cfg(not(feature = "rdma"))]
pub mod prefetch;
pub mod records;
pub mod scatter;
pub mod segments;
pub mod sizes;
pub mod support;
#[cfg(not(feature = "rdma"))]
pub mod sync;
#[cfg(not(feature = "rdma"))]
pub mod sync_waits;
pub mod teams;
pub mod trusts;
pub mod views;
#[cfg(not(feature = "rdma"))]
pub mod waits;

/// Hands the list of all behaviours to a macro.
#[macro_export]
macro_rules! behaviours {
    ($with:ident) => {
        $crate::behaviours_of_transports! {
            $with
            calls: callbacks_may_send_without_end;
            fibers: fibers_run_where_they_are_sent;
            fibers: panics_of_fibers_reach_whoever_joins;
            fibers: ten_thousand_fibers_wait_at_once;
            fibers: a_barrier_holds_everybody_every_time;
            fibers: fibers_sleep_as_long_as_they_asked;
            fibers: shards_are_found_by_key_from_everywhere;
            fibers: values_are_entrusted_to_any_thread;
            fibers: calls_on_the_own_thread_let_its_other_fibers_run;
            fibers: calls_on_the_own_thread_let_requests_be_served;
            latches: a_launched_closure_may_wait;
            latches: launches_exclude_each_other;
            latches: readers_share_a_latch;
            latches: readers_do_not_keep_a_writer_out;
            latches: reads_inside_reads_are_refused;
            latches: a_latch_is_given_in_order;
            latches: launches_without_a_waiter;
            latches: a_panic_in_a_launch_opens_the_latch;
            latches: a_launch_that_would_wait_for_its_own_caller_is_refused;
            latches: launches_that_wait_for_no_caller_are_not_refused;
            latches: launches_are_nested_so_deep_and_no_deeper;
            latches: locking_a_latch_twice_is_refused;
            latches: a_guard_comes_with_and_without_arguments_and_errors;
            latches: launched_closures_wait_for_each_other_under_a_latch;
            lending: lent_arguments_of_all_sizes_are_whole;
            lending: what_lent_arguments_find_is_seen_where_it_lies;
            lending: a_hook_sees_lent_arguments_before_they_are_served;
            lending: panics_beside_lent_arguments_are_those_of_their_calls;
            lending: lent_views_carry_trusts;
            matrix: every_call_on_a_property;
            matrix: every_call_on_a_latch;
            matrix: every_call_on_a_trustee;
            matrix: every_way_to_entrust;
            matrix: errors_travel_with_a_question_mark;
            matrix: ids_are_those_of_properties_on_every_thread;
            matrix: threads_are_counted_and_numbered;
            panics: a_panic_reaches_the_caller_and_the_property_goes_on;
            panics: a_panic_of_a_closure_says_where_it_was;
            panics: a_panic_of_a_fiber_says_where_it_was;
            panics: panics_of_views_of_several_fibers_say_where_each_was;
            panics: every_panic_of_a_batch_is_its_own;
            panics: a_callback_for_failures_is_called_once;
            panics: a_result_whose_drop_panics_is_a_panic_of_its_own;
            panics: waiting_in_a_delegated_closure_names_both_places;
            panics: values_that_cannot_be_encoded_or_decoded;
            prefetch: a_hook_sees_requests_before_they_are_served;
            prefetch: others_run_while_a_call_on_the_own_thread_waits_for_memory;
            prefetch: panics_beside_a_hook_are_those_of_their_calls;
            sync: values_of_every_thread_arrive_in_order;
            sync: senders_wait_while_a_channel_is_full;
            sync: a_channel_may_have_any_capacity;
            sync: a_receiver_that_goes_gives_values_back;
            sync: receivers_travel_with_what_they_have_brought;
            sync: a_channel_takes_what_arguments_take;
            sync: notifications_are_permits;
            sync: shards_are_called_at_once;
            sync: a_flush_waits_for_callbacks_and_a_fence_for_all_threads;
            sync: fibers_of_a_scope_borrow_on_all_threads_of_the_host;
            sync: callbacks_of_a_scope_borrow;
            sync: blocking_work_and_futures_park_the_fiber;
            sync_waits: no_value_of_a_channel_that_loses_is_lost;
            sync_waits: a_receiver_waits_up_to_a_timeout;
            sync_waits: a_receiver_that_has_begun_to_wait_may_travel;
            sync_waits: no_permit_is_lost_when_a_wait_gives_up;
            sync_waits: a_notified_future_that_is_dropped_gives_its_permit_back;
            waits: a_call_that_times_out_still_runs;
            waits: calls_on_the_own_thread_do_not_time_out;
            waits: a_launch_that_times_out_runs_when_the_latch_is_free;
            waits: a_timed_launch_that_waits_for_itself_is_refused_at_once;
            waits: a_timed_launch_begins_a_new_chain;
            waits: a_join_that_times_out_gives_the_handle_back;
            waits: replies_are_waited_for_later;
            waits: whatever_is_there_first_is_selected;
            waits: losers_of_a_select_keep_their_value;
            waits: intervals_and_deadlines_do_not_drift;
        }
    };
}

/// Hands the list of the behaviours that depend on the transport to a macro, and that of `more`.
#[macro_export]
macro_rules! behaviours_of_transports {
    ($with:ident $($more:tt)*) => {
        $with! {
            calls: results_come_back_from_every_thread;
            calls: requests_of_a_pair_of_threads_keep_their_order;
            calls: delegated_code_calls_its_own_thread;
            calls: every_thread_calls_every_other;
            calls: values_are_delegated_by_name;
            calls: failures_come_back_as_errors;
            calls: arguments_may_wait_when_they_are_dropped;
            calls: a_flood_waits_for_its_trustee;
            calls: callbacks_that_send_are_never_refused;
            segments: fibers_of_every_thread_share_a_segment;
            segments: access_is_by_host_and_notifications_park_the_fiber;
            segments: errors_and_hosts_travel_with_a_question_mark;
            segments: threads_outside_the_rack_use_segments_in_order;
            segments: every_thread_finds_a_trust_by_its_name;
            segments: a_publication_that_was_dropped_is_not_found;
            segments: types_and_kinds_are_told_apart;
            segments: two_hosts_with_the_name_are_told_apart_by_options;
            segments: the_example_of_an_exchange_has_a_good_day;
            records: records_are_read_both_ways_from_everywhere;
            records: readers_of_records_beside_their_writer_see_whole_values;
            records: records_are_seen_by_whoever_hears_of_them;
            records: records_of_a_full_shard_are_refused_and_names_are_taken_once;
            scatter: every_update_runs_once_at_its_shard;
            scatter: updates_of_a_shard_keep_their_order;
            scatter: what_has_been_collected_is_sent_by_a_flush_and_a_drop;
            scatter: delegated_code_sends_updates;
            scatter: updates_carry_trusts;
            scatter: a_flush_and_a_fence_send_what_is_collected;
            scatter: a_barrier_and_quiescence_send_what_is_collected;
            scatter: a_flush_waits_for_an_update_that_waits;
            scatter: a_flush_sends_what_is_collected_beside_a_flood;
            sizes: arguments_of_all_sizes_keep_their_order;
            sizes: batches_are_taken_whole_or_not_at_all;
            sizes: results_of_all_sizes_come_back;
            sizes: bulk_requests_that_are_refused_do_not_disturb_others;
            teams: collectives_agree_on_every_member;
            teams: vectors_of_all_sizes_are_exchanged;
            teams: a_barrier_is_a_fence_for_requests_without_a_waiter;
            teams: work_that_makes_work_is_waited_for;
            teams: work_that_callbacks_make_is_waited_for;
            teams: teams_that_quiesce_at_the_same_time_end;
            teams: a_part_that_cannot_be_sent_ends_the_team;
            teams: a_member_that_does_not_start_ends_the_team;
            teams: members_end_if_the_others_cannot_be_started;
            teams: the_member_that_ends_first_is_named;
            trusts: a_property_dies_after_its_last_trust;
            trusts: trusts_travel_in_arguments_and_results;
            trusts: trusts_live_in_properties;
            trusts: trusts_are_cloned_and_dropped_in_delegated_context;
            trusts: a_trust_is_dropped_on_a_foreign_thread;
            trusts: a_drop_does_not_overtake_what_was_queued;
            trusts: a_drop_does_not_overtake_what_was_queued_before_a_move;
            views: every_form_sees_the_same;
            views: views_of_all_sizes_are_whole;
            views: panics_of_both_closures_of_a_view;
            views: views_from_delegated_code;
            $($more)*
        }
    };
}
