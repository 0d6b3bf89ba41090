//! One pull of the window: a time range of a run, decimated to its pixels and packed into bytes.
//! `PullHeader` describes the wire format.

use crate::decimate::{self, Decimated, Rule};
use crate::fold_events::Run;
use crate::live_state::MEMORY_COLUMNS;
use crate::loss_smoothing::smoothed;
use crate::machine_memory::MACHINE_COLUMNS;
use crate::metric_text::{describe_metrics, metric_name, metric_value};
use crate::run_view::{Mark, PackedArray, PullHeader, StressTestSpan};
use crate::step_series::{LOSS_COLUMNS, STEP_COLUMNS};
use crate::time_series::{Columns, Series};

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

/// The curves of the loss panel, in the order of the first columns of `Run::steps`.
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

/// The times of the memory of one rank of a group, then its columns.
const MACHINE_ARRAYS: [&str; 1 + MACHINE_COLUMNS] = [
    "machine.at",
    "machine.ebb",
    "machine.others",
    "machine.budget",
];

/// The further columns of `Run::steps`.
const STEP_ARRAYS: [&str; STEP_COLUMNS - LOSS_COLUMNS] = [
    "loss.gradient_norm",
    "loss.samples_per_second",
    "loss.wait_ms",
    "loss.step",
    COMMAND_BUFFER_ARRAY,
];
/// The last array of the steps, which only runs on a device with command buffers have.
const COMMAND_BUFFER_ARRAY: &str = "loss.command_buffer_ms";

/// Columns of `Run::memory` that are Ebb's footprint.
const OWN: &[usize] = &[2, 3, 4];
/// How the columns of `Run::memory` are decimated: the stack in the moment of Ebb's highest
/// footprint, the lines at their lowest.
const MEMORY_RULES: [Rule; MEMORY_COLUMNS] = [
    Rule::AtHighest(OWN),
    Rule::AtHighest(OWN),
    Rule::AtHighest(OWN),
    Rule::AtHighest(OWN),
    Rule::AtHighest(OWN),
    Rule::Lowest,
    Rule::Lowest,
    Rule::Extremes,
    Rule::Last,
];

/// How the columns of the memory of a rank are decimated: as those of `Run::memory`.
const MACHINE_RULES: [Rule; MACHINE_COLUMNS] =
    [Rule::AtHighest(&[0]), Rule::AtHighest(&[0]), Rule::Lowest];

/// How the columns of `Run::steps` are decimated.
const STEP_RULES: [Rule; STEP_COLUMNS] = [
    Rule::Extremes,
    Rule::Last,
    Rule::Last,
    Rule::Extremes,
    Rule::Extremes,
    Rule::Extremes,
    Rule::Last,
    Rule::Extremes,
];

/// Steps that the smoothed loss covers unless a query asks for another number.
const SMOOTHED_STEPS: f64 = 10.0;

/// Shortest time range, so that a run that has just begun has an axis too.
const MIN_RANGE_MS: u64 = 1000;
/// So many changes are always kept; further ones only if they are apart.
const MAX_MARKS: usize = 200;
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

/// A time range of a run and its resolution.
#[derive(Debug, Clone, Copy, Default)]
pub struct Query {
    /// Start, on the run's clock; `None` is the start of the run.
    pub from_ms: Option<u64>,
    /// End, on the run's clock; `None` is its clock now.
    pub to_ms: Option<u64>,
    /// Pixel columns, 4..=16384.
    pub columns: u32,
    /// Version that was drawn already, or 0.
    pub seen: u64,
    /// Steps that the smoothed loss covers; `None` are ten.
    pub smoothed_steps: Option<f64>,
    /// The rank of a group whose memory is selected; `None` is the first other than 0.
    pub rank: Option<u32>,
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
        self.pull(Query {
            from_ms,
            to_ms,
            columns,
            seen,
            smoothed_steps: None,
            rank: None,
        })
    }

    /// Selects a time range for a chart. If nothing changed since the version that was seen, the
    /// pull is empty and marked `unchanged`.
    pub fn pull(&self, query: Query) -> Pull {
        let seen = query.seen;
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
        let columns = query.columns.clamp(4, MAX_COLUMNS);
        let from_ms = query.from_ms.unwrap_or(0);
        let to_ms = query
            .to_ms
            .unwrap_or(self.now_ms)
            .max(from_ms.saturating_add(MIN_RANGE_MS));
        let mut pull = Pull {
            header: self.header(from_ms, to_ms, columns),
            arrays: Vec::new(),
        };
        let (from, to) = (from_ms as f64, to_ms as f64);
        let range = |all: &Columns<MEMORY_COLUMNS>| {
            decimate::summary(all, &MEMORY_RULES, from, to, columns)
        };
        let mut memory = range(&self.memory.all());
        memory.append(range(&self.live.points().all()));
        pull.add(&MEMORY_ARRAYS, memory);
        // The micro-batch is known up to the run's clock.
        let known_to = to.min((self.now_ms as f64).max(from));
        pull.add(
            &["micro.at", "micro.value"],
            decimate::steps(&self.micro, from, known_to, columns),
        );
        let curves = LOSS_CURVES.iter().map(|curve| curve.array);
        let names: Vec<&str> = std::iter::once("loss.at")
            .chain(curves)
            .chain(STEP_ARRAYS)
            .filter(|name| self.steps.has_command_buffers() || *name != COMMAND_BUFFER_ARRAY)
            .collect();
        let steps = query.smoothed_steps.unwrap_or(SMOOTHED_STEPS);
        pull.add(&names, self.steps_within(from, to, columns, steps));
        pull.add(
            &["evaluation.at", "evaluation.loss", "evaluation.metric"],
            decimate::line(&self.evaluation_series(), from, to, columns),
        );
        if let Some(rank) = self.shown_rank(query.rank)
            && let Some(memory) = self.memory_of_rank(rank, from, to, columns)
        {
            pull.header.shown_rank = Some(rank);
            pull.add(&MACHINE_ARRAYS, memory);
        }
        pull
    }

    /// The rank whose memory is shown: the chosen one if it is in the group, else the first other
    /// than 0, whose memory is that of the run.
    fn shown_rank(&self, chosen: Option<u32>) -> Option<u32> {
        let ranks = self.machines.views.iter().map(|view| view.member.rank);
        let chosen = chosen.filter(|chosen| ranks.clone().any(|rank| rank == *chosen));
        chosen.or_else(|| ranks.take(2).next_back())
    }

    /// The memory of a rank of the group in a time range: Ebb's footprint, what others use, and the
    /// budget line, in bytes. `None` if it is not recorded.
    pub(crate) fn memory_of_rank(
        &self,
        rank: u32,
        from: f64,
        to: f64,
        columns: u32,
    ) -> Option<Decimated<MACHINE_COLUMNS>> {
        let all = self.machines.memory.of_rank(rank)?;
        Some(decimate::summary(&all, &MACHINE_RULES, from, to, columns))
    }

    /// The values of the steps, with the loss smoothed over about `smoothed_steps`.
    fn steps_within(
        &self,
        from: f64,
        to: f64,
        columns: u32,
        smoothed_steps: f64,
    ) -> Decimated<STEP_COLUMNS> {
        let mut all = self.steps.all();
        let first = all.at_ms.partition_point(|at| *at < from).saturating_sub(1);
        let end = all.at_ms.partition_point(|at| *at <= to) + 1;
        let average = smoothed(all.values[0], first..end, smoothed_steps);
        all.values[1] = &average;
        decimate::summary(&all, &STEP_RULES, from, to, columns)
    }

    /// Loss and main metric of each evaluation.
    fn evaluation_series(&self) -> Series<2> {
        let mut evaluations = Series::default();
        for evaluation in &self.evaluations {
            let metric = metric_value(evaluation, &self.targets());
            evaluations.push(evaluation.at_ms as f64, [evaluation.loss, metric]);
        }
        evaluations
    }

    fn targets(&self) -> Vec<String> {
        let started = self.started.as_ref();
        started.map_or_else(Vec::new, |started| started.targets.clone())
    }

    fn header(&self, from_ms: u64, to_ms: u64, columns: u32) -> PullHeader {
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
            status_line: self.current_status_line(),
            last_decision: self.last_decision().cloned(),
            marks: self.marks_within(from_ms, to_ms, columns),
            spans: self
                .live_spans()
                .into_iter()
                .filter(|span| inside(span.from_ms, span.to_ms))
                .collect(),
            stress_tests: self
                .stress_tests
                .iter()
                .map(|test| StressTestSpan {
                    to_ms: test.to_ms.min(self.now_ms.max(test.from_ms)),
                    ..*test
                })
                .filter(|test| inside(test.from_ms, test.to_ms))
                .collect(),
            notes: self.notes.iter().cloned().collect(),
            metrics_text: describe_metrics(&self.figures),
            metric_name: self
                .evaluations
                .last()
                .and_then(|newest| metric_name(newest, &self.targets())),
            last_minutes: self.last_minutes.clone(),
            group: self.group(),
            shown_rank: None,
            arrays: Vec::new(),
        }
    }
}

impl Run {
    /// The changes within a time range, at most one in four pixel columns: the newest.
    fn marks_within(&self, from_ms: u64, to_ms: u64, columns: u32) -> Vec<Mark> {
        let width_ms = ((to_ms - from_ms) * 4 / u64::from(columns)).max(1);
        let mut marks: Vec<Mark> = Vec::new();
        let inside = |mark: &&Mark| mark.at_ms >= from_ms && mark.at_ms <= to_ms;
        for mark in self.marks.iter().filter(inside) {
            let dense = marks.len() >= MAX_MARKS;
            let column = |mark: &Mark| mark.at_ms / width_ms;
            match marks
                .last_mut()
                .filter(|last| dense && column(last) == column(mark))
            {
                Some(last) => *last = mark.clone(),
                None => marks.push(mark.clone()),
            }
        }
        marks
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
