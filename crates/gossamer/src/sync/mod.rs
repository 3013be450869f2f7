//! What fibers of any threads of the rack use to wait for each other, besides trusts and
//! [`Barrier`](crate::Barrier): [channels](channel()) and [`Notify`].
//!
//! Each of them has its state on one thread, as a property of it, and its handles are trusts of that
//! property: so they travel in arguments and results, are dropped with their last handle, and are
//! used like their namesakes of `std` and tokio. A fiber that waits is parked, wherever it runs.
//!
//! A condition that depends on an entrusted value is waited for with a [`Latch`](crate::Latch) and a
//! [`Condvar`](crate::Condvar), as with a mutex:
//!
//! ```
//! use gossamer::{Condvar, Latch, Trust, local_trustee, spawn_on_with};
//!
//! #[derive(Default)]
//! struct Account {
//!     balance: u64,
//!     paid_in: Condvar,
//! }
//!
//! # gossamer::Rack::new().threads(2).run(|| {
//! let account = local_trustee().entrust(Latch::new(Account::default()));
//! let withdraw = |account: Trust<Latch<Account>>| {
//!     account.launch_guard_with(
//!         |account, amount| {
//!             let paid_in = account.paid_in.clone(); // `account` itself is opened by the wait
//!             paid_in.wait_while(account, |account| account.balance < amount);
//!             account.balance -= amount;
//!         },
//!         70,
//!     );
//! };
//! let last = gossamer::threads().last().unwrap();
//! let withdrawn = spawn_on_with(last, withdraw, account.clone());
//! for _ in 0..10 {
//!     account.launch(|account| {
//!         account.balance += 10;
//!         account.paid_in.notify_all();
//!     });
//! }
//! withdrawn.join().unwrap();
//! assert_eq!(account.launch(|account| account.balance), 30);
//! # }).unwrap();
//! ```

mod channel;
mod error;
mod iter;
mod measure;
mod next;
mod notify;
mod queue;

pub use self::channel::{Receiver, Sender, channel, channel_on};
pub use self::error::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
pub use self::iter::Iter;
pub use self::next::Next;
pub use self::notify::{Notified, Notify};
