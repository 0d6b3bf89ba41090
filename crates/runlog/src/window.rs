//! One pull of the window: a time range of a run, decimated to its pixels and packed into bytes.
//! `PullHeader` describes the wire format.

use crate::decimate::{self, Decimated};
use crate::live::MEMORY_COLUMNS;
use crate::metric_text::describe_metrics;
use crate::reduce::{LOSS_COLUMNS, Run};
use crate::series::Series;
use crate::view::{PackedArray, PullHeader};

/// A curve of the loss panel. The window has its own table, `ui/src/chart/series.ts`.
pub(crate) struct LossCurve {
    /// Its array in a pull.
    pub array: &'static str,
    /// Its name in the report.
    pub name: &'static str,
    /// Whether a single spike may leave the panel.
    pub is_noisy: bool,
    /// Whether it is dashed, on a scale of its own that ends above its highest value.
    pub has_own_scale: bool,
}

/// The curves of the loss panel, in the order of the columns of `Run::loss`.
pub(crate) const LOSS_CURVES: [LossCurve; LOSS_COLUMNS] = [
    LossCurve {
        array: "loss.raw",
        name: "Raw",
        is_noisy: true,
        has_own_scale: false,
    },
    LossCurve {
        array: "loss.smoothed",
        name: "Smoothed",
        is_noisy: false,
        has_own_scale: false,
    },
    LossCurve {
        array: "loss.learning_rate",
        name: "Learning rate",
        is_noisy: false,
        has_own_scale: true,
    },
];

/// The times of `Run::memory`, then its columns.
const MEMORY_ARRAYS: [&str; 1 + MEMORY_COLUMNS] = [
    "memory.at",
    "memory.system",
    "memory.others",
    "memory.state",
    "memory.activations",
    "memory.cached",
    "memory.budget",
    "memory.limit",
    "memory.swap",
    "memory.thermal",
];

/// Shortest time range, so that a run that has just begun has an axis too.
const MIN_RANGE_MS: u64 = 1000;
/// Widest chart, in pixel columns.
const MAX_COLUMNS: u32 = 16_384;

/// A pull before it is encoded.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pull {
    /// The header.
    pub header: PullHeader,
    /// The floats that the header's arrays refer to.
    pub arrays: Vec<f64>,
}

impl Run {
    /// Selects `from_ms..=to_ms` of the run for a chart of `columns` pixel columns (4..=16384).
    /// `None` means the start of the run, or its clock now. If nothing changed since version
    /// `seen`, the pull is empty and marked `unchanged`; pass 0 to always get everything.
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
        let columns = columns.clamp(4, MAX_COLUMNS);
        let from_ms = from_ms.unwrap_or(0);
        let to_ms = to_ms
            .unwrap_or(self.now_ms)
            .max(from_ms.saturating_add(MIN_RANGE_MS));
        let mut pull = Pull {
            header: self.header(from_ms, to_ms),
            arrays: Vec::new(),
        };
        let (from, to) = (from_ms as f64, to_ms as f64);
        let mut memory = decimate::line(&self.memory, from, to, columns);
        memory.append(decimate::line(self.live.points(), from, to, columns));
        pull.add(&MEMORY_ARRAYS, memory);
        // The micro-batch is known up to the run's clock.
        let known_to = to.min((self.now_ms as f64).max(from));
        pull.add(
            &["micro.at", "micro.value"],
            decimate::steps(&self.micro, from, known_to, columns),
        );
        let curves = LOSS_CURVES.iter().map(|curve| curve.array);
        let names: Vec<&str> = std::iter::once("loss.at").chain(curves).collect();
        pull.add(&names, decimate::line(&self.loss, from, to, columns));
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

    fn header(&self, from_ms: u64, to_ms: u64) -> PullHeader {
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
            figures: self.live_figures(),
            progress: self.live.progress,
            status_line: self.status_line.clone(),
            marks: self
                .marks
                .iter()
                .filter(|mark| inside(mark.at_ms, mark.at_ms))
                .cloned()
                .collect(),
            spans: self
                .live_spans()
                .into_iter()
                .filter(|span| inside(span.from_ms, span.to_ms))
                .collect(),
            notes: self.notes.iter().cloned().collect(),
            metrics_text: describe_metrics(&self.figures),
            last_minutes: self.last_minutes.clone(),
            arrays: Vec::new(),
        }
    }
}

impl Pull {
    /// One array of the pull by its name; empty if there is none.
    pub fn array(&self, name: &str) -> &[f64] {
        let found = self.header.arrays.iter().find(|array| array.name == name);
        found.map_or(&[], |array| {
            let from = array.offset as usize;
            &self.arrays[from..from + array.len as usize]
        })
    }

    /// Encodes the pull for the wire, as `PullHeader` describes.
    pub fn encode(&self) -> Vec<u8> {
        let header = serde_json::to_vec(&self.header).expect("a header is plain data");
        let begin = (4 + header.len()).next_multiple_of(8);
        let mut bytes = Vec::with_capacity(begin + 8 * self.arrays.len());
        bytes.extend((header.len() as u32).to_le_bytes());
        bytes.extend(header);
        bytes.resize(begin, 0);
        bytes.extend(self.arrays.iter().flat_map(|value| value.to_le_bytes()));
        bytes
    }

    fn add<const N: usize>(&mut self, names: &[&str], decimated: Decimated<N>) {
        let columns = std::iter::once(decimated.at_ms).chain(decimated.columns);
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
