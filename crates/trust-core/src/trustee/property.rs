//! The properties of one trustee: values of any type, found by number, dropped after their last
//! trust.
//!
//! The table that every request goes through has sixteen bytes a property (where it is, and the
//! tag of its type); what is only needed to count trusts and to drop stands beside it.
//!
//! The table belongs to the trustee's thread. Other threads of the process entrust values through a
//! [`Handoff`], which also allocates the numbers (the trustee takes several at a time, and uses its
//! own again, so that what its own thread entrusts needs no lock):
//! 1. The other thread puts the value there under a new number and makes the first trust. It does
//!    not wait for the trustee, so a value can be entrusted in any context.
//! 2. The trustee moves what is there into its table when a request names a number that the table
//!    lacks. That is soon enough: no request names the number before the value is there.

use std::cell::{RefCell, UnsafeCell};
use std::hint::cold_path;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;
use primitive::{CachePadded, drop_payload};

use crate::closure::registry::{Tag, registry};
use crate::trustee::count::Alive;

/// The address of a property, and the tag of its type.
#[derive(Clone, Copy)]
struct TypedAddress {
    value: *mut u8,
    /// Zero, which is no type's tag, where there is no property.
    tag: Tag,
}

const NOWHERE: TypedAddress = TypedAddress { value: std::ptr::null_mut(), tag: 0 };

struct Owned {
    trusts: Alive,
    free: unsafe fn(*mut u8),
    type_name: &'static str,
}

/// A value that is not in the table yet. Dropping this drops the value.
struct Pending {
    /// Where the value is, in a box.
    place: TypedAddress,
    owned: Option<Owned>,
}

// SAFETY: only `Handoff::hand_off` moves one to another thread, and it takes values that are
// `Send`; nothing else in it belongs to a thread.
unsafe impl Send for Pending {}

impl Pending {
    fn new<T: 'static>(value: T) -> Self {
        // The trustee writes the value all the time; on a cache line with something of another
        // thread, both would wait for each other.
        let value = Box::into_raw(Box::new(CachePadded::new(value))).cast();
        let owned =
            Owned { trusts: Alive::new(), free: free::<T>, type_name: std::any::type_name::<T>() };
        Pending { place: TypedAddress { value, tag: registry().tag_of::<T>() }, owned: Some(owned) }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(Owned { free, .. }) = self.owned.take() {
            let dead = Dead { value: self.place.value, free };
            // The thread that drops the last reference to the handoff may run no user code: a panic
            // of the value's destructor, which its hook has reported, must not unwind from there.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(dead))) {
                drop_payload(payload);
            }
        }
    }
}

/// Values that other threads of the process have entrusted to one trustee and that are not in its
/// table yet; and the allocator of its property numbers.
#[derive(Default)]
pub(crate) struct Handoff(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    /// Numbers that were used and are free again.
    free: Vec<u32>,
    /// The lowest number that was never used.
    next: u32,
    pending: Vec<(u32, Pending)>,
}

/// Numbers that a trustee takes at a time for what is entrusted by its own thread.
const TAKEN: usize = 16;
/// Free numbers that it keeps, at most: the rest may be used by others.
const KEPT: usize = 256;

impl Entries {
    fn number(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let number = self.next;
            self.next = number.checked_add(1).expect("fewer than four billion properties");
            number
        })
    }
}

impl Handoff {
    /// Entrusts a value from another thread, with one trust, which is counted; returns its number
    /// and tag.
    pub(crate) fn hand_off<T: Send + 'static>(&self, value: T) -> (u32, Tag) {
        let pending = Pending::new(value);
        let tag = pending.place.tag;
        let mut entries = self.0.lock();
        let number = entries.number();
        entries.pending.push((number, pending));
        (number, tag)
    }
}

/// A property taken out of the table because nothing refers to it any more; dropping this drops
/// the property, which may run any code.
pub(crate) struct Dead {
    value: *mut u8,
    free: unsafe fn(*mut u8),
}

impl Drop for Dead {
    fn drop(&mut self) {
        // SAFETY: `value` came from `Box::into_raw` with the type that `free` was made for, and
        // was taken out of the table, so this is the only owner left.
        unsafe { (self.free)(self.value) }
    }
}

/// # Safety
/// `value` came from `Box::<CachePadded<T>>::into_raw` and is freed here only.
unsafe fn free<T>(value: *mut u8) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(value.cast::<CachePadded<T>>()) });
}

/// The properties of one trustee thread.
#[derive(Default)]
pub(crate) struct Properties {
    places: UnsafeCell<Vec<TypedAddress>>,
    owned: RefCell<Vec<Option<Owned>>>,
    /// Free numbers that only this thread gives to properties, so that it needs no lock for them.
    numbers: RefCell<Vec<u32>>,
    handoff: Arc<Handoff>,
}

impl Properties {
    /// No properties yet; other threads entrust theirs through `handoff`.
    pub(crate) fn new(handoff: Arc<Handoff>) -> Self {
        Properties { handoff, ..Properties::default() }
    }

    /// Takes `value` into trust, with one trust, which is counted; returns its number and tag.
    pub(crate) fn insert<T: 'static>(&self, value: T) -> (u32, Tag) {
        let pending = Pending::new(value);
        let tag = pending.place.tag;
        let free = self.numbers.borrow_mut().pop();
        let number = free.unwrap_or_else(|| self.take_numbers());
        self.adopt(number, pending);
        (number, tag)
    }

    /// Takes some free numbers, and returns the lowest of them.
    #[cold]
    #[inline(never)]
    fn take_numbers(&self) -> u32 {
        let mut entries = self.handoff.0.lock();
        let mut numbers: Vec<_> = (0..TAKEN).map(|_| entries.number()).collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        let lowest = numbers.pop().expect("some were taken");
        *self.numbers.borrow_mut() = numbers;
        lowest
    }

    /// Makes a number free again.
    fn free_number(&self, number: u32) {
        let mut numbers = self.numbers.borrow_mut();
        numbers.push(number);
        if numbers.len() > KEPT {
            self.handoff.0.lock().free.extend(numbers.drain(KEPT / 2..));
        }
    }

    fn adopt(&self, number: u32, mut pending: Pending) {
        let index = number as usize;
        let mut owned = self.owned.borrow_mut();
        // SAFETY: the table is only ever referred to within a method of this type that calls
        // nothing else, and the type is not Sync.
        let places = unsafe { &mut *self.places.get() };
        if places.len() <= index {
            places.resize(index + 1, NOWHERE);
            owned.resize_with(index + 1, || None);
        }
        places[index] = pending.place;
        owned[index] = pending.owned.take();
    }

    /// Moves what other threads have entrusted into the table; whether there was anything.
    fn adopt_pending(&self) -> bool {
        let pending = std::mem::take(&mut self.handoff.0.lock().pending);
        let any = !pending.is_empty();
        for (number, pending) in pending {
            self.adopt(number, pending);
        }
        any
    }

    /// Where property `number` is, if it is there and of the type with this tag.
    #[inline(always)]
    pub(crate) fn find(&self, number: u32, tag: Tag) -> Option<NonNull<u8>> {
        self.find_adopted(number, tag).or_else(|| self.find_pending(number, tag))
    }

    #[inline(always)]
    fn find_adopted(&self, number: u32, tag: Tag) -> Option<NonNull<u8>> {
        // SAFETY: as in `adopt`.
        let places = unsafe { &*self.places.get() };
        match places.get(number as usize) {
            // Never null; so the pointer itself tells whether there is one.
            Some(place) if place.tag == tag => NonNull::new(place.value),
            _ => None,
        }
    }

    #[cold]
    #[inline(never)]
    fn find_pending(&self, number: u32, tag: Tag) -> Option<NonNull<u8>> {
        if self.adopt_pending() { self.find_adopted(number, tag) } else { None }
    }

    /// The name of the type of property `number`, for messages.
    pub(crate) fn type_name(&self, number: u32) -> Option<&'static str> {
        let owned = self.owned.borrow();
        owned.get(number as usize).and_then(Option::as_ref).map(|owned| owned.type_name)
    }

    /// Toggles trust ids of property `number`; what comes back is to be dropped by the caller,
    /// outside any borrow. Numbers that mean nothing are ignored: only a peer that broke the
    /// protocol sends them.
    pub(crate) fn toggle(&self, number: u32, ids: &[u64]) -> Option<Dead> {
        if self.type_name(number).is_none() {
            self.adopt_pending();
        }
        let mut owned = self.owned.borrow_mut();
        let property = owned.get_mut(number as usize)?.as_mut()?;
        let dead = property.trusts.toggle(ids.iter().copied());
        if dead { self.take(&mut owned, number) } else { None }
    }

    /// Counts one more trust of property `number`; false if there is no such property.
    #[inline(always)]
    pub(crate) fn count(&self, number: u32) -> bool {
        match self.owned.borrow_mut().get_mut(number as usize) {
            Some(Some(property)) => {
                property.trusts.count();
                return true;
            }
            _ => cold_path(),
        }
        self.adopt_pending() && self.count(number)
    }

    /// Drops a counted trust of property `number`, unless that would be its last; returns whether
    /// it did.
    #[inline(always)]
    pub(crate) fn uncount_unless_last(&self, number: u32) -> bool {
        match self.owned.borrow_mut().get_mut(number as usize) {
            Some(Some(property)) => property.trusts.uncount_unless_last(),
            _ => false,
        }
    }

    fn take(&self, owned: &mut [Option<Owned>], number: u32) -> Option<Dead> {
        let free = owned[number as usize].take()?.free;
        // SAFETY: as in `adopt`.
        let places = unsafe { &mut *self.places.get() };
        let place = std::mem::replace(&mut places[number as usize], NOWHERE);
        self.free_number(number);
        Some(Dead { value: place.value, free })
    }

    /// Properties that are alive, by type name: what leaked when a rack ends.
    pub(crate) fn alive(&self) -> Vec<&'static str> {
        self.adopt_pending();
        self.owned.borrow().iter().flatten().map(|owned| owned.type_name).collect()
    }

    /// Takes everything out, for the end of the rack.
    pub(crate) fn clear(&self) -> Vec<Dead> {
        self.adopt_pending();
        let mut owned = self.owned.borrow_mut();
        (0..owned.len() as u32).filter_map(|number| self.take(&mut owned, number)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::trustee::count::COUNTED;

    #[test]
    fn a_property_is_found_by_number_and_type_until_its_last_trust() {
        let properties = Properties::default();
        let value = Rc::new(5);
        let (number, tag) = properties.insert(value.clone());
        let place = properties.find(number, tag).expect("just inserted");
        // SAFETY: found with the tag of its type, and nothing else refers to it.
        assert_eq!(**unsafe { place.cast::<Rc<i32>>().as_ref() }, 5);
        assert!(properties.find(number, tag + 1).is_none(), "another type");
        assert!(properties.find(number + 1, tag).is_none(), "another number");
        assert!(properties.toggle(number, &[COUNTED, 2]).is_none(), "2 is alive");
        drop(properties.toggle(number, &[2]).expect("now it dies"));
        assert_eq!(Rc::strong_count(&value), 1);
        assert!(properties.find(number, tag).is_none());
        assert!(properties.toggle(number, &[9]).is_none(), "a number that means nothing");
    }

    #[test]
    fn a_value_entrusted_by_another_thread_is_found_counted_and_dropped() {
        let properties = Properties::new(Arc::default());
        let (first, _) = properties.insert(0u8);
        let give = |value: &Arc<i32>| {
            let (handoff, value) = (properties.handoff.clone(), value.clone());
            std::thread::spawn(move || handoff.hand_off(value)).join().unwrap()
        };
        let value = Arc::new(5);
        let (used, tag) = give(&value);
        let (unused, _) = give(&value);
        let next = TAKEN as u32;
        assert_eq!([first, used, unused], [0, next, next + 1]);
        let place = properties.find(used, tag).expect("it was handed off before");
        // SAFETY: found with the tag of its type, and nothing else refers to it.
        assert_eq!(**unsafe { place.cast::<Arc<i32>>().as_ref() }, 5);
        let (late, _) = give(&value);
        assert!(properties.count(late), "a trust is cloned before the value is in the table");
        assert!(properties.uncount_unless_last(late), "and dropped");
        drop(properties.toggle(late, &[COUNTED]).expect("its only trust is dropped"));
        drop(properties.toggle(used, &[COUNTED]).expect("its only trust is dropped"));
        assert_eq!(Arc::strong_count(&value), 2);
        assert_eq!(properties.insert(0u8).0, used, "numbers are used again");
        let (_left, _) = give(&value);
        assert_eq!(properties.alive().len(), 4);
        drop(properties.clear());
        give(&value);
        drop(properties);
        assert_eq!(
            Arc::strong_count(&value),
            1,
            "a value that never reached the table is dropped, too"
        );
    }

    #[test]
    fn numbers_that_are_free_go_back_to_other_threads() {
        let properties = Properties::default();
        let count = 3 * KEPT;
        let numbers: Vec<_> = (0..count).map(|_| properties.insert(0u8).0).collect();
        let unlike: std::collections::BTreeSet<_> = numbers.iter().collect();
        assert_eq!(unlike.len(), count);
        numbers.iter().for_each(|number| drop(properties.toggle(*number, &[COUNTED])));
        assert!(properties.numbers.borrow().len() <= KEPT);
        let handed_off: Vec<_> =
            (0..count - KEPT).map(|_| properties.handoff.hand_off(0u8).0).collect();
        assert!(handed_off.iter().all(|number| (*number as usize) < count + TAKEN));
    }

    #[test]
    fn panics_of_values_that_never_reached_the_table_stay_inside() {
        struct Bad(Arc<()>);
        impl Drop for Bad {
            fn drop(&mut self) {
                std::panic::panic_any(self.0.clone());
            }
        }
        let payload = Arc::new(());
        let handoff = Handoff::default();
        for _ in 0..2 {
            handoff.hand_off(Bad(payload.clone()));
        }
        drop(handoff);
        assert_eq!(Arc::strong_count(&payload), 1, "values and payloads are dropped");
    }
}
