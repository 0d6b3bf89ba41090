//! Policies that are not learned: they keep tokens at random, evenly spaced, or by frequency. A
//! decision depends on the tokens and index of its own sequence and, if random, on the step.

use super::Sequence;
use crate::plan::Compression;
use models::DropPolicy;
use tape::Rng;

/// What a pass is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Training: random choices differ in every step.
    Train,
    /// Evaluation: random choices are always the same.
    Evaluate,
}

/// The tokens of a sequence that a baseline keeps; none for a learned policy.
pub fn kept(rule: &Compression, sequence: &Sequence, purpose: Purpose) -> Option<Vec<bool>> {
    let tokens = sequence.ids.len();
    let count = rule.kept(tokens).unwrap_or(tokens);
    match rule.policy {
        DropPolicy::Learned => None,
        DropPolicy::Random => {
            let stream = Rng::new(rule.seed).site("random dropping");
            let stream = match purpose {
                Purpose::Train => stream.at(1).at(sequence.step),
                Purpose::Evaluate => stream.at(0),
            };
            let stream = stream.at(u64::from(sequence.index));
            let drawn = (0..tokens).map(|place| stream.uniform(place as u64));
            Some(largest(drawn.collect(), count))
        }
        DropPolicy::EveryKth => {
            let before = |place: usize| place * count / tokens.max(1);
            let at = |place| before(place + 1) > before(place);
            Some((0..tokens).map(at).collect())
        }
        DropPolicy::Frequency => {
            let frequencies = &sequence.frequencies;
            let rarity =
                |id: &u32| -f64::from(frequencies.get(*id as usize).copied().unwrap_or(0.0));
            Some(largest(sequence.ids.iter().map(rarity).collect(), count))
        }
    }
}

/// Marks the `count` largest scores; of equal ones the first.
fn largest(scores: Vec<f64>, count: usize) -> Vec<bool> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    let mut kept = vec![false; scores.len()];
    order[..count].iter().for_each(|&place| kept[place] = true);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use runlog::PolicyTraining;
    use std::sync::Arc;

    fn rule(policy: DropPolicy) -> Compression {
        Compression {
            policy,
            learning: PolicyTraining::Joint,
            keep_fraction: Some(0.5),
            keep_cost: 1.0,
            temperature: (1.0, 0.1),
            steps: 10,
            seed: 7,
        }
    }

    fn sequence(ids: &[u32]) -> Sequence {
        Sequence {
            index: 3,
            step: 5,
            ids: ids.to_vec(),
            frequencies: Arc::from([0.5, 0.25, 0.125, 0.125].as_slice()),
        }
    }

    fn places(kept: Option<Vec<bool>>) -> Vec<usize> {
        let kept = kept.expect("a baseline");
        let places = kept.iter().enumerate().filter(|(_, kept)| **kept);
        places.map(|(place, _)| place).collect()
    }

    #[test]
    fn baselines_keep_exactly_the_requested_fraction() {
        for policy in [
            DropPolicy::Random,
            DropPolicy::EveryKth,
            DropPolicy::Frequency,
        ] {
            for ids in [
                &[0, 1, 2, 3, 0, 0, 1, 0][..],
                &[0, 0, 0, 0, 0, 0, 0],
                &[2],
                &[],
            ] {
                let rule = rule(policy);
                let kept = places(kept(&rule, &sequence(ids), Purpose::Train));
                assert_eq!(Some(kept.len()), rule.kept(ids.len()), "{policy:?} {ids:?}");
            }
        }
        let every = kept(
            &rule(DropPolicy::EveryKth),
            &sequence(&[0; 8]),
            Purpose::Train,
        );
        assert_eq!(places(every), [1, 3, 5, 7]);
        let common = sequence(&[0, 1, 2, 3, 0, 0, 1, 0]);
        let rare = kept(&rule(DropPolicy::Frequency), &common, Purpose::Evaluate);
        assert_eq!(places(rare), [1, 2, 3, 6]);
    }

    #[test]
    fn random_choices_depend_on_seed_step_and_index_alone() {
        let drawn = |rule: &Compression, sequence: &Sequence, purpose| {
            places(kept(rule, sequence, purpose))
        };
        let (random, one) = (rule(DropPolicy::Random), sequence(&[0; 64]));
        let first = drawn(&random, &one, Purpose::Train);
        assert_eq!(first, drawn(&random, &one, Purpose::Train));
        let later = Sequence {
            step: 6,
            ..one.clone()
        };
        let other = Sequence {
            index: 4,
            ..one.clone()
        };
        let seeded = Compression { seed: 8, ..random };
        assert_ne!(first, drawn(&random, &later, Purpose::Train));
        assert_ne!(first, drawn(&random, &other, Purpose::Train));
        assert_ne!(first, drawn(&seeded, &one, Purpose::Train));
        assert_eq!(
            drawn(&random, &one, Purpose::Evaluate),
            drawn(&random, &later, Purpose::Evaluate)
        );
    }
}
