//! Fiber-local values: like `thread_local!`, one value per fiber.
//!
//! Each fiber keeps a short list from the key's address to the value; looking one up is a scan,
//! which for the few keys a program has is cheaper than hashing. Outside fibers the thread has a
//! list of its own.

use std::cell::RefCell;
use std::panic::Location;
use std::rc::Rc;

use crate::core::current;
use crate::core::locals::{AccessError, Locals, Place, Slot};

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

impl<T: 'static> std::fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LocalKey")
    }
}

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
        let unfinished = Locals::begin(locals, key, place);
        // Not borrowed while it runs: the initialiser may use other values, and may park.
        let value = Rc::new((self.init)());
        drop(unfinished);
        locals.borrow_mut().insert(key, Rc::<T>::clone(&value))?;
        Ok(value)
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
