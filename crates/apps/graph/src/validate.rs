//! What the Graph500 specification demands of a result, checked by all members together.
//!
//! 1. The parents are a tree with the root on top: every vertex with a parent leads to the root.
//! 2. Every vertex of the tree but the root has an edge to its parent, and is one level below it; for
//!    shortest paths, it is as much farther from the root as the edge is long.
//! 3. The vertices of an edge are at most one level apart; for shortest paths, none is farther from the
//!    root than the other one and the edge.
//! 4. The tree has all vertices of the root's component: no edge leads out of it.
//! 5. Distances are there exactly where parents are, and the root's is zero.
//!
//! Each member gets the parents and the distances of all, and checks its own edges: rules 2 to 4 need
//! both ends of an edge.

use gossamer::Team;

use crate::graph::Graph;
use crate::layout::{Layout, NOWHERE, Place};

/// Checks the tree of a search, and the distances of shortest paths if there are any. Returns the
/// number of edges of the tree's component, which the specification counts as traversed. All members
/// call this together, and get the same result.
///
/// # Errors
/// What is wrong, with the vertex.
pub fn check(
    team: &Team,
    graph: &Graph,
    root: Place,
    parents: &[Place],
    distances: Option<&[f32]>,
) -> Result<u64, String> {
    let parents = by_place(team, graph.layout, parents, NOWHERE);
    let distances = distances.map(|mine| by_place(team, graph.layout, mine, f32::INFINITY));
    let mine = levels(graph.layout, root, &parents).and_then(|levels| {
        let found =
            Found { root, parents: &parents, levels: &levels, distances: distances.as_deref() };
        found.check(graph)
    });
    let both = |a: Result<u64, String>, b: Result<u64, String>| Ok(a? + b?);
    // Each edge is in the rows of both its vertices.
    team.all_reduce(mine, both).map(|edges| edges / 2)
}

/// What all members have for their vertices, by place.
fn by_place<V: Copy>(team: &Team, layout: Layout, mine: &[V], none: V) -> Vec<V>
where
    Vec<V>: serde::Serialize + serde::de::DeserializeOwned + 'static,
{
    let all = team.all_gather(mine.to_vec());
    let mut places = vec![none; layout.places()];
    for (member, values) in all.into_iter().enumerate() {
        let start = layout.place_of(member, 0) as usize;
        places[start..start + values.len()].copy_from_slice(&values);
    }
    places
}

/// The level of a vertex that is not in the tree.
const NONE: u32 = u32::MAX;

/// The levels of a tree, by place: rule 1.
fn levels(layout: Layout, root: Place, parents: &[Place]) -> Result<Vec<u32>, String> {
    let mut levels = vec![NONE; parents.len()];
    let wrong = |place, what: &str| Err(format!("vertex {}: {what}", layout.vertex(place)));
    if parents[root as usize] != root {
        return wrong(root, "the root is not its own parent");
    }
    levels[root as usize] = 0;
    let mut way = Vec::new();
    for place in (0..parents.len() as Place).filter(|place| parents[*place as usize] != NOWHERE) {
        // Up to a vertex whose level is known, and back down.
        let mut at = place;
        while levels[at as usize] == NONE {
            way.push(at);
            at = parents[at as usize];
            if at as usize >= parents.len() {
                return wrong(place, "it leads to a vertex without a parent, or to none");
            }
            if way.len() > parents.len() {
                return wrong(place, "its parents are a circle");
            }
        }
        let mut level = levels[at as usize];
        while let Some(below) = way.pop() {
            level += 1;
            levels[below as usize] = level;
        }
    }
    Ok(levels)
}

/// A result, by place.
struct Found<'a> {
    root: Place,
    parents: &'a [Place],
    levels: &'a [u32],
    distances: Option<&'a [f32]>,
}

impl Found<'_> {
    /// Checks the vertices and edges of a member; returns how many of its edges are in the component.
    fn check(&self, graph: &Graph) -> Result<u64, String> {
        let mut traversed = 0;
        for vertex in 0..graph.vertices() as u32 {
            let place = graph.place(vertex);
            self.check_vertex(graph, vertex, place)
                .map_err(|what| format!("vertex {}: {what}", graph.layout.vertex(place)))?;
            if self.levels[place as usize] != NONE {
                traversed += u64::from(graph.degree(vertex));
            }
        }
        Ok(traversed)
    }

    fn check_vertex(&self, graph: &Graph, vertex: u32, place: Place) -> Result<(), String> {
        let (parent, level) = (self.parents[place as usize], self.levels[place as usize]);
        let mut is_confirmed = place == self.root || parent == NOWHERE;
        match self.distances {
            None => {
                for &other in graph.neighbours(vertex) {
                    let there = self.levels[other as usize];
                    if (level == NONE) != (there == NONE) {
                        return Err("one end of an edge is not in the tree".to_owned());
                    }
                    if level.abs_diff(there) > 1 {
                        return Err(format!("levels {level} and {there} at both ends of an edge"));
                    }
                    is_confirmed |= other == parent && level == there + 1;
                }
            }
            Some(distances) => {
                let distance = distances[place as usize];
                if (distance == f32::INFINITY) != (parent == NOWHERE) || distance < 0.0 {
                    return Err(format!("its distance is {distance}"));
                }
                if place == self.root && distance != 0.0 {
                    return Err(format!("the root's distance is {distance}"));
                }
                for (other, weight) in graph.weighted(vertex) {
                    let there = distances[other as usize];
                    if (distance == f32::INFINITY) != (there == f32::INFINITY) {
                        return Err("one end of an edge is not in the tree".to_owned());
                    }
                    if distance > there + weight {
                        return Err(format!(
                            "{distance} is more than {there} and an edge of {weight}"
                        ));
                    }
                    is_confirmed |= other == parent && distance == there + weight;
                }
            }
        }
        if is_confirmed { Ok(()) } else { Err("no such edge leads to its parent".to_owned()) }
    }
}
