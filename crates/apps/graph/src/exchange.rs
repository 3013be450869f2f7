//! Exchanges of more than a message of a team may hold: they are sent in slices.
//!
//! What is sent along edges has no bound but the number of edges, and what is sent of every vertex grows
//! with the graph. Small exchanges, nearly all, are one collective, as they would be without this.

use gossamer::{Portable, Team};

/// Elements of a slice. They take up to 16 bytes each, and a message holds 1 GiB.
const SLICE: usize = 1 << 25;

/// Vectors of equal length, of numbers that belong together.
pub(crate) trait Columns: Portable + Default {
    /// Their length.
    fn len(&self) -> usize;
    /// Removes the elements from `at` on, and returns them.
    #[must_use]
    fn split_off(&mut self, at: usize) -> Self;
}

impl<A: Portable, B: Portable> Columns for (Vec<A>, Vec<B>)
where
    Self: Portable,
{
    fn len(&self) -> usize {
        self.0.len()
    }

    fn split_off(&mut self, at: usize) -> Self {
        (self.0.split_off(at), self.1.split_off(at))
    }
}

/// Sends `parts[i]` to member `i`, and calls `receive` with what the members have for this one, part by
/// part. All members call this together.
pub(crate) fn to_each<C: Columns>(team: &Team, parts: Vec<C>, receive: impl FnMut(C)) {
    to_each_in(team, parts, SLICE, receive);
}

fn to_each_in<C: Columns>(
    team: &Team,
    mut parts: Vec<C>,
    slice: usize,
    mut receive: impl FnMut(C),
) {
    loop {
        // From the end, so that what is left is not moved.
        let slices: Vec<C> = parts
            .iter_mut()
            .map(|part| match part.len() {
                len if len > slice => part.split_off(len - slice),
                _ => std::mem::take(part),
            })
            .collect();
        // Each member learns from each other one whether that goes on, so all agree.
        let has_more = parts.iter().any(|part| part.len() > 0);
        let mut goes_on = false;
        let slices = slices.into_iter().map(|slice| (has_more, slice)).collect();
        for (has_more, slice) in team.all_to_all::<(bool, C)>(slices) {
            goes_on |= has_more;
            receive(slice);
        }
        if !goes_on {
            return;
        }
    }
}

/// The first elements of the slices of vectors that are no longer than `longest`, last first.
pub(crate) fn slices(longest: usize) -> impl Iterator<Item = usize> {
    (0..longest).step_by(SLICE).rev()
}

/// Returns the elements of all members, which have up to `longest` each. All members call this together.
#[must_use]
pub(crate) fn gather<V>(team: &Team, mine: &[V], longest: usize) -> Vec<Vec<V>>
where
    V: Clone,
    Vec<V>: Portable,
{
    gather_in(team, mine, longest, SLICE)
}

fn gather_in<V>(team: &Team, mine: &[V], longest: usize, slice: usize) -> Vec<Vec<V>>
where
    V: Clone,
    Vec<V>: Portable,
{
    let mut slices = (0..longest.max(1)).step_by(slice).map(|start| {
        let start = start.min(mine.len());
        team.all_gather(mine[start..(start + slice).min(mine.len())].to_vec())
    });
    let mut all = slices.next().expect("there is one at least");
    for slice in slices {
        all.iter_mut().zip(slice).for_each(|(all, mut slice)| all.append(&mut slice));
    }
    all
}

#[cfg(test)]
mod tests {
    use gossamer::Rack;

    use super::*;

    /// What three members exchange, in slices of three: to member `i`, the members send as many elements
    /// as ten times `i`, and their index. The last one sends nothing.
    fn received(team: &Team, (): ()) -> Vec<(u32, u32)> {
        let len = |to: usize| if team.index() == 2 { 0 } else { 10 * to as u32 };
        let part = |to| ((0..len(to)).collect(), vec![team.index() as u32; len(to) as usize]);
        let parts: Vec<(Vec<u32>, Vec<u32>)> = (0..team.len()).map(part).collect();
        let mut received = Vec::new();
        to_each_in(team, parts, 3, |(numbers, from): (Vec<u32>, Vec<u32>)| {
            assert!(numbers.len() <= 3);
            received.extend(from.into_iter().zip(numbers));
        });
        received.sort_unstable();
        received
    }

    #[test]
    fn slices_are_all_that_was_sent() {
        let all = Rack::new().threads(3).run(|| Team::run(received, ())).unwrap();
        for (to, received) in (0..).zip(all) {
            let expected = (0..2).flat_map(|from| (0..10 * to).map(move |number| (from, number)));
            assert!(received.into_iter().eq(expected), "member {to}");
        }
    }

    #[test]
    fn slices_are_gathered_in_order() {
        let member = |team: &Team, longest: usize| {
            let mine: Vec<usize> = (0..longest).skip(team.index()).collect();
            gather_in(team, &mine, longest, 3)
        };
        for longest in [0, 2, 3, 7] {
            let all = Rack::new().threads(3).run(move || Team::run(member, longest)).unwrap();
            let expected: Vec<Vec<usize>> =
                (0..3).map(|m| (0..longest).skip(m).collect()).collect();
            assert_eq!(all, vec![expected; 3], "{longest}");
        }
    }
}
