//! Fiber-local values: like `thread_local!`, one value per fiber.
//!
//! Each fiber keeps a short list from the key's address to the value; looking one up is a scan,
//! which for the few keys a program has is cheaper than hashing. Outside fibers the thread has a
//! list of its own.

use std::any::Any;
use std::cell::RefCell;
use std::panic::Location;
use std::rc::Rc;

use crate::core::current;

type Place = &'static Location<'static>;

/// Declares fiber-local values.
///
/// Every fiber sees its own value, made by the initialiser at the fiber's first access and dropped
/// when the fiber ends, on the fiber. Outside fibers each thread has one. The initialiser may wait:
/// only the fiber itself sees its value.
///
/// ```
/// use std::cell::Cell;
///
/// gossamer_fiber::fiber_local! {
///     /// Requests made by this fiber.
///     static REQUESTS: Cell<u64> = Cell::new(0);
/// }
///
/// REQUESTS.with(|requests| requests.set(requests.get() + 1));
/// assert_eq!(REQUESTS.with(Cell::get), 1);
/// ```
#[macro_export]
macro_rules! fiber_local {
    ($($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty = $init:expr);+ $(;)?) => {
        $(
            $(#[$attribute])*
            $visibility static $name: $crate::LocalKey<$type> = {
                fn init() -> $type {
                    $init
                }
                $crate::LocalKey::new(init)
            };
        )+
    };
}

/// A fiber-local value, declared with [`fiber_local!`](crate::fiber_local).
pub struct LocalKey<T: 'static> {
    init: fn() -> T,
}

/// A fiber-local value was used while, or after, the fiber's values were dropped: in the destructor
/// of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("fiber-local value used by a destructor after the fiber's values were dropped")]
pub struct AccessError;

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    pub const fn new(init: fn() -> T) -> LocalKey<T> {
        LocalKey { init }
    }

    /// Gives `f` this fiber's value. `f` may park.
    ///
    /// # Panics
    /// If the initialiser does or uses the value itself, and in a destructor that runs after the
    /// fiber's values were dropped.
    #[track_caller]
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        match self.try_with(f) {
            Ok(result) => result,
            Err(error) => panic!("{error}"),
        }
    }

    /// Gives `f` this fiber's value. `f` may park.
    ///
    /// # Errors
    /// [`AccessError`] in a destructor that runs after the fiber's values were dropped.
    ///
    /// # Panics
    /// If the initialiser does or uses the value itself.
    #[track_caller]
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        let place = Location::caller();
        let value = current::with_fiber(|_, block| self.value(&block.locals, place))
            .unwrap_or_else(|| {
                OUTSIDE.try_with(|locals| self.value(locals, place)).unwrap_or(Err(AccessError))
            })?;
        Ok(f(&value))
    }

    fn value(&'static self, locals: &RefCell<Locals>, place: Place) -> Result<Rc<T>, AccessError> {
        let key = std::ptr::from_ref(self).addr();
        let found = locals.borrow().find(key)?;
        match found {
            Some(Slot::Value(value)) => return value.downcast::<T>().map_err(|_| AccessError),
            Some(Slot::Initialising(outer)) => refuse_recursion::<T>(outer, place),
            None => {}
        }
        locals.borrow_mut().values.push((key, Slot::Initialising(place)));
        let unfinished = Unfinished { locals, key };
        // Not borrowed while it runs: the initialiser may use other values, and may park.
        let value = Rc::new((self.init)());
        drop(unfinished);
        locals.borrow_mut().insert(key, Rc::<T>::clone(&value))?;
        Ok(value)
    }
}

/// Takes the note of an initialiser away when it has ended in any way.
struct Unfinished<'a> {
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

#[cold]
#[inline(never)]
fn refuse_recursion<T>(outer: Place, inner: Place) -> ! {
    panic!(
        "the initialiser of a fiber-local {}, started at {outer}, uses the value that it \
         makes, at {inner}",
        std::any::type_name::<T>()
    );
}

thread_local! {
    static OUTSIDE: RefCell<Locals> = const { RefCell::new(Locals::new()) };
}

/// A value, or the place of the use that started its initialiser.
#[derive(Clone)]
enum Slot {
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

    /// Makes the list ready for the next fiber.
    pub(crate) fn reopen(&mut self) {
        self.closed = false;
    }

    /// Drops the values, the newest first, and refuses new ones. To be called on the fiber, so that
    /// destructors run where the values lived.
    pub(crate) fn close(locals: &RefCell<Locals>) {
        locals.borrow_mut().closed = true;
        loop {
            let last = locals.borrow_mut().values.pop();
            if last.is_none() {
                return;
            }
        }
    }

    fn find(&self, key: usize) -> Result<Option<Slot>, AccessError> {
        if self.closed {
            return Err(AccessError);
        }
        Ok(self.values.iter().find(|(k, _)| *k == key).map(|(_, slot)| slot.clone()))
    }

    fn insert(&mut self, key: usize, value: Rc<dyn Any>) -> Result<(), AccessError> {
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
