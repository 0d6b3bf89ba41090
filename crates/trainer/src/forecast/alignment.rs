//! Sizes that cost more than they seem to: heads whose width is no multiple of a vector, and micro-batches just above a size
//! class of the allocator. Says nothing where nothing is lost.

use super::Forecast;
use crate::bench::Workload;
use models::ImageShape;
use models::ModelId;
use pressure::Allocator;
use runlog::format_bytes;

/// Numbers that a vector register holds, at least: rows of other lengths leave lanes idle.
const LANES: usize = 8;
/// A step of the staircase is worth a word from this share of the footprint on.
const WORTH: f64 = 1.1;

/// What there is to say about sizes, for a suggested micro-batch; none where every size is as good as another.
pub fn alignment(
    forecast: &Forecast,
    checkpointed: u32,
    micro_batch: u32,
    effective_batch: u32,
) -> Vec<String> {
    let heads =
        heads_of(&forecast.model, forecast.resolution).map(|(width, heads)| head(width, heads));
    let stair = stair(forecast, checkpointed, micro_batch, effective_batch);
    heads.flatten().into_iter().chain(stair).collect()
}

/// Width and heads of a transformer.
fn heads_of(model: &str, resolution: u32) -> Option<(usize, usize)> {
    let own = ModelId::image_models().find(|kind| kind.name() == model);
    match own.and_then(|kind| kind.image_shape(resolution as usize)) {
        Some(ImageShape::Vit(shape)) => Some((shape.width, shape.heads)),
        Some(ImageShape::ResNet(..)) => None,
        None => Workload::named(model)?.heads(),
    }
}

/// A sentence where heads do not divide the width, or not into whole vectors.
fn head(width: usize, heads: usize) -> Option<String> {
    let divides = heads > 0 && width.is_multiple_of(heads);
    let each = width / heads.max(1);
    match (divides, each.is_multiple_of(LANES)) {
        (false, _) => Some(format!(
            "{heads} heads do not divide a width of {width}: choose a width that is a multiple of {heads}"
        )),
        (true, false) => Some(format!(
            "Heads of {each} numbers fill vectors of {LANES} badly: a head width that is a multiple of {LANES} costs no more time"
        )),
        (true, true) => None,
    }
}

/// Where buffers are rounded up to powers of two: the largest size that costs no more than this one, and what one more would.
fn stair(
    forecast: &Forecast,
    checkpointed: u32,
    micro_batch: u32,
    effective_batch: u32,
) -> Option<String> {
    if forecast.target.allocator != Allocator::PowerOfTwo {
        return None;
    }
    let peak = |samples: u32| forecast.peak_bytes(checkpointed, samples, effective_batch);
    let here = peak(micro_batch)?;
    let mut edge = micro_batch;
    while edge < effective_batch && (peak(edge + 1)? as f64) < WORTH * here as f64 {
        edge += 1;
    }
    match edge < effective_batch {
        true => Some(format!(
            "Metal's buffers are rounded up to powers of two: up to {edge} samples a piece stay near {}, {} take {}",
            format_bytes(here),
            edge + 1,
            format_bytes(peak(edge + 1)?)
        )),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_that_cost_are_explained_and_others_are_not() {
        let check = |width, heads, words: &[&str]| {
            let said = head(width, heads).unwrap_or_default();
            assert!(
                words.iter().all(|word| said.contains(word)) && said.is_empty() == words.is_empty(),
                "{said}"
            );
        };
        check(384, 6, &[]);
        check(192, 3, &[]);
        check(128, 5, &["5 heads do not divide", "128"]);
        check(120, 10, &["12 numbers", "multiple of 8"]);
    }

    #[test]
    fn every_network_here_is_aligned() {
        let workloads = Workload::ALL.into_iter().filter_map(Workload::heads);
        for (width, heads) in workloads.chain(heads_of("vit_micro", 64)) {
            assert_eq!(head(width, heads), None, "{width} by {heads}");
        }
    }
}
