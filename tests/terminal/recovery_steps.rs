//! During a long shortage with micro-batches of one sample, more and more blocks are checkpointed
//! and the optimizer's moments move to a file. All of it is reverted when memory is free again, and
//! the losses stay the same. `EBB_PRESSURE_STEPS` sets the number of steps.

use crate::random_kills::setting;
use crate::support::{TestHome, draw_classes, losses, memory_script};
use pressure::{Change, Moments};
use runlog::RunEvent;

const TOTAL_BYTES: u64 = 4_000_000_000;

/// Steps of a run: in the last of them, everything is as in the first ones again.
fn step_count() -> u64 {
    setting("EBB_PRESSURE_STEPS", 100)
}

/// Milliseconds between script lines.
const LINE_MS: u64 = 5_000;
/// Memory of other apps that leaves plenty, and that leaves nothing of the budget beside the
/// reserve.
const PLENTY_LEFT: u64 = 500_000_000;
const NOTHING_LEFT: u64 = 3_110_000_000;

/// A calm start, two minutes with nothing left, a little more with every step, and a calm end.
fn shortage() -> Vec<u64> {
    let calm = std::iter::repeat_n(PLENTY_LEFT, 16);
    let short = std::iter::repeat_n(NOTHING_LEFT, 24);
    let rise = (0..110).flat_map(|step| [NOTHING_LEFT - step * 5_000_000; 3]);
    calm.chain(short)
        .chain(rise)
        .chain([PLENTY_LEFT; 2])
        .collect()
}

fn trained(others: &[u64], options: &str) -> Vec<RunEvent> {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 20);
    let others = others.iter().copied();
    home.file("script", memory_script(TOTAL_BYTES, LINE_MS, others));
    let line = format!(
        "{{birds}} --image-size 32 --steps {} --effective-batch 8 {options} \
         --memory-script {{script}} --memory-script-by decision",
        step_count()
    );
    home.train(&line).expect_code(0).events()
}

/// Change, checkpointed blocks, moments and message of every recovery step, in order.
fn recovery_steps(events: &[RunEvent]) -> Vec<(Change, u32, Moments, &str)> {
    fn recovery_step(event: &RunEvent) -> Option<(Change, u32, Moments, &str)> {
        let RunEvent::Decision {
            decision, message, ..
        } = event
        else {
            return None;
        };
        match decision.change {
            Change::CheckpointMore | Change::CheckpointLess | Change::Moments => Some((
                decision.change,
                decision.checkpoint_blocks,
                decision.moments,
                message.as_str(),
            )),
            _ => None,
        }
    }
    events.iter().filter_map(recovery_step).collect()
}

#[track_caller]
fn check_shortage(options: &str, blocks: u32, allowed: f64) {
    let (calm, pressed) = (
        trained(&[PLENTY_LEFT], options),
        trained(&shortage(), options),
    );
    let steps = recovery_steps(&pressed);
    println!("{options}: {steps:#?}");
    let changes: Vec<_> = steps.iter().map(|&(c, b, m, _)| (c, b, m)).collect();
    let up = (1..=blocks).map(|b| (Change::CheckpointMore, b, Moments::Resident));
    let down = (0..blocks).rev();
    let down = down.map(|b| (Change::CheckpointLess, b, Moments::Resident));
    let moments = [Moments::Mapped, Moments::Resident];
    let moments = moments.map(|moments| (Change::Moments, blocks, moments));
    let expected: Vec<_> = up.chain(moments).chain(down).collect();
    assert_eq!(changes, expected, "{steps:#?}");
    let first = steps[0].3;
    assert!(
        first.starts_with("Recomputing the activations of 1 block to save memory: only one sample at a time has fitted in memory for 3"),
        "{first}"
    );
    let (calm, pressed) = (losses(&calm), losses(&pressed));
    let steps = step_count() as usize;
    assert_eq!((calm.len(), pressed.len()), (steps, steps));
    let differences = calm.iter().zip(&pressed).map(|(a, b)| (a - b).abs());
    let largest = differences.fold(0.0, f64::max);
    println!("{options}: losses differ by at most {largest:.2e}");
    assert!(largest <= allowed, "{options}: {largest:.3e}");
}

#[test]
fn recovery_steps_change_no_loss_in_f64() {
    check_shortage("--model convnet --precision f64", 4, 1e-10);
}

#[test]
fn recovery_steps_change_no_loss_in_f32() {
    check_shortage("--model vit_micro --precision f32", 6, 1e-5);
}
