//! The owners: they export, look at what peers write, revoke, and export again under the same name.

use std::time::{Duration, Instant};

use fastrand::Rng;
use gossamer::{Access, HostId, Notify, Rights, Segment, SegmentError, Segments, yield_now};

use super::super::ledger::Ledger;
use super::pattern::{CANARY, FREE, LEN, RECORD, first_torn, is_sealed, seal, value_of, words};
use super::{SHARED, expect, name_of, violation};
use crate::Plan;

/// How long a segment lives, at most.
const LIFE_MICROS: u64 = 6_000;
/// How long its memory is watched after it was revoked, at most.
const WATCH_MICROS: u64 = 1_500;
/// Bytes of that memory that are looked at in one go.
const PART: usize = 4096;

/// Exports the segment of thread `me` until `end`.
pub(super) fn run(mut rng: Rng, segments: &Segments, me: u32, end: Instant) -> Ledger {
    let mut ledger = Ledger::default();
    let mut generation = 0;
    while Instant::now() < end {
        let notify = [Notify::Conditional, Notify::Conditional, Notify::Always, Notify::Never];
        let notify = notify[rng.usize(..4)];
        let segment = match segments.builder(&name_of(me)).len(LEN).notify(notify).export() {
            Ok(segment) => segment,
            Err(SegmentError::RackEnded | SegmentError::NotAttached) => {
                ledger.violations.push(format!("thread {me} cannot export: the rack has ended"));
                break;
            }
            Err(error) => {
                violation(format!("thread {me} cannot export: {error:?}"));
                break;
            }
        };
        expect(segment.generation() == generation, || {
            format!(
                "export {generation} of {} has generation {}",
                name_of(me),
                segment.generation()
            )
        });
        generation += 1;
        live(&mut rng, &segment, generation, &mut ledger);
        retire(&mut rng, segment, &mut ledger);
    }
    ledger
}

/// Lets peers use the segment for a while, and looks at what they do.
fn live(rng: &mut Rng, segment: &Segment, generation: u32, ledger: &mut Ledger) {
    let head = segment.at(0).write(&seal(generation));
    expect(head.is_ok(), || format!("the owner cannot write to {segment:?}: {head:?}"));
    let mut record = match segment.record_at_byte(RECORD.start * 8) {
        Ok(record) => record,
        Err(error) => return violation(format!("{segment:?} takes no record: {error:?}")),
    };
    let until = Instant::now() + Duration::from_micros(rng.u64(..LIFE_MICROS));
    while Instant::now() < until {
        match rng.u32(..8) {
            0 => look(segment),
            1 => take_notifications(segment, ledger),
            2 => yield_now(),
            3 => change_access(rng, segment),
            4 | 5 => (0..rng.u32(..200)).for_each(|_| {
                let next = value_of(record.version() + 1);
                record.write(&next);
            }),
            _ => gossamer::sleep(Duration::from_micros(rng.u64(..300))),
        }
        ledger.operations += 1;
    }
}

/// No word of the segment is torn.
fn look(segment: &Segment) {
    let mut bytes = vec![0; LEN];
    let read = segment.read(0, &mut bytes);
    expect(read.is_ok(), || format!("the owner cannot read {segment:?}: {read:?}"));
    if let Some((at, word)) = first_torn(words(&bytes), 0) {
        violation(format!("the owner sees word {at} of {} torn: {word:#018x}", segment.name()));
    }
}

/// Notifications tell of places in the segment, where there is what they tell of.
fn take_notifications(segment: &Segment, ledger: &mut Ledger) {
    let notifications = segment.notifications();
    while let Ok(Some(notification)) = notifications.try_next() {
        ledger.operations += 1;
        let is_inside =
            notification.offset.checked_add(notification.len).is_some_and(|end| end <= LEN);
        let word = segment.at::<u64>(notification.offset / 8).read();
        expect(
            is_inside
                && notification.from.0 < Plan::HOSTS
                && segment.notify_mode() != Notify::Never,
            || format!("{segment:?} got {notification:?}"),
        );
        if FREE.contains(&(notification.offset / 8)) {
            expect(word.as_ref().is_ok_and(|word| is_sealed(*word)), || {
                format!("{segment:?} got {notification:?}, where there is {word:x?}")
            });
        }
    }
}

/// Allows peers less for a while. If none may write, none does, whatever was under way.
fn change_access(rng: &mut Rng, segment: &Segment) {
    let is_inhibited = rng.bool();
    let (changed, may_write) = if is_inhibited {
        (segment.inhibit_writes(), false)
    } else {
        let rights = [Rights::NONE, Rights::READ, Rights::READ | Rights::ATOMIC, Rights::WRITE];
        let rights = rights[rng.usize(..4)];
        let access = match rng.bool() {
            true => Access::all(Rights::READ).with(HostId(rng.u32(..Plan::HOSTS)), rights),
            false => Access::all(rights),
        };
        let may_write = access.any_allow(Rights::WRITE | Rights::ATOMIC);
        (segment.set_access(access), may_write)
    };
    if !has_changed(segment, changed) {
        return;
    }
    let mut before = vec![0; LEN];
    let _ = segment.read(0, &mut before);
    let until = Instant::now() + Duration::from_micros(rng.u64(..WATCH_MICROS));
    let mut now = vec![0; LEN];
    while Instant::now() < until {
        gossamer::sleep(Duration::from_micros(rng.u64(..300)));
        let _ = segment.read(0, &mut now);
        expect(may_write || now == before, || {
            format!("{} was written while no host was allowed to", segment.name())
        });
    }
    let changed = match is_inhibited {
        true => segment.allow_writes(),
        false => segment.set_access(Access::all(Rights::ALL)),
    };
    has_changed(segment, changed);
}

/// Whether access was changed: it fails only if the rack ends.
fn has_changed(segment: &Segment, changed: Result<(), SegmentError>) -> bool {
    match &changed {
        Ok(()) | Err(SegmentError::RackEnded | SegmentError::NotAttached) => {}
        Err(error) => violation(format!("the access of {segment:?} cannot be changed: {error:?}")),
    }
    changed.is_ok()
}

/// Takes the segment back. If that waits for peers, nothing is written to its memory afterwards.
fn retire(rng: &mut Rng, segment: Segment, ledger: &mut Ledger) {
    let name = *segment.name();
    if rng.u32(..5) == 0 {
        // Peers may still write what was under way.
        drop(segment);
        return;
    }
    let memory = segment.memory().clone();
    match segment.revoke() {
        Ok(()) => {}
        // It is no longer said when peers have stopped.
        Err(SegmentError::RackEnded | SegmentError::NotAttached) => return,
        Err(error) => return violation(format!("{name} cannot be revoked: {error:?}")),
    }
    ledger.operations += 1;
    let expected = [CANARY; PART];
    for at in (0..LEN).step_by(PART) {
        memory.write_words(at, &expected);
    }
    let until = Instant::now() + Duration::from_micros(rng.u64(..WATCH_MICROS));
    loop {
        let mut part = [0; PART];
        for at in (0..LEN).step_by(PART) {
            memory.read_words(at, &mut part);
            if part != expected {
                return violation(format!(
                    "{name}, bytes {at}.., was written after it was revoked"
                ));
            }
        }
        if Instant::now() >= until {
            return;
        }
        match rng.u32(..3) {
            0 => gossamer::sleep(Duration::from_micros(rng.u64(..200))),
            1 => yield_now(),
            _ => {}
        }
    }
}

/// Exports the name that other hosts export, too, now and then, until `end`.
pub(super) fn run_shared(mut rng: Rng, segments: &Segments, end: Instant) -> Ledger {
    let mut ledger = Ledger::default();
    while Instant::now() < end {
        match segments.builder(SHARED).len(64).export() {
            Ok(segment) => {
                gossamer::sleep(Duration::from_micros(rng.u64(..2_000)));
                drop(segment);
                ledger.operations += 1;
            }
            Err(SegmentError::RackEnded | SegmentError::NotAttached) => break,
            Err(error) => violation(format!("{SHARED} cannot be exported: {error:?}")),
        }
        gossamer::sleep(Duration::from_micros(rng.u64(..4_000)));
    }
    ledger
}
