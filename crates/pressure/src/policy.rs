//! Every constant of the controller, with its unit and its origin. This file holds values only;
//! other files hold the rules that use them.
//!
//! [`Policy`] holds what a user or a test may set; the constants below it are fixed. "Simulated"
//! refers to the runs of `tests/simulation/main.rs`.

use serde::{Deserialize, Serialize};

/// One GB as Activity Monitor counts it: 2^30 bytes.
pub(crate) const GB: u64 = 1 << 30;

/// How the controller behaves. Fractions are `0.0..=1.0`; "RAM" is the sample's `total_bytes`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// The budget line: the fraction of RAM that all processes together, Ebb included, may fill. A
    /// smaller fraction leaves more to other apps, but training is slower (simulated: 0.86 costs
    /// 4 % of throughput; with 0.92, memory is over the line six times as long).
    #[serde(alias = "politeness")]
    pub max_system_fraction: f64,
    /// Bytes that always stay free, whatever `max_system_fraction` is; at most a fifth of RAM.
    /// (Simulated: twice as much costs a machine of 8 GB a sixth of its throughput.)
    pub reserve_floor_bytes: u64,
    /// The user's cap on Ebb's footprint, in bytes.
    pub memory_cap_bytes: Option<u64>,
    /// The same cap as a fraction of RAM; the smaller of the two applies.
    /// [`Policy::TARGET_FRACTION`] leaves a third of RAM to other apps.
    pub memory_cap_fraction: Option<f64>,
    /// Always use this micro-batch; never pause or suspend.
    pub fixed_micro_batch: Option<u32>,
    /// Fraction of the GPU's recommended working set that Ebb's footprint may reach (MLX frees from
    /// the same fraction).
    pub device_fraction: f64,
    /// Fraction of the GPU's recommended working set above which unneeded caches are released.
    pub device_soft_fraction: f64,
    /// Fraction of RAM in use above which a running micro-batch over its budget is cancelled.
    pub cancel_fraction: f64,
    /// A running micro-batch is cancelled if others would take the last memory within this time, in
    /// milliseconds. In this time, Ebb must notice the cancellation, drop the tensors and return
    /// the memory to the system.
    pub cancel_ahead_ms: u64,
    /// A shortage is answered within this time, in milliseconds: a micro-batch that would run
    /// longer over the budget line is cancelled. (Simulated: 800 answers 1 % of the shortages on
    /// machines of 128 GB after 1.1 s, 600 after 0.9 s; the throughput is the same.)
    pub max_reaction_ms: u64,
    /// Fraction of RAM that even a single sample must stay under; otherwise the controller pauses.
    pub pause_fraction: f64,
    /// Fraction of RAM that the training state alone must stay under; otherwise the controller
    /// suspends.
    #[serde(alias = "park_fraction")]
    pub suspend_fraction: f64,
    /// How far ahead `suspend_fraction` is checked, in milliseconds.
    #[serde(alias = "park_ahead_ms")]
    pub suspend_ahead_ms: u64,
    /// Least time between two checkpoints that prepare for a suspension, in milliseconds.
    #[serde(alias = "checkpoint_apart_ms")]
    pub checkpoint_interval_ms: u64,
    /// Fraction of RAM that state and others together must fall under before a suspended run
    /// resumes.
    #[serde(alias = "unpark_fraction")]
    pub resume_fraction: f64,
    /// A paused run continues only if it fits with this fraction of RAM to spare.
    pub continue_fraction: f64,
    /// Fraction of the budget that a larger micro-batch must fit into.
    pub grow_fraction: f64,
    /// Calm required before growing, in milliseconds (simulated: 2 s is no worse, 16 s recovers
    /// seven times slower).
    pub grow_after_ms: u64,
    /// Cost of changing the size, in milliseconds of work, because memory is returned and touched
    /// again. If a larger size is known to be faster, Ebb grows once waiting at the smaller size
    /// has lost this much time.
    pub change_cost_ms: u64,
    /// Shortest calm required before growing, even if a larger size would be much faster, in
    /// milliseconds.
    #[serde(alias = "grow_least_ms")]
    pub min_grow_after_ms: u64,
    /// Longest calm required after growth that had to be reverted, in milliseconds.
    #[serde(alias = "grow_after_most_ms")]
    pub max_grow_after_ms: u64,
    /// If a growth is reverted within this many milliseconds, the required calm doubles.
    #[serde(alias = "undone_ms")]
    pub revert_window_ms: u64,
    /// Quiet time after which the required calm returns to `grow_after_ms`, in milliseconds. Also
    /// the least time at a size before it is lowered to the throughput plateau.
    pub quiet_ms: u64,
    /// Least time between two growths once the slow start is over, in milliseconds.
    #[serde(alias = "grow_apart_ms")]
    pub grow_interval_ms: u64,
    /// Growth stops at this multiple of the largest size measured, because the memory model cannot
    /// extrapolate further.
    pub grow_factor: u32,
    /// A micro-batch costs at most this multiple of the same number of ordinary samples. Long
    /// samples run in smaller micro-batches, so that one outlier does not leave large caches
    /// behind.
    pub heavy_factor: f64,
    /// Voluntary changes (growth, the plateau) allowed per minute. Changing buffer sizes often
    /// costs time and is reported to crash the graphics driver of some macOS versions.
    #[serde(alias = "changes_per_minute")]
    pub max_changes_per_minute: u32,
    /// The throughput plateau begins at the smallest size within this fraction of the best
    /// throughput (simulated: 10 % stops growth far too early).
    #[serde(alias = "knee_fraction")]
    pub plateau_fraction: f64,
    /// At this pressure the system slows micro-batches down, so their durations are not used as
    /// speeds.
    pub slowed_pressure: f64,
    /// Window for the slope of other apps' use, in milliseconds.
    pub slope_ms: u64,
    /// Added to the duration of a micro-batch to get the horizon of the forecast, in milliseconds.
    pub horizon_extra_ms: u64,
    /// Most that the scatter of other apps' use may add to the forecast, in bytes.
    #[serde(alias = "scatter_most_bytes")]
    pub max_scatter_bytes: u64,
    /// Smallest margin for sudden growth of others, as a fraction of RAM.
    #[serde(alias = "margin_least")]
    pub min_margin_fraction: f64,
    /// Margin before there is a history, as a fraction of RAM.
    #[serde(alias = "margin_start")]
    pub initial_margin_fraction: f64,
    /// Largest margin for sudden growth of others, as a fraction of RAM.
    #[serde(alias = "margin_most")]
    pub max_margin_fraction: f64,
    /// Time at one sample per micro-batch, or at none, before the next recovery step, in
    /// milliseconds. Checkpointing costs a third of the speed, so the controller first waits for
    /// the shortage to pass by itself.
    #[serde(alias = "rung_after_ms")]
    pub recovery_after_ms: u64,
    /// Time between two recovery steps during the same shortage, in milliseconds.
    #[serde(alias = "rung_apart_ms")]
    pub recovery_interval_ms: u64,
    /// Calm required before one recovery step is undone, in milliseconds. If the step is needed
    /// again soon, the required calm doubles.
    #[serde(alias = "rung_calm_ms")]
    pub undo_after_ms: u64,
    /// Longest calm required before one recovery step is undone, in milliseconds.
    #[serde(alias = "rung_calm_most_ms")]
    pub max_undo_after_ms: u64,
    /// Longest time that a run may stay suspended, in milliseconds; `u64::MAX` means forever. After
    /// this time, the run ends; its checkpoint is on disk. A suspended run costs almost nothing, so
    /// the default is long.
    #[serde(alias = "parked_most_ms")]
    pub max_suspended_ms: u64,
    /// Free disk space for swap, in bytes, below which a run ends. If there was less than twice
    /// this space when the run began, the limit is half of the space that was free then. It also
    /// stays free when the optimizer's moments move to the disk.
    #[serde(alias = "disk_least_bytes")]
    pub min_disk_bytes: u64,
    /// How long the space for swap must be short before the run ends, in milliseconds. Another
    /// program may write a large file and remove it soon.
    pub disk_after_ms: u64,
    /// Growth of other apps' use counts as sudden if it happens within this time, in milliseconds.
    /// The margin covers growth within the time that a reaction takes, or this time before that is
    /// known.
    pub sudden_ms: u64,
    /// How long the history of other apps' use is kept, in milliseconds.
    pub history_ms: u64,
    /// If the level stays critical, the controller reacts again after this time, in milliseconds.
    #[serde(alias = "critical_again_ms")]
    pub critical_interval_ms: u64,
    /// No size at or above a refused one is tried again for this time, in milliseconds.
    #[serde(alias = "refused_ms")]
    pub retry_refused_after_ms: u64,
    /// At a warning, caches are released if they hold more than this many bytes and a tenth of the
    /// footprint.
    pub cache_bytes: u64,
    /// Fallback rules: the first micro-batch.
    #[serde(alias = "blind_start")]
    pub fallback_start: u32,
    /// Fallback rules: a warning multiplies the micro-batch by this.
    #[serde(alias = "blind_warning_factor")]
    pub fallback_warning_factor: f64,
    /// Fallback rules: time between two steps down at a warning, in milliseconds.
    #[serde(alias = "blind_warning_ms")]
    pub fallback_warning_interval_ms: u64,
    /// Fallback rules: time between two steps up, in milliseconds.
    #[serde(alias = "blind_grow_ms")]
    pub fallback_grow_interval_ms: u64,
    /// If memory is unreadable: caches are released after this many training micro-batches.
    #[serde(alias = "blind_train_pieces")]
    pub unreadable_train_release: u32,
    /// If memory is unreadable: caches are released after this many evaluation micro-batches.
    #[serde(alias = "blind_evaluate_pieces")]
    pub unreadable_evaluate_release: u32,
}

impl Policy {
    /// Two thirds of RAM: a `memory_cap_fraction` that leaves the user a third.
    pub const TARGET_FRACTION: f64 = 2.0 / 3.0;

    /// The user's cap on a machine of `total_bytes`, in bytes. If both caps are set, the smaller
    /// one applies; `None` if neither is set.
    pub fn cap_bytes(&self, total_bytes: u64) -> Option<u64> {
        let share = self.memory_cap_fraction.filter(|_| total_bytes > 0);
        let share = share.map(|share| (share * total_bytes as f64) as u64);
        self.memory_cap_bytes.into_iter().chain(share).min()
    }

    /// Bytes that always stay free on a machine of `total_bytes`, whatever `max_system_fraction`
    /// is.
    pub fn min_reserve_bytes(&self, total_bytes: u64) -> u64 {
        self.reserve_floor_bytes.min(total_bytes / 5)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_system_fraction: 0.90,
            reserve_floor_bytes: 3 * GB / 4,
            memory_cap_bytes: None,
            memory_cap_fraction: None,
            fixed_micro_batch: None,
            device_fraction: 0.95,
            device_soft_fraction: 0.70,
            cancel_fraction: 0.95,
            cancel_ahead_ms: 1_000,
            max_reaction_ms: 600,
            pause_fraction: 0.94,
            suspend_fraction: 0.985,
            suspend_ahead_ms: 1_000,
            checkpoint_interval_ms: 30_000,
            resume_fraction: 0.92,
            continue_fraction: 0.01,
            grow_fraction: 0.96,
            grow_after_ms: 4_000,
            change_cost_ms: 1_000,
            min_grow_after_ms: 1_000,
            max_grow_after_ms: 32_000,
            revert_window_ms: 5_000,
            quiet_ms: 30_000,
            grow_interval_ms: 2_000,
            grow_factor: 4,
            heavy_factor: 1.15,
            max_changes_per_minute: 6,
            plateau_fraction: 0.03,
            slowed_pressure: 0.7,
            slope_ms: 2_000,
            horizon_extra_ms: 300,
            max_scatter_bytes: GB / 2,
            min_margin_fraction: 0.01,
            initial_margin_fraction: 0.03,
            max_margin_fraction: 0.06,
            recovery_after_ms: 30_000,
            recovery_interval_ms: 10_000,
            undo_after_ms: 60_000,
            max_undo_after_ms: 600_000,
            max_suspended_ms: 2 * 3_600_000,
            min_disk_bytes: 2 * GB,
            disk_after_ms: 10_000,
            sudden_ms: 600,
            history_ms: 60_000,
            critical_interval_ms: 1_000,
            retry_refused_after_ms: 120_000,
            cache_bytes: GB / 2,
            fallback_start: 4,
            fallback_warning_factor: 0.8,
            fallback_warning_interval_ms: 5_000,
            fallback_grow_interval_ms: 10_000,
            unreadable_train_release: 5,
            unreadable_evaluate_release: 3,
        }
    }
}

// The pressure signal. The edges of a component are the readings at which its pressure is 0, 0.5,
// 0.8 and 1.

/// Pressure at which the warning level begins.
pub(crate) const WARNING_PRESSURE: f64 = 0.5;
/// Pressure at which the critical level begins.
pub(crate) const CRITICAL_PRESSURE: f64 = 0.8;
/// A level is left only this far below the pressure at which it began.
pub(crate) const LEVEL_HYSTERESIS: f64 = 0.05;
/// The pressure must stay that low for this long before a level is left, in milliseconds.
pub(crate) const LEAVE_LEVEL_AFTER_MS: u64 = 2_000;
/// Fraction of RAM in use.
pub(crate) const HEADROOM_EDGES: [f64; 4] = [0.0, 0.85, 0.93, 1.0];
/// Device allocation as a fraction of the recommended working set.
pub(crate) const DEVICE_EDGES: [f64; 4] = [0.0, 0.85, 0.95, 1.0];
/// Fraction of non-wired memory that the compressor holds. At the last three edges, the macOS
/// kernel warns, becomes critical, and slows processes down hard.
pub(crate) const COMPRESSOR_EDGES: [f64; 4] = [0.0, 0.50, 0.657, 0.82];
/// Fraction of the last second in which a process waited for memory.
pub(crate) const STALL_EDGES: [f64; 4] = [0.0, 0.05, 0.20, 0.60];
/// Free disk in GB, falling. Swap and checkpoints need it.
pub(crate) const DISK_EDGES_GB: [f64; 4] = [16.0, 8.0, 2.0, 0.25];

// The forecast of other apps' use.

/// Finest resolution of the history, in milliseconds: half of the monitor's fast interval.
pub(crate) const HISTORY_STEP_MS: u64 = 25;
/// Bounds on the time of a reaction that the margin covers, in milliseconds.
pub(crate) const MIN_REACTION_MS: u64 = 200;
pub(crate) const MAX_REACTION_MS: u64 = 3_000;
/// Fewest observations of growth before their quantile is used as the margin.
pub(crate) const MARGIN_MIN_OBSERVATIONS: usize = 10;
/// The quantile of sudden growth that the margin covers, in percent.
pub(crate) const MARGIN_PERCENTILE: usize = 99;
/// The margin is recomputed this often, in milliseconds: it sorts a minute of history.
pub(crate) const MARGIN_INTERVAL_MS: u64 = 1_000;
/// If samples are far apart, this many of the newest points give the slope, even if they are older
/// than `slope_ms`.
pub(crate) const SLOPE_MIN_POINTS: usize = 3;
/// Points older than this are never used for the slope, in milliseconds.
pub(crate) const SLOPE_MAX_AGE_MS: u64 = 10_000;
/// Growth of others below this is not mentioned as a reason, in bytes.
pub(crate) const MENTIONED_GROWTH_BYTES: u64 = 64 << 20;

// Sizes and speeds.

/// Duration of a micro-batch before one was measured, in milliseconds.
pub(crate) const DEFAULT_MICRO_BATCH_MS: f64 = 500.0;
/// Weight of the newest samples in the cost of an ordinary one.
pub(crate) const COST_WEIGHT: f64 = 1.0 / 16.0;
/// Weight of the newest micro-batch in a speed.
pub(crate) const SPEED_WEIGHT: f64 = 1.0 / 16.0;
/// After this many micro-batches without a measured peak, the fallback rules take over.
pub(crate) const UNMEASURED_MICRO_BATCHES: u32 = 4;
/// A speed counts as known after this many micro-batches of the size.
pub(crate) const SPEED_MIN_MICRO_BATCHES: u32 = 3;
/// Micro-batches just before a change of size that the one after it is compared with.
pub(crate) const PAIR_REFERENCE: usize = 4;
/// Comparisons of two sizes that count; older ones count less.
pub(crate) const MAX_PAIR_WEIGHT: f64 = 32.0;
/// Pairs of sizes whose comparison is remembered.
pub(crate) const MAX_SPEED_PAIRS: usize = 32;
/// Timing noise is assumed to be at least this fraction.
pub(crate) const MIN_TIMING_NOISE: f64 = 0.01;
/// Weight of the newest micro-batch in the timing noise.
pub(crate) const TIMING_NOISE_WEIGHT: f64 = 1.0 / 16.0;
/// A difference of speeds is certain beyond this many standard errors: 95 % on one side.
pub(crate) const TIMING_CERTAINTY: f64 = 1.65;
/// Useful sizes are compared if their cost is within this fraction of that of ordinary samples.
pub(crate) const COMPARED_COST_FRACTION: f64 = 0.1;
/// Sizes whose speed must be known before there is a throughput plateau.
pub(crate) const PLATEAU_MIN_SIZES: usize = 3;
/// The slow start measures one sample, then this many, before anything is predicted.
pub(crate) const PROBE: u32 = 2;
/// If too few samples are left in the batch for the intended size, Ebb still grows to a size that
/// is at least this many times the present one.
pub(crate) const WORTHWHILE_GROWTH: u32 = 4;
/// Micro-batches of a size that must run before its speed is used to predict the gain of a growth.
pub(crate) const GAIN_MIN_MICRO_BATCHES: u32 = 2;
/// A micro-batch of samples of unequal cost may cost more than its size usually does up to this
/// fraction of the budget (simulated: with 0.96, machines of 8 GB are over the limit for longer).
pub(crate) const PACKED_FRACTION: f64 = 0.93;
/// The window of `max_changes_per_minute`, in milliseconds.
pub(crate) const CHANGES_WINDOW_MS: u64 = 60_000;

// Caches, checkpoints and recovery.

/// Caches are released at a warning at most this often, in milliseconds.
pub(crate) const RELEASE_INTERVAL_MS: u64 = 5_000;
/// Caches over the limit of the machine are released at most this often, in milliseconds: a reading
/// from before the last release still contains them (simulated: with 1 s, machines of 8 GB that
/// train on texts are over the limit almost three times as long).
pub(crate) const OVER_LIMIT_RELEASE_MS: u64 = 200;
/// Caches are released at a warning only if they hold more than the footprint divided by this.
pub(crate) const CACHE_FOOTPRINT_PART: u64 = 10;
/// Write speed assumed before a checkpoint was timed, in bytes per millisecond: a slow built-in
/// disk.
pub(crate) const DISK_BYTES_PER_MS: f64 = 1e6;
/// Least time between two checkpoints that prepare for a suspension, in write times: writing them
/// takes at most this part of the run (3 %).
pub(crate) const MIN_WRITE_INTERVAL: f64 = 34.0;
/// A checkpoint written within this time, in milliseconds, is written before every suspension.
pub(crate) const CHEAP_WRITE_MS: f64 = 100.0;
/// A checkpoint that takes longer to write than this, in milliseconds, is not written when a
/// suspension is due: other apps could take all memory meanwhile. Instead, one is always kept ready
/// (simulated: with 3 s, 5 of 624 machines of 64 GB were killed while they wrote; with 2 s, none).
pub(crate) const SLOW_WRITE_MS: f64 = 2_000.0;
/// The next such checkpoint is due after this multiple of the time from the start of the run to the
/// last one.
pub(crate) const SLOW_WRITE_AGE_FACTOR: f64 = 2.0;
/// Shortest and longest interval between two such checkpoints, in write times.
pub(crate) const SLOW_WRITE_INTERVALS: [f64; 2] = [10.0, 60.0];
/// The forecast before a checkpoint looks ahead by this multiple of the write time.
pub(crate) const CHECKPOINT_AHEAD: f64 = 1.5;
/// Time cost of checkpointing all blocks: one more forward pass, a third of a step.
pub(crate) const RECOMPUTE_TIME_FRACTION: f64 = 1.0 / 3.0;
/// Until a measurement shows how much checkpointing a block frees, the controller counts on this
/// fraction of the block's share of the activations. All blocks have equal shares.
pub(crate) const TRUSTED_SAVING: f64 = 0.5;

// The memory model.

/// The upper bound is at least this fraction above the estimate.
pub(crate) const MIN_BOUND_MARGIN: f64 = 0.02;
/// The upper bound is also above the estimate by at least this many times the largest recent
/// underestimate.
pub(crate) const RESIDUAL_MARGIN: f64 = 1.5;
/// The largest underestimate is multiplied by this after each micro-batch.
pub(crate) const RESIDUAL_DECAY: f64 = 0.98;
/// Each stored peak is multiplied by this after every micro-batch.
pub(crate) const OBSERVED_DECAY: f64 = 0.999;
/// With an exact allocator, the peaks of two sizes are stored as one if the sizes differ by less
/// than this, in samples.
pub(crate) const SAME_SIZE_SAMPLES: f64 = 0.5;
/// With a rounding allocator, the same applies if the sizes differ by less than this fraction.
pub(crate) const SAME_SIZE_FRACTION: f64 = 0.02;
/// Forgetting of the line: the weight of a point halves after 46 more.
pub(crate) const LINE_FORGETTING: f64 = 0.985;
/// Uncertainty of the line before its first point; so large that the start values have no weight.
pub(crate) const LINE_INITIAL_UNCERTAINTY: f64 = 1e6;
/// Above this uncertainty, the fit forgets nothing: while the micro-batch size stays the same, no
/// new data could restore a forgotten slope.
pub(crate) const LINE_MAX_UNCERTAINTY: f64 = 10.0;
/// Fractions of a sample's memory that the fitted models assume to be exact rather than rounded.
/// Another model assumes 1.0.
pub(crate) const EXACT_FRACTIONS: [f64; 3] = [0.0, 1.0 / 3.0, 2.0 / 3.0];
/// Candidate positions of the class edges within an octave.
pub(crate) const EDGES_PER_OCTAVE: u32 = 64;
/// A candidate's interval extends by this fraction of a position on both sides: costs are whole and
/// peaks are noisy.
pub(crate) const EDGE_OVERLAP: f64 = 0.5;
/// Tolerance for treating two positions in an interval as equal.
pub(crate) const EDGE_TOLERANCE: f64 = 1e-6;
/// Measurement noise of a peak, as a fraction of it.
pub(crate) const PEAK_NOISE: f64 = 0.012;
/// A candidate stays possible while its squared error exceeds the best one's by at most this many
/// squared noises.
pub(crate) const EDGE_DOUBT: f64 = 16.0;
/// If the squared relative spread of the capacities is below this, they count as equal and give no
/// slope.
pub(crate) const MIN_CAPACITY_SPREAD: f64 = 1e-6;

// The suggestion before a run, and the stress test.

/// A suggested cap is the estimate times this, because the estimate may be that much too low.
pub(crate) const SUGGESTED_CAP_FACTOR: f64 = 1.12;
/// A suggested cap is a multiple of this, in bytes.
pub(crate) const SUGGESTED_CAP_STEP_BYTES: u64 = 32 << 20;
/// By default a stress test takes available memory divided by this.
pub(crate) const STRESS_TEST_PART: u64 = 4;
/// A stress test smaller than this would have no effect, in bytes.
pub(crate) const MIN_STRESS_TEST_BYTES: u64 = 16 << 20;

// Reading the machine.

/// Time between two readings while the machine is calm.
pub(crate) const SAMPLE_INTERVAL: std::time::Duration = std::time::Duration::from_millis(100);
/// Time between two readings at the warning pressure and above.
pub(crate) const FAST_SAMPLE_INTERVAL: std::time::Duration = std::time::Duration::from_millis(50);
/// Fast samples between two full ones while the machine is calm: slow readings are refreshed once a
/// second.
pub(crate) const FAST_SAMPLES: u32 = 9;
/// Samples buffered for `take_samples`: half a minute at the fast interval.
pub(crate) const BUFFERED_SAMPLES: usize = 600;
/// The largest integer in JSON that every program reads exactly; sums of a few stay far below 2^64.
pub(crate) const MAX_INTEGER: u64 = 1 << 53;
/// The largest gap between two samples on JSON lines, in milliseconds. The forecast cannot look
/// across a larger gap.
pub(crate) const MAX_SAMPLE_GAP_MS: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_of_an_older_version_can_be_read() {
        let json = r#"{"politeness":0.7,"parked_most_ms":5,"knee_fraction":0.1,"blind_start":2}"#;
        let policy: Policy = serde_json::from_str(json).expect("the old keys are accepted");
        let expected = Policy {
            max_system_fraction: 0.7,
            max_suspended_ms: 5,
            plateau_fraction: 0.1,
            fallback_start: 2,
            ..Policy::default()
        };
        assert_eq!(policy, expected);
    }
}
