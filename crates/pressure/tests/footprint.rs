//! The footprint of this very process. One test, alone in its process: a neighbour's allocation would be seen too.

use pressure::{own_footprint_bytes, take_own_peak_bytes};

const MB: u64 = 1 << 20;

#[test]
fn the_footprint_and_its_peak_follow_an_allocation() {
    let before = own_footprint_bytes();
    // Without the black box an optimising compiler leaves the unread block away.
    let block = std::hint::black_box(vec![1u8; 64 * MB as usize]);
    let with_block = own_footprint_bytes();
    assert!(with_block > before + 48 * MB, "{before}, then {with_block}");
    drop(block);
    // Where the kernel keeps no peak the monitor's beat has to do.
    let Some(peak) = take_own_peak_bytes() else {
        return;
    };
    assert!(
        peak >= with_block - MB,
        "{peak}, but {with_block} were seen"
    );
    let next = take_own_peak_bytes().expect("it was kept a moment ago");
    assert!(
        next < before + 48 * MB,
        "a peak is given once: {next} after {before}"
    );
}
