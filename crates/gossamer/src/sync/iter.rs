//! The values of a channel as an iterator: [`Receiver::iter`].

use trust_core::{Chain, Portable};

use crate::sync::channel::Receiver;
use crate::sync::error::RecvError;

impl<T: Portable> Receiver<T> {
    /// The values, until the channel is closed.
    ///
    /// # Panics
    /// When a host is lost that may have had senders: a loop would otherwise take its loss for the end
    /// of the values. Use [`recv`](Self::recv) to go on without a host.
    pub fn iter(&mut self) -> Iter<'_, T> {
        Iter(self)
    }

    /// The next value, `None` at the end.
    #[track_caller]
    fn next_or_panic(&mut self) -> Option<T> {
        match self.recv() {
            Ok(value) => Some(value),
            Err(RecvError::Closed) => None,
            Err(error) => panic!("cannot receive all values of the channel: {}", Chain(&error)),
        }
    }
}

/// The values of a [`Receiver`], until the channel is closed: [`Receiver::iter`].
#[derive(Debug)]
pub struct Iter<'a, T: Portable>(&'a mut Receiver<T>);

impl<T: Portable> Iterator for Iter<'_, T> {
    type Item = T;
    #[track_caller]
    fn next(&mut self) -> Option<T> {
        self.0.next_or_panic()
    }
}

/// The values of a receiver that it owns.
#[derive(Debug)]
pub struct IntoIter<T: Portable>(Receiver<T>);

impl<T: Portable> Iterator for IntoIter<T> {
    type Item = T;
    #[track_caller]
    fn next(&mut self) -> Option<T> {
        self.0.next_or_panic()
    }
}

/// As [`Receiver::iter`].
impl<T: Portable> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;
    fn into_iter(self) -> IntoIter<T> {
        IntoIter(self)
    }
}

impl<'a, T: Portable> IntoIterator for &'a mut Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;
    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}
