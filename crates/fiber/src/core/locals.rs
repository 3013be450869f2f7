//! The fiber-local values of one fiber: a short list from a key's address to its value.

use std::any::Any;
use std::cell::RefCell;
use std::panic::Location;
use std::rc::Rc;

/// Where a value was used.
pub(crate) type Place = &'static Location<'static>;

/// A fiber-local value was used while, or after, the fiber's values were dropped: in the destructor
/// of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("fiber-local value used by a destructor after the fiber's values were dropped")]
pub struct AccessError;

/// A value, or the place of the use that started its initialiser.
#[derive(Clone)]
pub(crate) enum Slot {
    Value(Rc<dyn Any>),
    Initialising(Place),
}

/// The values of one fiber.
pub(crate) struct Locals {
    values: Vec<(usize, Slot)>,
    closed: bool,
}

impl Locals {
    pub(crate) const fn new() -> Locals {
        Locals { values: Vec::new(), closed: false }
    }

    /// Notes that the initialiser of the value `key` runs, started at `place`, until the guard is
    /// dropped.
    pub(crate) fn begin(locals: &RefCell<Locals>, key: usize, place: Place) -> Unfinished<'_> {
        locals.borrow_mut().values.push((key, Slot::Initialising(place)));
        Unfinished { locals, key }
    }

    /// Makes the list ready for the next fiber.
    pub(crate) fn reopen(&mut self) {
        self.closed = false;
    }

    /// Drops the values, the newest first, and refuses new ones. To be called on the fiber, so that
    /// destructors run where the values lived.
    #[inline]
    pub(crate) fn close(locals: &RefCell<Locals>) {
        locals.borrow_mut().closed = true;
        loop {
            let last = locals.borrow_mut().values.pop();
            if last.is_none() {
                return;
            }
        }
    }

    pub(crate) fn find(&self, key: usize) -> Result<Option<Slot>, AccessError> {
        if self.closed {
            return Err(AccessError);
        }
        Ok(self.values.iter().find(|(k, _)| *k == key).map(|(_, slot)| slot.clone()))
    }

    pub(crate) fn insert(&mut self, key: usize, value: Rc<dyn Any>) -> Result<(), AccessError> {
        if self.closed {
            return Err(AccessError);
        }
        self.values.push((key, Slot::Value(value)));
        Ok(())
    }
}

impl Drop for Locals {
    fn drop(&mut self) {
        // A thread's own values: the newest first, as on a fiber.
        while self.values.pop().is_some() {}
    }
}

/// Takes the note of an initialiser away when it has ended in any way.
pub(crate) struct Unfinished<'a> {
    locals: &'a RefCell<Locals>,
    key: usize,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let mut locals = self.locals.borrow_mut();
        if let Some(position) = locals.values.iter().position(|(key, _)| *key == self.key) {
            locals.values.remove(position);
        }
    }
}
