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
//! Before that, [`check_rows`] compares the graph with the edges that were generated.
//!
//! Each member gets the parents and the distances of all, and checks its own edges: rules 2 to 4 need
//! both ends of an edge.

use gossamer::Team;

use crate::exchange;
use crate::graph::Graph;
use crate::kronecker::Edge;
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

/// Checks that the rows of a weighted, undirected graph are the edges that it was to be built of, but for
/// loops: each member brings some of those edges. Compares the sums of a hash of each edge.
///
/// # Errors
/// That they are not.
pub fn check_rows(
    team: &Team,
    graph: &Graph,
    edges: impl IntoIterator<Item = Edge>,
) -> Result<(), String> {
    let (mut made, mut found) = (0u64, 0u64);
    for (from, to, weight) in edges.into_iter().filter(|edge| edge.0 != edge.1) {
        let (from, to) = (graph.layout.place(from), graph.layout.place(to));
        made = made.wrapping_add(hash(from, to, weight)).wrapping_add(hash(to, from, weight));
    }
    for vertex in 0..graph.vertices() as u32 {
        for (to, weight) in graph.weighted(vertex) {
            found = found.wrapping_add(hash(graph.place(vertex), to, weight));
        }
    }
    let add = |a: (u64, u64), b: (u64, u64)| (a.0.wrapping_add(b.0), a.1.wrapping_add(b.1));
    let (made, found) = team.all_reduce((made, found), add);
    if made == found { Ok(()) } else { Err("the graph has not the edges that were made".into()) }
}

/// Two rounds of SplitMix64's finaliser: each bit of the edge changes about half of the result's.
fn hash(from: Place, to: Place, weight: f32) -> u64 {
    let words = [u64::from(from) << 32 | u64::from(to), u64::from(weight.to_bits())];
    words.into_iter().fold(0, |hash: u64, word| {
        let word = (hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    })
}

/// What all members have for their vertices, by place.
fn by_place<V: Copy>(team: &Team, layout: Layout, mine: &[V], none: V) -> Vec<V>
where
    Vec<V>: serde::Serialize + serde::de::DeserializeOwned + 'static,
{
    let all = exchange::gather(team, mine, layout.local(0));
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

#[cfg(test)]
mod tests {
    use gossamer::Rack;

    use super::*;
    use crate::graph::Shape;
    use crate::{bfs, sssp};

    /// A ring of eight vertices, with a shortcut from 0 to 4, and two vertices beside it.
    const EDGES: [(u64, u64, f32); 10] = [
        (0, 1, 0.5),
        (1, 2, 0.25),
        (2, 3, 0.5),
        (3, 4, 0.125),
        (4, 5, 0.5),
        (5, 6, 0.25),
        (6, 7, 0.5),
        (7, 0, 0.125),
        (0, 4, 0.75),
        (8, 9, 0.5),
    ];

    /// A change of what was found for one vertex: its parent and its distance.
    type Change = Option<(u64, Option<u64>, f32)>;

    /// Checks what searches from vertex 0 find, after a change, on three threads.
    fn check_changed(change: Change) -> [Result<u64, String>; 2] {
        let member = |team: &Team, change: Change| {
            let layout = Layout::new(10, team.len()).unwrap();
            let shape = Shape { undirected: true, weighted: true, delta: 0.3 };
            let mine = EDGES.into_iter().filter(|_| team.index() == 0);
            let graph = Graph::build(team, layout, shape, 10, mine).unwrap();
            let root = layout.place(0);
            let change = |parents: &mut [Place], distances: &mut [f32]| {
                let Some((vertex, parent, distance)) = change else { return };
                if let Some(local) = graph.local(layout.place(vertex)) {
                    let parent = parent.map_or(NOWHERE, |parent| layout.place(parent));
                    (parents[local as usize], distances[local as usize]) = (parent, distance);
                }
            };
            let mut parents = bfs::search(team, &graph, root);
            change(&mut parents, &mut vec![0.0; graph.vertices()]);
            let bfs = check(team, &graph, root, &parents, None);
            let mut paths = sssp::search::<f32>(team, &graph, root);
            change(&mut paths.parents, &mut paths.distances);
            [bfs, check(team, &graph, root, &paths.parents, Some(&paths.distances))]
        };
        let run = move || Team::run(member, change);
        let mut results = Rack::new().threads(3).run(run).unwrap();
        results.dedup();
        assert_eq!(results.len(), 1, "all members get the same result");
        results.swap_remove(0)
    }

    #[test]
    fn right_results_pass_and_wrong_ones_do_not() {
        assert_eq!(check_changed(None), [Ok(9), Ok(9)]);
        const FAR: f32 = f32::INFINITY;
        for (change, of_bfs, of_sssp) in [
            // Vertex 2 is two levels from the root, by 1, and 0.75 away.
            ((2, Some(3), 1.5), "levels", "is more than"),
            ((2, Some(1), 0.5), "", "no such edge leads to its parent"),
            ((2, Some(6), 0.75), "levels", "no such edge leads to its parent"),
            ((2, None, FAR), "one end of an edge is not in the tree", "one end of an edge"),
            ((2, None, 0.75), "one end of an edge is not in the tree", "its distance is 0.75"),
            ((2, Some(2), 0.75), "its parents are a circle", "its parents are a circle"),
            ((2, Some(8), 0.75), "without a parent", "without a parent"),
            ((8, Some(0), 1.0), "one end of an edge is not in the tree", "one end of an edge"),
            ((0, Some(1), 0.0), "the root is not its own parent", "the root is not its own"),
            ((0, Some(0), 0.5), "", "the root's distance is 0.5"),
        ] {
            let [bfs, sssp] = check_changed(Some(change));
            for (result, expected) in [(bfs, of_bfs), (sssp, of_sssp)] {
                match result {
                    Ok(edges) => assert!(expected.is_empty() && edges == 9, "{change:?}"),
                    Err(error) => {
                        let is_expected = !expected.is_empty() && error.contains(expected);
                        assert!(is_expected, "{change:?}: {error}");
                    }
                }
            }
        }
    }
}
