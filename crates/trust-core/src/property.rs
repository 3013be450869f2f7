//! The properties of one trustee: values of any type, found by number, dropped after their last
//! trust.
//!
//! The table that every request goes through has sixteen bytes a property (where it is, and the
//! tag of its type); what is only needed to count trusts and to drop stands beside it.

use crate::{
    count::IdSet,
    registry::{Tag, registry},
};
use primitive::CachePadded;
use slab::Slab;
use std::cell::{RefCell, UnsafeCell};

/// Where a property is and what it is.
#[derive(Clone, Copy)]
struct Place {
    value: *mut u8,
    /// Zero, which is no type's tag, where there is no property.
    tag: Tag,
}

const NOWHERE: Place = Place { value: std::ptr::null_mut(), tag: 0 };

struct Owned {
    trusts: IdSet,
    free: unsafe fn(*mut u8),
    type_name: &'static str,
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
    places: UnsafeCell<Vec<Place>>,
    owned: RefCell<Slab<Owned>>,
}

impl Properties {
    /// Takes `value` into trust, with one trust `first`; returns its number and tag.
    pub(crate) fn insert<T: 'static>(&self, value: T, first: u64) -> (u32, Tag) {
        let tag = registry().tag_of::<T>();
        let number = self.owned.borrow_mut().insert(Owned {
            trusts: IdSet::new(first),
            free: free::<T>,
            type_name: std::any::type_name::<T>(),
        });
        // SAFETY: the table is only ever referred to within a method of this type that calls
        // nothing else, and the type is not Sync.
        let places = unsafe { &mut *self.places.get() };
        if places.len() <= number {
            places.resize(number + 1, NOWHERE);
        }
        // The trustee writes the value all the time; on a cache line with something of another
        // thread, both would wait for each other.
        let value = Box::into_raw(Box::new(CachePadded::new(value))).cast();
        places[number] = Place { value, tag };
        (u32::try_from(number).expect("fewer than four billion properties"), tag)
    }

    /// Where property `number` is, if it is there and of the type with this tag.
    #[inline(always)]
    pub(crate) fn find(&self, number: u32, tag: Tag) -> Option<*mut u8> {
        // SAFETY: as in `insert`.
        let places = unsafe { &*self.places.get() };
        match places.get(number as usize) {
            Some(place) if place.tag == tag => Some(place.value),
            _ => None,
        }
    }

    /// The name of the type of property `number`, for messages.
    pub(crate) fn type_name(&self, number: u32) -> Option<&'static str> {
        self.owned.borrow().get(number as usize).map(|owned| owned.type_name)
    }

    /// Toggles trust ids of property `number`; what comes back is to be dropped by the caller,
    /// outside any borrow. Numbers that mean nothing are ignored: only a peer that broke the
    /// protocol sends them.
    pub(crate) fn toggle(&self, number: u32, ids: &[u64]) -> Option<Dead> {
        let mut owned = self.owned.borrow_mut();
        let property = owned.get_mut(number as usize)?;
        let dead = property.trusts.toggle(ids.iter().copied());
        dead.then(|| self.take(&mut owned, number))
    }

    fn take(&self, owned: &mut Slab<Owned>, number: u32) -> Dead {
        let free = owned.remove(number as usize).free;
        // SAFETY: as in `insert`.
        let places = unsafe { &mut *self.places.get() };
        let place = std::mem::replace(&mut places[number as usize], NOWHERE);
        Dead { value: place.value, free }
    }

    /// Properties that are alive, by type name: what leaked when a rack ends.
    pub(crate) fn alive(&self) -> Vec<&'static str> {
        self.owned.borrow().iter().map(|(_, owned)| owned.type_name).collect()
    }

    /// Takes everything out, for the end of the rack.
    pub(crate) fn clear(&self) -> Vec<Dead> {
        let mut owned = self.owned.borrow_mut();
        let numbers: Vec<_> = owned.iter().map(|(number, _)| number as u32).collect();
        numbers.into_iter().map(|number| self.take(&mut owned, number)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn a_property_is_found_by_number_and_type_until_its_last_trust() {
        let properties = Properties::default();
        let value = Rc::new(5);
        let (number, tag) = properties.insert(value.clone(), 1);
        let place = properties.find(number, tag).expect("just inserted");
        // SAFETY: found with the tag of its type, and nothing else refers to it.
        assert_eq!(**unsafe { &*place.cast::<Rc<i32>>() }, 5);
        assert!(properties.find(number, tag + 1).is_none(), "another type");
        assert!(properties.find(number + 1, tag).is_none(), "another number");
        assert!(properties.toggle(number, &[1, 2]).is_none(), "2 is alive");
        drop(properties.toggle(number, &[2]).expect("now it dies"));
        assert_eq!(Rc::strong_count(&value), 1);
        assert!(properties.find(number, tag).is_none());
        assert!(properties.toggle(number, &[9]).is_none(), "a number that means nothing");
    }
}
