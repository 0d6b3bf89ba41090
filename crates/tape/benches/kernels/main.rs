//! Times the kernels, forward and backward, in the shapes of the workloads: `cargo bench -p tape`,
//! or one of them with `-- layer_norm`. For whole steps use `ebb bench`.

mod inputs_and_timing;
mod norms;
mod activations;
mod attention;
mod linear_and_conv;
mod losses;
mod optim;

use criterion::{Criterion, criterion_group, criterion_main};
use std::time::Duration;

fn quick() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
}

criterion_group! {
    name = kernels;
    config = quick();
    targets = norms::layer_norm, norms::group_norm, activations::gelu, attention::attention, linear_and_conv::linear,
        linear_and_conv::conv2d, losses::cross_entropy, losses::linear_cross_entropy, optim::adamw
}
criterion_main!(kernels);
