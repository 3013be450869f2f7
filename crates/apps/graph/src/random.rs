//! [`Random`]: the random numbers of the Graph500 specification, so that the same scale and seeds give
//! the same graph everywhere.
//!
//! It is the multiple recursive generator of L'Ecuyer, Blouin and Couture (1993): `x(n) = 107374182
//! x(n-1) + 104480 x(n-5)` modulo 2^31 - 1. A state is five numbers, and a step multiplies it by a
//! matrix; so a power of the matrix skips as many steps, and every edge has a place of its own in the
//! sequence.

/// The modulus, 2^31 - 1.
const M: u64 = 0x7FFF_FFFF;
const X: u64 = 107_374_182;
const Y: u64 = 104_480;

/// `x` modulo [`M`], for any `x`.
#[inline(always)]
fn reduce(x: u64) -> u64 {
    let x = (x & M) + (x >> 31); //  < 2^34
    let x = (x & M) + (x >> 31); // <= M + 7
    if x >= M { x - M } else { x }
}

/// The state of a generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random([u64; 5]);

/// A number of steps, as the matrix that takes them at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps([[u64; 5]; 5]);

impl Random {
    /// The generator of two seeds, as the specification's reference spreads them.
    #[must_use]
    pub fn new(seed1: u64, seed2: u64) -> Random {
        let low = |seed: u64| (seed & 0x3FFF_FFFF) + 1;
        let high = (seed2 >> 60 << 4) + (seed1 >> 60) + 1;
        Random([low(seed1), low(seed1 >> 30), low(seed2), low(seed2 >> 30), high])
    }

    /// Skips these steps.
    #[inline]
    pub fn skip(&mut self, steps: &Steps) {
        self.0 = std::array::from_fn(|row| product(&steps.0[row], &self.0));
    }

    /// The next number, below 2^31 - 1.
    #[inline]
    pub fn next_u31(&mut self) -> u64 {
        let [a, b, c, d, e] = self.0;
        self.0 = [reduce(X * a + Y * e), a, b, c, d];
        self.0[0]
    }

    /// The next number from 0 to 1, of two of the sequence.
    #[inline]
    pub fn next_f64(&mut self) -> f64 {
        let (high, low) = (self.next_u31(), self.next_u31());
        high as f64 * 4.656_612_875_245_797e-10 + low as f64 * 2.168_404_346_990_493e-19
    }

    /// The next number from 0 to 1, of one of the sequence.
    #[inline]
    pub fn next_f32(&mut self) -> f32 {
        (f64::from(self.next_u31() as f32) * 4.656_612_875_245_797e-10) as f32
    }
}

/// The sum of the products of a row and a column. Each is below 2^62, so they are reduced on the way, to
/// less than 2^32: 2^31 is 1 modulo [`M`].
#[inline(always)]
fn product(row: &[u64; 5], column: &[u64; 5]) -> u64 {
    let products = (0..5).map(|at| row[at] * column[at]);
    reduce(products.map(|product| (product & M) + (product >> 31)).sum())
}

impl Steps {
    /// One step.
    const ONE: Steps = Steps([
        [X, 0, 0, 0, Y],
        [1, 0, 0, 0, 0],
        [0, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 1, 0],
    ]);

    /// `low + middle * 2^64 + high * 2^128` steps.
    #[must_use]
    pub fn new(high: u64, middle: u64, low: u64) -> Steps {
        let mut steps = Steps(std::array::from_fn(|i| std::array::from_fn(|j| u64::from(i == j))));
        let mut power = Steps::ONE;
        for mut bits in [low, middle, high] {
            for _ in 0..64 {
                if bits & 1 == 1 {
                    steps = steps.then(&power);
                }
                bits >>= 1;
                power = power.then(&power);
            }
        }
        steps
    }

    /// These steps and then others.
    fn then(&self, next: &Steps) -> Steps {
        Steps(std::array::from_fn(|row| {
            std::array::from_fn(|column| product(&next.0[row], &self.0.map(|row| row[column])))
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_skip_is_as_many_steps() {
        let mut skipped = Random::new(2, 3);
        let mut stepped = skipped;
        skipped.skip(&Steps::new(0, 0, 1000));
        (0..1000).for_each(|_| {
            stepped.next_u31();
        });
        assert_eq!(skipped, stepped);
    }

    #[test]
    fn a_high_skip_is_two_to_the_sixty_fourth_middle_skips() {
        let (one, mut power) = (Steps::new(1, 0, 0), Steps::new(0, 1, 0));
        (0..64).for_each(|_| power = power.then(&power));
        assert_eq!(one, power);
    }

    proptest! {
        #[test]
        fn numbers_are_reduced(x: u64) {
            prop_assert_eq!(reduce(x), x % M);
        }

        #[test]
        fn products_are_reduced(row: [u32; 5], column: [u32; 5]) {
            let (row, column) = (row.map(|n| u64::from(n) % M), column.map(|n| u64::from(n) % M));
            let sum: u128 = row.iter().zip(&column).map(|(a, b)| u128::from(a * b)).sum();
            prop_assert_eq!(u128::from(product(&row, &column)), sum % u128::from(M));
        }
    }
}
