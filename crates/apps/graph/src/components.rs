//! Connected components: each vertex takes the smallest place that it hears of, and tells its
//! neighbours, until none has anything new.

use std::collections::HashMap;

use gossamer::Team;

use crate::exchange;
use crate::graph::Graph;
use crate::layout::Place;

/// Labels that were offered to vertices of one member.
type Offers = (Vec<u32>, Vec<Place>);

/// The smallest place of the component of each vertex of this member. The graph is undirected. All
/// members call this together.
#[must_use]
pub fn labels(team: &Team, graph: &Graph) -> Vec<Place> {
    let vertices = 0..graph.vertices() as u32;
    let mut labels: Vec<Place> = vertices.clone().map(|vertex| graph.place(vertex)).collect();
    // The vertices that have something to tell, and whether each is among them.
    let (mut changed, mut is_changed) = (vertices.collect::<Vec<_>>(), vec![true; labels.len()]);
    while team.all_reduce(changed.len(), |a, b| a + b) > 0 {
        let (speaking, mut next) = (std::mem::take(&mut changed), Vec::new());
        let mut take = |labels: &mut [Place], is_changed: &mut [bool], vertex: u32, label| {
            let at = vertex as usize;
            if label < labels[at] {
                labels[at] = label;
                if !std::mem::replace(&mut is_changed[at], true) {
                    next.push(vertex);
                }
            }
        };
        let mut offers = vec![Offers::default(); team.len()];
        for vertex in speaking {
            let label = labels[vertex as usize];
            is_changed[vertex as usize] = false;
            for &neighbour in graph.neighbours(vertex) {
                match graph.local(neighbour) {
                    Some(vertex) => take(&mut labels, &mut is_changed, vertex, label),
                    // The label of a neighbour is at most its place.
                    None if label < neighbour => {
                        let part = &mut offers[graph.layout.owner(neighbour)];
                        part.0.push(graph.layout.local_of(neighbour));
                        part.1.push(label);
                    }
                    None => {}
                }
            }
        }
        exchange::to_each(team, offers, |(vertices, offered)| {
            for (vertex, label) in vertices.into_iter().zip(offered) {
                take(&mut labels, &mut is_changed, vertex, label);
            }
        });
        changed = next;
    }
    labels
}

/// The sizes of all components, from these labels, the largest first.
#[must_use]
pub fn sizes(team: &Team, graph: &Graph, labels: &[Place]) -> Vec<u64> {
    let mut counts = HashMap::<Place, u64>::new();
    labels.iter().for_each(|label| *counts.entry(*label).or_default() += 1);
    let mut parts = vec![(Vec::new(), Vec::new()); team.len()];
    for (label, count) in counts.drain() {
        let part: &mut (Vec<Place>, Vec<u64>) = &mut parts[graph.layout.owner(label)];
        part.0.push(label);
        part.1.push(count);
    }
    exchange::to_each(team, parts, |(labels, part)| {
        for (label, count) in labels.into_iter().zip(part) {
            *counts.entry(label).or_default() += count;
        }
    });
    let mine: Vec<u64> = counts.into_values().collect();
    let mut sizes = exchange::gather(team, &mine, graph.layout.local(0)).concat();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes
}
