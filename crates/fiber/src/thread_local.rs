//! Values per OS thread that may be made by initialisers that wait: [`ThreadLocal`].
//!
//! With [`std::thread_local!`] an initialiser that waits is unsound on a thread with fibers: the next
//! fiber that uses the key finds it empty and initialises it as well, and whichever value comes last
//! replaces one that the other fiber may be using. Here each value is in a cell of its own for good,
//! whose initialiser runs once ([`OnceLock`]), and a user keeps the cell alive.
//!
//! A thread keeps a short list from the static's address to its cell, as fibers do for their values
//! (`local.rs`).

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use crate::once::OnceLock;

/// A value per OS thread, made by an initialiser that may wait; for statics.
///
/// All fibers of a thread share the thread's value. The first one that uses it runs the initialiser,
/// and if that waits, the thread's other fibers wait until the value is there. If it panics, the next
/// use runs it again. The values of a thread are dropped when the thread ends, the newest first; on a
/// thread of a rack that is after its fibers have ended, so their destructors must not wait.
///
/// A value per fiber is [`fiber_local!`](crate::fiber_local).
///
/// ```
/// use std::cell::Cell;
/// use gossamer_fiber::ThreadLocal;
///
/// static CALLS: ThreadLocal<Cell<u64>> = ThreadLocal::new(|| Cell::new(0));
///
/// CALLS.with(|calls| calls.set(calls.get() + 1));
/// assert_eq!(CALLS.with(Cell::get), 1);
/// std::thread::spawn(|| assert_eq!(CALLS.with(Cell::get), 0)).join().unwrap();
/// ```
pub struct ThreadLocal<T: 'static> {
    init: fn() -> T,
}

impl<T: 'static> ThreadLocal<T> {
    /// A value that `init` makes on each thread, on first use.
    pub const fn new(init: fn() -> T) -> ThreadLocal<T> {
        ThreadLocal { init }
    }

    /// Gives `f` this thread's value, which is made now if it is not there. `f` may wait, and other
    /// fibers of the thread may use the value meanwhile; so do not wait while a [`RefCell`] in it is
    /// borrowed.
    ///
    /// # Panics
    /// As [`OnceLock::get_or_init`]; and in destructors that run when the thread's values have been
    /// dropped.
    #[track_caller]
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        let Some(cell) = self.cell() else {
            panic!(
                "a thread-local {} was used by a destructor after the thread's values were dropped",
                std::any::type_name::<T>()
            );
        };
        f(cell.get_or_init(self.init))
    }

    /// The thread's cell; `None` when the thread ends.
    fn cell(&'static self) -> Option<Rc<OnceLock<T>>> {
        let key = Key { address: std::ptr::from_ref(self).addr(), kind: TypeId::of::<T>() };
        let cell = CELLS.try_with(|cells| cells.borrow_mut().cell::<T>(key)).ok()?;
        cell.downcast().ok()
    }
}

impl<T: 'static> fmt::Debug for ThreadLocal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ThreadLocal")
    }
}

/// Which static it is. The type tells constants apart that the compiler has put at one address.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    address: usize,
    kind: TypeId,
}

/// The cells of one thread.
struct Cells(Vec<(Key, Rc<dyn Any>)>);

thread_local! {
    static CELLS: RefCell<Cells> = const { RefCell::new(Cells(Vec::new())) };
}

impl Cells {
    fn cell<T: 'static>(&mut self, key: Key) -> Rc<dyn Any> {
        if let Some((_, cell)) = self.0.iter().find(|(other, _)| *other == key) {
            return Rc::clone(cell);
        }
        let cell: Rc<dyn Any> = Rc::new(OnceLock::<T>::new());
        self.0.push((key, Rc::clone(&cell)));
        cell
    }
}

impl Drop for Cells {
    fn drop(&mut self) {
        // The newest first.
        while self.0.pop().is_some() {}
    }
}
