//! How the memory of a process went: edges at observations, boundaries, the start and the end.

use crate::report::model::{self, Bands, TimelineBand};

/// Edges of a timeline in the report.
pub(super) const MAX_EDGES: usize = 2800;

#[derive(Clone, Copy, Debug, Default)]
struct Edge {
    at: u64,
    /// Start, end or boundary: never thinned out.
    fixed: bool,
    in_use: u64,
    rss: Option<u64>,
    bands: Option<Bands>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    edges: Vec<Edge>,
}

impl Timeline {
    pub fn start(&mut self, at: u64) {
        if self.edges.is_empty() {
            self.edges.push(Edge { at, fixed: true, ..Edge::default() });
        }
    }

    pub fn boundary(&mut self, at: u64, in_use: u64) {
        self.push(Edge { at, fixed: true, in_use, ..Edge::default() });
    }

    pub fn look(&mut self, at: u64, rss: u64, bands: Bands, in_use: u64) {
        self.push(Edge { at, fixed: false, in_use, rss: Some(rss), bands: Some(bands) });
    }

    pub fn end(&mut self, at: u64) {
        let in_use = self.edges.last().map_or(0, |e| e.in_use);
        self.push(Edge { at, fixed: true, in_use, ..Edge::default() });
    }

    fn push(&mut self, edge: Edge) {
        match self.edges.last_mut() {
            // One moment is one edge, with all that is known of it.
            Some(last) if last.at == edge.at => {
                last.fixed |= edge.fixed;
                last.in_use = edge.in_use;
                last.rss = edge.rss.or(last.rss);
                last.bands = edge.bands.or(last.bands);
            }
            _ => self.edges.push(edge),
        }
        // A trace of days must not keep every observation: thinning at twice the size costs little each time.
        if self.edges.len() >= 2 * MAX_EDGES {
            self.edges = thinned(&self.edges, MAX_EDGES);
        }
    }

    pub fn report(&self) -> model::Timeline {
        let mut edges = self.edges.clone();
        // Events of several CPUs can be a little out of order.
        edges.sort_by_key(|e| e.at);
        let edges = thinned(&edges, MAX_EDGES);
        let band = |name: &str, of: fn(&Bands) -> Option<u64>| TimelineBand {
            band: name.to_owned(),
            bytes: edges.iter().map(|e| e.bands.as_ref().and_then(of)).collect(),
        };
        model::Timeline {
            edges: edges.iter().map(|e| e.at).collect(),
            bands: vec![
                band("pool_in_use", |b| b.pool_in_use),
                band("pool_free", |b| b.pool_free),
                band("heap_in_use", |b| b.heap_in_use),
                band("heap_free", |b| b.heap_free),
                band("mappings_other", |b| b.mappings_other),
                band("files", |b| b.files),
                band("unexplained", |b| b.unexplained),
            ],
            in_use: edges.iter().map(|e| e.in_use).collect(),
            rss: edges.iter().map(|e| e.rss).collect(),
            devices: Vec::new(),
        }
    }
}

/// At most `max` edges: the fixed ones and the peaks stay, the others evenly. When the fixed ones alone are too many
/// they are thinned too, but for the ends and the peaks.
fn thinned(edges: &[Edge], max: usize) -> Vec<Edge> {
    if edges.len() <= max {
        return edges.to_vec();
    }
    let peak = |of: fn(&Edge) -> u64| (0..edges.len()).max_by_key(|&i| of(&edges[i]));
    let peaks = [peak(|e| e.rss.unwrap_or(0)), peak(|e| e.in_use)];
    let must = |i: usize| i == 0 || i + 1 == edges.len() || peaks.contains(&Some(i));
    let first: Vec<usize> = (0..edges.len()).filter(|&i| must(i)).collect();
    let fixed: Vec<usize> = (0..edges.len()).filter(|&i| edges[i].fixed && !must(i)).collect();
    let other: Vec<usize> = (0..edges.len()).filter(|&i| !edges[i].fixed && !must(i)).collect();
    let mut kept = first;
    for list in [fixed, other] {
        kept.extend(evenly(&list, max.saturating_sub(kept.len())));
    }
    kept.sort_unstable();
    kept.into_iter().filter_map(|i| edges.get(i).copied()).collect()
}

fn evenly(list: &[usize], n: usize) -> Vec<usize> {
    if list.len() <= n {
        return list.to_vec();
    }
    (0..n).filter_map(|k| list.get(k * list.len() / n).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_peak_and_ends_are_never_thinned_out() {
        let mut t = Timeline::default();
        t.start(1);
        for i in 0..20_000_u64 {
            let at = 10 + i * 10;
            let rss = if i == 7_777 { 999_999 } else { i % 100 };
            t.look(at, rss, Bands::default(), 5);
            if i % 1000 == 0 {
                t.boundary(at + 1, 6);
            }
        }
        t.end(300_000);
        let r = t.report();
        assert!(r.edges.len() <= MAX_EDGES, "{}", r.edges.len());
        assert_eq!((r.edges.first(), r.edges.last()), (Some(&1), Some(&300_000)));
        for i in (0..20_000_u64).step_by(1000) {
            assert!(r.edges.contains(&(11 + i * 10)), "{i}");
        }
        assert!(r.rss.contains(&Some(999_999)));
        assert!(r.edges.is_sorted());
        for band in &r.bands {
            assert_eq!(band.bytes.len(), r.edges.len());
        }
        assert_eq!((r.in_use.len(), r.rss.len()), (r.edges.len(), r.edges.len()));
    }

    #[test]
    fn too_many_boundaries_still_fit() {
        let mut t = Timeline::default();
        for i in 0..5_000 {
            t.boundary(i * 3, i);
        }
        let r = t.report();
        assert!(r.edges.len() <= MAX_EDGES);
        assert_eq!(r.edges.last(), Some(&(4_999 * 3)));
    }

    #[test]
    fn one_moment_is_one_edge() {
        let mut t = Timeline::default();
        t.start(5);
        t.look(9, 100, Bands::default(), 3);
        t.boundary(9, 4);
        let r = t.report();
        assert_eq!(r.edges, [5, 9]);
        assert_eq!(r.rss, [None, Some(100)]);
        assert_eq!(r.in_use, [0, 4]);
    }
}
