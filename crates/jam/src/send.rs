//! [`send_then`]: a jam sends work on, to a property that it does not run on.
//!
//! A thread [offers](offer) trusts under names to the jams that run on it. A jam calls `send_then` with
//! such a name, the name of a function of that property that the program exports, and bytes. This is a
//! delegated call, which the jam does not wait for:
//!
//! ```text
//!   jam             the thread that runs it               the trustee of "orders"
//!   send_then  -->  finds "orders" among its offers  -->  finds the export "order_add" of its type
//!              <--  0                                     order_add(&mut orders, bytes)
//! ```

use std::cell::RefCell;
use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::rc::Rc;

use jam_abi::{Abi, Slice, signature};
use thiserror::Error;
use trust_core::Trust;

use crate::error::Refusal;
use crate::plain_bytes::Payload;
use crate::receiver::receiver;
use crate::symbols::export::Open;

/// What [`send_then`] returns.
pub mod sent {
    /// The call is on its way.
    pub const ON_ITS_WAY: u32 = 0;
    /// The thread that runs the jam offers no trust of this name.
    pub const NO_TRUST: u32 = 1;
    /// The program exports no function of this name for a property of this type and bytes.
    pub const NO_FUNCTION: u32 = 2;
    /// The thread that runs the jam, such as one that serves a mailbox, is not one of the trust's rack.
    pub const OUTSIDE: u32 = 3;
}

/// Sends a call to an offered trust: of a function, and with bytes.
type Send = dyn Fn(&str, &[u8]) -> u32;

thread_local! {
    /// What this thread offers, by name.
    static OFFERS: RefCell<HashMap<String, Rc<Send>>> = RefCell::new(HashMap::new());
}

/// A trust that its thread offers to jams, until this is dropped there.
#[must_use = "the trust is offered until this is dropped"]
pub struct Offer {
    name: String,
    /// It stays on its thread.
    _trust: Rc<Send>,
}

/// The thread offers another trust under this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("this thread offers another trust as {name:?}: drop that offer first, or use another name")]
pub struct NameOffered {
    /// The name.
    pub name: String,
}

/// Offers a trust under a name to the jams that run on the calling thread: those of properties of this
/// thread, and of mailboxes that it serves. They send work to it with [`send_then`].
///
/// ```no_run
/// # use trust_core::Trust;
/// pub struct Orders { count: u64 }
/// jam::open! { Orders = "shop.Orders@1"; }
/// jam::export! {
///     pub fn order_add(orders: &mut Orders, bytes: &[u8]) {
///         orders.count += bytes.len() as u64;
///     }
/// }
///
/// fn serve(orders: &Trust<Orders>) -> Result<(), jam::NameOffered> {
///     let _offer = jam::offer("orders", orders)?;
///     // Jams that run on this thread may call `send_then("orders", "order_add", bytes)` now.
///     Ok(())
/// }
/// ```
///
/// # Errors
/// If the thread offers another trust under this name.
pub fn offer<T: Open>(name: &str, trust: &Trust<T>) -> Result<Offer, NameOffered> {
    let trust = trust.clone();
    let send: Rc<Send> = Rc::new(move |function: &str, bytes: &[u8]| {
        if receiver().symbols().resolve_one(function, signature_of::<T>()).is_err() {
            return sent::NO_FUNCTION;
        }
        if !trust.is_in_reach() {
            return sent::OUTSIDE;
        }
        // By now: when a call fails because the rack has ended, the thread has left it.
        let host = trust_core::local_trustee().trustee().thread().host.0;
        let (call, name) = ((function.to_owned(), Payload::of_bytes(bytes)), function.to_owned());
        trust.try_apply_with_then(call_export::<T>, call, move |result| match result {
            Ok(Ok(())) => {}
            Ok(Err(refusal)) => log(host, &name, &refusal),
            Err(error) => log(host, &name, &error),
        });
        sent::ON_ITS_WAY
    });
    OFFERS.with_borrow_mut(|offers| {
        if offers.contains_key(name) {
            return Err(NameOffered { name: name.to_owned() });
        }
        offers.insert(name.to_owned(), send.clone());
        Ok(Offer { name: name.to_owned(), _trust: send })
    })
}

impl Drop for Offer {
    fn drop(&mut self) {
        // Thread-locals may have gone.
        let _ = OFFERS.try_with(|offers| {
            // What is dropped here may offer something else.
            let before = offers.borrow_mut().remove(&self.name);
            drop(before);
        });
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The signature of `fn(&mut T, &[u8])`.
const fn signature_of<T: Open>() -> u64 {
    let parameters = [<&mut T as Abi>::SIGNATURE, <&[u8] as Abi>::SIGNATURE];
    signature::of_function(&parameters, signature::UNIT)
}

/// The delegated closure: calls an export on the property.
fn call_export<T: Open>(property: &mut T, call: (String, Payload)) -> Result<(), Refusal> {
    let (name, bytes) = call;
    let address = receiver().symbols().resolve_one(&name, signature_of::<T>())?;
    // SAFETY: the address is that of a function of this signature, in its form that unwinds.
    let function = unsafe {
        std::mem::transmute::<usize, unsafe extern "C-unwind" fn(*mut T, Slice<u8>)>(address)
    };
    // SAFETY: the property and the bytes are this call's for as long as it lasts.
    unsafe { function(property.into_repr(), bytes.bytes().into_repr()) };
    Ok(())
}

/// Logs at the receiver, which is this host, that a call without a waiting caller has failed.
#[cold]
fn log(host: u32, function: &str, error: &dyn Error) {
    receiver().log(host, &format!("send_then of {function:?} failed: {error}"));
}

crate::export! {
    /// For jams: has `function`, an export of the program that takes a property and bytes, called with
    /// `bytes` on the trust that the thread offers as `trust`. It does not wait; calls of one thread to
    /// one trust run in their order. A call that fails later is a line in the receiver's log.
    ///
    /// Returns one of [`sent`].
    pub fn send_then(trust: &str, function: &str, bytes: &[u8]) -> u32 {
        let send = OFFERS.with_borrow(|offers| offers.get(trust).cloned());
        send.map_or(sent::NO_TRUST, |send| send(function, bytes))
    }
}
