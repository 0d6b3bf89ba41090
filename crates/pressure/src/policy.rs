//! Every constant of the controller, with its unit and where it comes from. Values only; the rules are in
//! `controller.rs` and `budget.rs`. "Simulated" means the 27 runs of `tests/simulation.rs`' world.

use serde::{Deserialize, Serialize};

/// One GB as Activity Monitor counts it: 2^30 bytes.
pub(crate) const GB: u64 = 1 << 30;

/// How the pilot behaves. A share is `0.0..=1.0`; "RAM" is the sample's total.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Budget line: the share of RAM that everybody together, Ebb included, may fill. The one constant that trades
    /// max_system_fraction for speed (simulated: .86 costs 4 % of throughput, .92 puts six times as long over the line).
    pub max_system_fraction: f64,
    /// Least bytes left free whatever `max_system_fraction` says, so that a small machine keeps room; at most a fifth of RAM.
    pub reserve_floor_bytes: u64,
    /// The user's ceiling on Ebb's footprint, in bytes.
    pub memory_cap_bytes: Option<u64>,
    /// The same as a share of RAM; the smaller of the two counts. [`Policy::TARGET_FRACTION`] leaves the user a third.
    pub memory_cap_fraction: Option<f64>,
    /// Always this many samples a piece; never paused, never parked.
    pub fixed_micro_batch: Option<u32>,
    /// Share of the GPU's recommended working set that Ebb's footprint may reach (MLX begins to free at the same share).
    pub device_fraction: f64,
    /// Share of the GPU's recommended working set from which caches that the next piece does not need are given back.
    pub device_soft_fraction: f64,
    /// Share of RAM in use from which a running piece above its budget is cancelled.
    pub cancel_fraction: f64,
    /// How far ahead a running piece is cancelled where others take the last memory, milliseconds: until it hears of it, drops
    /// what it holds and the system has that back.
    pub cancel_ahead_ms: u64,
    /// Share of RAM that even a single sample must stay under; above it the pilot pauses.
    pub pause_fraction: f64,
    /// Share of RAM that the state alone must stay under one second ahead; above it the pilot parks.
    pub park_fraction: f64,
    /// How far ahead that is forecast, milliseconds.
    pub park_ahead_ms: u64,
    /// While the pilot works, a checkpoint for a park is asked for at most this often, milliseconds.
    pub checkpoint_apart_ms: u64,
    /// Share of RAM that state and others must fall under before a parked run comes back.
    pub unpark_fraction: f64,
    /// Share of RAM by which a paused run must fit better than it had to when it paused.
    pub continue_fraction: f64,
    /// Share of the budget that a larger micro-batch must fit into.
    pub grow_fraction: f64,
    /// Calm needed before growing, milliseconds (simulated: 2 s is no worse, 16 s recovers seven times slower).
    pub grow_after_ms: u64,
    /// What a change of size costs, in milliseconds of work: giving memory back and touching it anew. Where a larger size is
    /// known to be faster, no longer is waited than it takes to lose as much by waiting.
    pub change_cost_ms: u64,
    /// Least calm before growing, however much is to be won, milliseconds.
    pub grow_least_ms: u64,
    /// Longest calm asked for after growth that had to be undone, milliseconds.
    pub grow_after_most_ms: u64,
    /// Growth undone within this time was wrong: the calm asked for doubles. Milliseconds.
    pub undone_ms: u64,
    /// Quiet time after which the calm asked for returns to `grow_after_ms`, milliseconds. Also the least time at a
    /// size before it is lowered to the knee.
    pub quiet_ms: u64,
    /// Least time between two growths once the slow start is over, milliseconds.
    pub grow_apart_ms: u64,
    /// Growth never goes beyond this many times the largest size ever measured: how far the model may extrapolate.
    pub grow_factor: u32,
    /// A piece costs at most this many times what its size costs in ordinary samples: long ones go in smaller pieces, so
    /// that the caches of one outlier are not kept for all that follow.
    pub heavy_factor: f64,
    /// Voluntary changes (growth, the knee) allowed in any minute. Changing buffer sizes often costs time everywhere and
    /// has been reported to bring the graphics driver of some macOS versions down.
    pub changes_per_minute: u32,
    /// A size within this share of the best samples/s is the knee (simulated: 10 % stops growth far too early).
    pub knee_fraction: f64,
    /// Pieces worked at this pressure or more are slowed by the system and say nothing of a size's speed.
    pub slowed_pressure: f64,
    /// Window of the slope of what others use, milliseconds.
    pub slope_ms: u64,
    /// Added to the duration of a piece for the forecast's horizon, milliseconds.
    pub horizon_extra_ms: u64,
    /// Most that the scatter of what others use may add to the forecast, bytes.
    pub scatter_most_bytes: u64,
    /// Least margin for sudden growth of others, share of RAM.
    pub margin_least: f64,
    /// Margin before there is a history, share of RAM.
    pub margin_start: f64,
    /// Largest margin for sudden growth of others, share of RAM.
    pub margin_most: f64,
    /// Time at one sample a piece, or at none, before the next rung is taken, milliseconds: checkpointing costs a third of
    /// the speed, so what passes by itself is waited for.
    pub rung_after_ms: u64,
    /// While that lasts, time between two rungs, milliseconds.
    pub rung_apart_ms: u64,
    /// Calm after which one such rung is undone, milliseconds; it doubles when that proves too early.
    pub rung_calm_ms: u64,
    /// Longest such calm, milliseconds.
    pub rung_calm_most_ms: u64,
    /// A run parked for longer ends, its checkpoint on disk: the user's limit, milliseconds. Parked it costs next to
    /// nothing, so it waits long; `u64::MAX` stands for ever.
    pub parked_most_ms: u64,
    /// Free disk, bytes, below which a run ends while a checkpoint still fits. One that began with less than twice as much
    /// ends at half of what it began with.
    pub disk_least_bytes: u64,
    /// How long the disk must be short, milliseconds: others write and remove large files.
    pub disk_after_ms: u64,
    /// "Sudden" is growth within this time, milliseconds.
    pub sudden_ms: u64,
    /// How long the history of others is kept, milliseconds.
    pub history_ms: u64,
    /// While a level is critical it is acted on again after this time, milliseconds.
    pub critical_again_ms: u64,
    /// No size at or above a refused one is tried again for this time, milliseconds.
    pub refused_ms: u64,
    /// Caches are given back at a warning when they hold more than this, bytes, and more than a tenth of the footprint.
    pub cache_bytes: u64,
    /// Without a model: micro-batch to begin with.
    pub blind_start: u32,
    /// Without a model: what a warning leaves of the micro-batch.
    pub blind_warning_factor: f64,
    /// Without a model: time between two steps down at a warning, milliseconds.
    pub blind_warning_ms: u64,
    /// Without a model: time between two steps up, milliseconds.
    pub blind_grow_ms: u64,
    /// Without a reading: caches are given back every so many training pieces.
    pub blind_train_pieces: u32,
    /// Without a reading: caches are given back every so many evaluation pieces.
    pub blind_evaluate_pieces: u32,
}

impl Policy {
    /// Two thirds of RAM: what a user who wants room may set as `memory_cap_fraction`.
    pub const TARGET_FRACTION: f64 = 2.0 / 3.0;

    /// The user's ceiling on a machine of `total_bytes`, bytes: the smaller of the two, where any is set.
    pub fn cap_bytes(&self, total_bytes: u64) -> Option<u64> {
        let share = self.memory_cap_fraction.filter(|_| total_bytes > 0);
        let share = share.map(|share| (share * total_bytes as f64) as u64);
        self.memory_cap_bytes.into_iter().chain(share).min()
    }

    /// What is left to others on a machine of `total_bytes` however impolite the policy, in bytes.
    pub fn reserve_least_bytes(&self, total_bytes: u64) -> u64 {
        self.reserve_floor_bytes.min(total_bytes / 5)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_system_fraction: 0.90,
            reserve_floor_bytes: 3 * GB / 2,
            memory_cap_bytes: None,
            memory_cap_fraction: None,
            fixed_micro_batch: None,
            device_fraction: 0.95,
            device_soft_fraction: 0.70,
            cancel_fraction: 0.95,
            cancel_ahead_ms: 1_000,
            pause_fraction: 0.94,
            park_fraction: 0.985,
            park_ahead_ms: 1_000,
            checkpoint_apart_ms: 30_000,
            unpark_fraction: 0.92,
            continue_fraction: 0.01,
            grow_fraction: 0.96,
            grow_after_ms: 4_000,
            change_cost_ms: 1_000,
            grow_least_ms: 1_000,
            grow_after_most_ms: 32_000,
            undone_ms: 5_000,
            quiet_ms: 30_000,
            grow_apart_ms: 2_000,
            grow_factor: 4,
            heavy_factor: 1.15,
            changes_per_minute: 6,
            knee_fraction: 0.03,
            slowed_pressure: 0.7,
            slope_ms: 2_000,
            horizon_extra_ms: 300,
            scatter_most_bytes: GB / 2,
            margin_least: 0.01,
            margin_start: 0.03,
            margin_most: 0.06,
            rung_after_ms: 30_000,
            rung_apart_ms: 10_000,
            rung_calm_ms: 60_000,
            rung_calm_most_ms: 600_000,
            parked_most_ms: 2 * 3_600_000,
            disk_least_bytes: 2 * GB,
            disk_after_ms: 10_000,
            sudden_ms: 600,
            history_ms: 60_000,
            critical_again_ms: 1_000,
            refused_ms: 120_000,
            cache_bytes: GB / 2,
            blind_start: 4,
            blind_warning_factor: 0.8,
            blind_warning_ms: 5_000,
            blind_grow_ms: 10_000,
            blind_train_pieces: 5,
            blind_evaluate_pieces: 3,
        }
    }
}
