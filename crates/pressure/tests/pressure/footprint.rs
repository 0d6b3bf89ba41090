//! The footprint of this process. nextest runs each test in its own process; other tests allocate
//! as well.

use pressure::{own_footprint_bytes, take_own_peak_bytes};

const MB: u64 = 1 << 20;

#[test]
fn the_footprint_and_its_peak_follow_an_allocation() {
    let before = own_footprint_bytes();
    // Without `black_box` the compiler would remove the unread block.
    let block = std::hint::black_box(vec![1u8; 64 * MB as usize]);
    let with_block = own_footprint_bytes();
    assert!(with_block > before + 48 * MB, "{before}, then {with_block}");
    drop(block);
    // If the kernel counts no peak, the monitor polls instead.
    let Some(peak) = take_own_peak_bytes() else {
        return;
    };
    assert!(
        peak >= with_block - MB,
        "{peak}, but {with_block} were read"
    );
    let next = take_own_peak_bytes().expect("it was available a moment ago");
    assert!(
        next < before + 48 * MB,
        "a peak is reported once: {next} after {before}"
    );
}
