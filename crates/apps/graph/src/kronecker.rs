//! [`Kronecker`]: the edges of the Graph500 specification's generator.
//!
//! An edge chooses one of the four quarters of the adjacency matrix, with the probabilities 0.57, 0.19,
//! 0.19 and 0.05, then a quarter of that, and so on, down to one entry. The numbers of the vertices are
//! scrambled at the end, so that the many edges of the first quarter do not meet at one member of a team.

use crate::random::{Random, Steps};

/// An edge with its weight, which is from 0 to 1.
pub type Edge = (u64, u64, f32);

/// The seeds of the reference implementation.
pub const SEEDS: (u64, u64) = (2, 3);

/// The graph of a scale, an edge factor and two seeds.
#[derive(Clone, Copy, Debug)]
pub struct Kronecker {
    scale: u32,
    edges: u64,
    seed: Random,
    scramble: (u64, u64),
}

impl Kronecker {
    /// The graph with `2^scale` vertices and `edge_factor` times as many edges.
    ///
    /// # Panics
    /// If the scale is 0 or more than 40.
    #[must_use]
    pub fn new(scale: u32, edge_factor: u64, (seed1, seed2): (u64, u64)) -> Kronecker {
        assert!((1..=40).contains(&scale), "the scale is from 1 to 40, got {scale}");
        let seed = Random::new(seed1, seed2);
        let mut numbers = seed;
        numbers.skip(&Steps::new(50, 7, 0));
        let mut word = || {
            let high = numbers.next_u31();
            high.wrapping_mul(0xFFFF_FFFF).wrapping_add(numbers.next_u31())
        };
        let scramble = (word(), word());
        Kronecker { scale, edges: edge_factor << scale, seed, scramble }
    }

    /// The number of vertices.
    #[must_use]
    pub fn vertices(&self) -> u64 {
        1 << self.scale
    }

    /// The number of edges, loops and repeated edges included.
    #[must_use]
    pub fn edges(&self) -> u64 {
        self.edges
    }

    /// The edges with these numbers: any part can be made anywhere.
    ///
    /// ```
    /// use gossamer_graph::kronecker::{Kronecker, SEEDS};
    ///
    /// let graph = Kronecker::new(10, 16, SEEDS);
    /// let first = graph.part(0..1).next().unwrap();
    /// assert_eq!((first.0, first.1), (299, 797));
    /// assert!(graph.part(5..9).eq(graph.part(0..9).skip(5)));
    /// ```
    pub fn part(&self, edges: std::ops::Range<u64>) -> impl Iterator<Item = Edge> + use<> {
        let (graph, mut state) = (*self, self.seed);
        state.skip(&Steps::new(0, edges.start, 0));
        // From an edge to the next are 2^64 steps.
        let next = Steps::new(0, 1, 0);
        edges.map(move |_| {
            let edge = graph.edge(state);
            state.skip(&next);
            edge
        })
    }

    fn edge(&self, mut random: Random) -> Edge {
        let (mut from, mut to) = (0, 0);
        for bit in (0..self.scale).rev() {
            let (mut row, mut column) = quarter(&mut random);
            // An undirected edge is made once, with the smaller number first.
            if from == to && row > column {
                (row, column) = (column, row);
            }
            from += row << bit;
            to += column << bit;
        }
        (self.scramble(from), self.scramble(to), random.next_f32())
    }

    /// A permutation of the vertices.
    fn scramble(&self, vertex: u64) -> u64 {
        let (a, b) = self.scramble;
        let upper = |v: u64| v.reverse_bits() >> (64 - self.scale);
        let v = vertex.wrapping_add(a).wrapping_add(b);
        let v = upper(v.wrapping_mul(a | 0x4519_8402_1149_3211));
        upper(v.wrapping_mul(b | 0x3050_8521_02C8_43A5))
    }
}

/// The row and the column of a quarter of the matrix.
#[inline]
fn quarter(random: &mut Random) -> (u64, u64) {
    // Numbers that would make the first ones of the ten thousand more likely are left out.
    const UNFAIR: u64 = 0x7FFF_FFFF % 10_000;
    let number = loop {
        let number = random.next_u31();
        if number >= UNFAIR {
            break number % 10_000;
        }
    };
    // Without a branch, which the processor would guess wrong almost every other time.
    let (is_upper_right, is_lower_left) = (number < 1900, (1900..3800).contains(&number));
    let is_lower_right = number >= 9500;
    (u64::from(is_lower_left | is_lower_right), u64::from(is_upper_right | is_lower_right))
}

/// The vertices that a search may begin at, in the order in which the reference implementation tries
/// them: those without edges, and repeated ones, are left out by the caller.
pub fn roots(graph: &Kronecker) -> impl Iterator<Item = u64> + use<> {
    let (seed, vertices) = (graph.seed, graph.vertices());
    (0..vertices).map(move |index| {
        let mut random = seed;
        random.skip(&Steps::new(2, 0, 4 * index));
        let sum = random.next_f64() + random.next_f64();
        (sum * vertices as f64) as u64 % vertices
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FNV-1a of all edges.
    fn digest(graph: &Kronecker) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for (from, to, weight) in graph.part(0..graph.edges()) {
            let bytes = from.to_le_bytes().into_iter().chain(to.to_le_bytes());
            for byte in bytes.chain(weight.to_le_bytes()) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
        hash
    }

    /// The digests were made from edges of the reference implementation's generator (graph500/graph500
    /// at f89d643), by a program outside this repository that is linked with it.
    #[test]
    fn edges_are_those_of_the_reference_implementation() {
        for (scale, seeds, expected) in [
            (10, SEEDS, 0x74c0_7d6d_db7d_bdba),
            (12, (7, 123_456_789_012_345), 0x2bab_c2dd_d888_cb1e),
            (14, SEEDS, 0x5d92_c4be_5d95_cfe0),
        ] {
            assert_eq!(digest(&Kronecker::new(scale, 16, seeds)), expected, "scale {scale}");
        }
    }

    #[test]
    fn roots_are_those_of_the_reference_implementation() {
        let first =
            |scale, seeds| roots(&Kronecker::new(scale, 16, seeds)).take(8).collect::<Vec<_>>();
        assert_eq!(first(10, SEEDS), [458, 214, 220, 126, 966, 395, 9, 465]);
        let other = first(12, (7, 123_456_789_012_345));
        assert_eq!(other, [1096, 1916, 3869, 2682, 920, 1152, 315, 1186]);
    }

    #[test]
    fn scrambling_is_a_permutation() {
        let graph = Kronecker::new(12, 1, SEEDS);
        let mut scrambled: Vec<u64> = (0..4096).map(|v| graph.scramble(v)).collect();
        scrambled.sort_unstable();
        assert!(scrambled.into_iter().eq(0..4096));
    }
}
