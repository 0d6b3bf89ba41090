//! One pull of the window: a time window of a run, thinned to its pixels and packed into bytes. Knows the wire format
//! that `PullHeader` describes, not who reads it.

use crate::decimate::{self, Thinned};
use crate::measured::measured;
use crate::reduce::Run;
use crate::series::Series;
use crate::view::{PackedArray, PullHeader};

/// Shortest window, in milliseconds: a run that has just begun has an axis too.
const SHORTEST_MS: u64 = 1000;
/// Widest chart, in pixel columns.
const WIDEST: u32 = 16_384;

/// A pull before it is packed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pull {
    /// The head.
    pub header: PullHeader,
    /// The floats that the head's arrays point into.
    pub arrays: Vec<f64>,
}

impl Run {
    /// Cuts `from_ms..=to_ms` out of the run for a chart of `columns` pixel columns (4..=16384): `None` is the run's
    /// beginning or its clock now. When nothing happened since version `seen` the answer says so and is empty; 0 asks
    /// for everything.
    pub fn window(
        &self,
        from_ms: Option<u64>,
        to_ms: Option<u64>,
        columns: u32,
        seen: u64,
    ) -> Pull {
        if seen != 0 && seen == self.version {
            let header = PullHeader {
                version: seen,
                unchanged: true,
                ..PullHeader::default()
            };
            return Pull {
                header,
                arrays: Vec::new(),
            };
        }
        let columns = columns.clamp(4, WIDEST);
        let from_ms = from_ms.unwrap_or(0);
        let to_ms = to_ms
            .unwrap_or(self.now_ms)
            .max(from_ms.saturating_add(SHORTEST_MS));
        let mut pull = Pull {
            header: self.head(from_ms, to_ms),
            arrays: Vec::new(),
        };
        let (from, to) = (from_ms as f64, to_ms as f64);
        let memory = [
            "memory.at",
            "memory.system",
            "memory.others",
            "memory.state",
            "memory.activations",
            "memory.budget",
        ];
        pull.add(&memory, decimate::line(&self.memory, from, to, columns));
        // The micro-batch holds until the run's clock, not beyond it.
        let held = to.min((self.now_ms as f64).max(from));
        pull.add(
            &["micro.at", "micro.value"],
            decimate::steps(&self.micro, from, held, columns),
        );
        pull.add(
            &["loss.at", "loss.raw", "loss.smoothed"],
            decimate::line(&self.loss, from, to, columns),
        );
        let mut evaluations = Series::<1>::default();
        for evaluation in &self.evaluations {
            evaluations.push(evaluation.at_ms as f64, [evaluation.loss]);
        }
        pull.add(
            &["evaluation.at", "evaluation.loss"],
            decimate::line(&evaluations, from, to, columns),
        );
        pull
    }

    fn head(&self, from_ms: u64, to_ms: u64) -> PullHeader {
        let inside = |from: u64, to: u64| from <= to_ms && to >= from_ms;
        PullHeader {
            version: self.version,
            unchanged: false,
            status: self.status,
            started: self.started.clone(),
            now_ms: self.now_ms,
            now_unix_ms: self.now_unix_ms(),
            from_ms,
            to_ms,
            figures: self.figures.clone(),
            line: self.line.clone(),
            marks: self
                .marks
                .iter()
                .filter(|mark| inside(mark.at_ms, mark.at_ms))
                .cloned()
                .collect(),
            spans: self
                .spans
                .iter()
                .filter(|span| inside(span.from_ms, span.to_ms))
                .copied()
                .collect(),
            notes: self.notes.iter().cloned().collect(),
            measured: measured(&self.figures),
            last_minutes: self.last_minutes.clone(),
            arrays: Vec::new(),
        }
    }
}

impl Pull {
    /// One array of the pull by its name; empty when there is none.
    pub fn array(&self, name: &str) -> &[f64] {
        let found = self.header.arrays.iter().find(|array| array.name == name);
        found.map_or(&[], |array| {
            let from = array.offset as usize;
            &self.arrays[from..from + array.len as usize]
        })
    }

    /// The bytes for the wire, as `PullHeader` describes them.
    pub fn encode(&self) -> Vec<u8> {
        let head = serde_json::to_vec(&self.header).expect("the head is plain data");
        let begin = (4 + head.len()).next_multiple_of(8);
        let mut bytes = Vec::with_capacity(begin + 8 * self.arrays.len());
        bytes.extend((head.len() as u32).to_le_bytes());
        bytes.extend(head);
        bytes.resize(begin, 0);
        bytes.extend(self.arrays.iter().flat_map(|value| value.to_le_bytes()));
        bytes
    }

    fn add<const N: usize>(&mut self, names: &[&str], thinned: Thinned<N>) {
        let columns = std::iter::once(thinned.at_ms).chain(thinned.columns);
        for (name, column) in names.iter().zip(columns) {
            self.header.arrays.push(PackedArray {
                name: (*name).to_owned(),
                offset: self.arrays.len() as u32,
                len: column.len() as u32,
            });
            self.arrays.extend(column);
        }
    }
}
