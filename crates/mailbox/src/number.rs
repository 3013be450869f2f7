//! [`Number`]: numbers for the names of what each sender exports.

use parking_lot::Mutex;

/// A number that no other one of this process has: for names of segments that each sender exports. A
/// name takes memory for as long as the process lives, so numbers are used again once they are dropped.
///
/// ```
/// use mailbox::Number;
/// let (one, two) = (Number::take(), Number::take());
/// assert_ne!(one.value(), two.value());
/// ```
#[derive(Debug)]
#[must_use = "dropping it gives the number back"]
pub struct Number(u32);

/// The numbers that were given back, and the first that was never used.
static NUMBERS: Mutex<(Vec<u32>, u32)> = Mutex::new((Vec::new(), 0));

impl Number {
    /// One that is free.
    pub fn take() -> Number {
        let mut numbers = NUMBERS.lock();
        if let Some(number) = numbers.0.pop() {
            return Number(number);
        }
        numbers.1 += 1;
        Number(numbers.1 - 1)
    }

    /// The number.
    pub fn value(&self) -> u32 {
        self.0
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        NUMBERS.lock().0.push(self.0);
    }
}
