//! [`Layout`]: which member of a team has which vertex.
//!
//! Vertex `v` of `n` members belongs to member `v mod n`, so that neighbours in a file and vertices of
//! high degree are spread. Inside the program a vertex is its *place*: the member in the upper bits, and
//! its number there in the lower ones. The program has no other name for a vertex.

use serde::{Deserialize, Serialize};

/// A vertex: the member that has it, and which of its vertices it is.
pub type Place = u32;

/// No vertex.
pub const NOWHERE: Place = Place::MAX;

/// How vertices are laid out over the members of a team.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    vertices: u64,
    members: u32,
    /// Bits of the number of a vertex at its member.
    bits: u32,
}

impl Layout {
    /// The layout of so many vertices over so many members; `None` if there are too many for places.
    #[must_use]
    pub fn new(vertices: u64, members: usize) -> Option<Layout> {
        let most = vertices.div_ceil(members as u64).max(1);
        if most > 1 << 31 {
            return None;
        }
        // At least a word of a bitmap for each member.
        let bits = most.next_power_of_two().trailing_zeros().max(6);
        let members = u32::try_from(members).ok()?;
        // One more member than there are, so that no place is `NOWHERE`.
        ((u64::from(members) + 1) << bits <= 1 << 32).then_some(Layout { vertices, members, bits })
    }

    /// All vertices.
    #[must_use]
    pub fn vertices(&self) -> u64 {
        self.vertices
    }

    /// The number of members.
    #[must_use]
    pub fn members(&self) -> u32 {
        self.members
    }

    /// The number of vertices of a member; member 0 has the most.
    #[must_use]
    pub fn local(&self, member: usize) -> usize {
        let (all, members) = (self.vertices, u64::from(self.members));
        (all / members + u64::from((member as u64) < all % members)) as usize
    }

    /// The end of all places: what an array by place needs room for.
    #[must_use]
    pub fn places(&self) -> usize {
        (self.members as usize) << self.bits
    }

    /// The place of a vertex.
    #[inline]
    #[must_use]
    pub fn place(&self, vertex: u64) -> Place {
        let members = u64::from(self.members);
        (((vertex % members) << self.bits) | (vertex / members)) as Place
    }

    /// The place of a vertex of this member.
    #[inline]
    #[must_use]
    pub fn place_of(&self, member: usize, local: u32) -> Place {
        ((member as Place) << self.bits) | local
    }

    /// The member that has a place.
    #[inline]
    #[must_use]
    pub fn owner(&self, place: Place) -> usize {
        (place >> self.bits) as usize
    }

    /// The number of a place at its member.
    #[inline]
    #[must_use]
    pub fn local_of(&self, place: Place) -> u32 {
        place & ((1 << self.bits) - 1)
    }

    /// The vertex at a place.
    #[must_use]
    pub fn vertex(&self, place: Place) -> u64 {
        u64::from(self.local_of(place)) * u64::from(self.members) + self.owner(place) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_vertex_has_a_place_of_its_own(vertices in 1u64..3000, members in 1usize..40) {
            let layout = Layout::new(vertices, members).unwrap();
            let mut counts = vec![0; members];
            for vertex in 0..vertices {
                let place = layout.place(vertex);
                prop_assert_eq!(layout.vertex(place), vertex);
                let (owner, local) = (layout.owner(place), layout.local_of(place));
                prop_assert_eq!(layout.place_of(owner, local), place);
                prop_assert!((local as usize) < layout.local(owner) && place != NOWHERE);
                prop_assert!((place as usize) < layout.places());
                counts[owner] += 1;
            }
            prop_assert!((0..members).all(|member| counts[member] == layout.local(member)));
        }
    }

    #[test]
    fn more_vertices_than_places_are_refused() {
        assert!(Layout::new(1 << 31, 1).is_some());
        for (vertices, members) in [(1 << 32, 1), (1 << 63, 1), (u64::MAX, 1), (u64::MAX, 7)] {
            assert!(Layout::new(vertices, members).is_none(), "{vertices} over {members}");
        }
    }
}
