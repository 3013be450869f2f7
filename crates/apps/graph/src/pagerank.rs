//! PageRank: in each round every vertex shares its rank among those that its edges lead to. A member
//! adds up what its vertices give each vertex of the graph, and sends each other member one vector of
//! sums, so a round sends as much as there are vertices, however many edges there are.

use gossamer::Team;

use crate::exchange;
use crate::graph::Graph;

/// The part of a rank that its vertex shares; the rest is spread over all vertices.
const DAMPING: f64 = 0.85;

/// The ranks of the vertices of this member, which sum to 1 over all members, and the number of rounds:
/// until all ranks together change by less than `tolerance`, or `rounds`. All members call this together.
#[must_use]
pub fn ranks(team: &Team, graph: &Graph, tolerance: f64, rounds: usize) -> (Vec<f64>, usize) {
    let layout = graph.layout;
    let all = layout.vertices() as f64;
    let mut ranks = vec![1.0 / all; graph.vertices()];
    for round in 0..rounds {
        let mut shares: Vec<Vec<f64>> =
            (0..team.len()).map(|member| vec![0.0; layout.local(member)]).collect();
        let mut kept = 0.0;
        for (vertex, rank) in (0..).zip(&ranks) {
            let neighbours = graph.neighbours(vertex);
            if neighbours.is_empty() {
                kept += rank; // is spread, too
            }
            let share = rank / neighbours.len() as f64;
            for &to in neighbours {
                shares[layout.owner(to)][layout.local_of(to) as usize] += share;
            }
        }
        let kept = team.all_reduce(kept, |a: f64, b| a + b);
        let base = (1.0 - DAMPING + DAMPING * kept) / all;
        let mut next = vec![base; ranks.len()];
        for start in exchange::slices(layout.local(0)) {
            let split = |share: &mut Vec<f64>| match start {
                0 => std::mem::take(share),
                _ => share.split_off(start.min(share.len())),
            };
            for part in team.all_to_all(shares.iter_mut().map(split).collect()) {
                let ranks = next.iter_mut().skip(start);
                ranks.zip(part).for_each(|(rank, share)| *rank += DAMPING * share);
            }
        }
        let change: f64 = next.iter().zip(&ranks).map(|(a, b)| (a - b).abs()).sum();
        ranks = next;
        if team.all_reduce(change, |a, b| a + b) < tolerance {
            return (ranks, round + 1);
        }
    }
    (ranks, rounds)
}
