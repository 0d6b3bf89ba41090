//! Chooses held-out samples and smaller training sets by seed. A choice depends only on the seed,
//! the class and the sample's own name, so that adding a file reorders no other file.

use crate::rng::{self, Rng};

/// Orders the samples of one class by a number that depends on (seed, class, path).
fn ranked(seed: u64, class: &str, paths: &[&str]) -> Vec<usize> {
    let key = |i: &usize| {
        Rng::from_key(&[seed, rng::hash_text(class), rng::hash_text(paths[*i])]).next_u64()
    };
    let mut order: Vec<usize> = (0..paths.len()).collect();
    order.sort_by_key(|i| (key(i), paths[*i]));
    order
}

/// Chooses the held-out samples of one class: a fraction of them, at least one of two, never all.
pub(crate) fn choose_held_out(seed: u64, class: &str, paths: &[&str], fraction: f64) -> Vec<bool> {
    let mut held = vec![false; paths.len()];
    if fraction <= 0.0 || paths.len() < 2 {
        return held;
    }
    let wanted = (paths.len() as f64 * fraction).round() as usize;
    for i in ranked(seed, class, paths)
        .into_iter()
        .take(wanted.clamp(1, paths.len() - 1))
    {
        held[i] = true;
    }
    held
}

/// Chooses at most `limit` samples, each class in proportion. `files` are (label, path). Returns
/// indices into `files` in ascending order.
pub(crate) fn choose_subset(seed: u64, files: &[(u32, String)], limit: usize) -> Vec<usize> {
    let classes = files
        .iter()
        .map(|(label, _)| *label as usize + 1)
        .max()
        .unwrap_or(0);
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); classes];
    for (i, (label, _)) in files.iter().enumerate() {
        members[*label as usize].push(i);
    }
    let mut shares: Vec<(f64, u32, usize)> = Vec::with_capacity(files.len());
    for (label, of_class) in members.iter().enumerate() {
        let paths: Vec<&str> = of_class.iter().map(|i| files[*i].1.as_str()).collect();
        let order = ranked(seed, &label.to_string(), &paths);
        let share = |(rank, i): (usize, usize)| {
            (rank as f64 / paths.len() as f64, label as u32, of_class[i])
        };
        shares.extend(order.into_iter().enumerate().map(share));
    }
    shares.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut chosen: Vec<usize> = shares.into_iter().take(limit).map(|(_, _, i)| i).collect();
    chosen.sort_unstable();
    chosen
}

/// Chooses `limit` samples by seed, each class in proportion; all if there are no more. Returns
/// positions in `labels` in ascending order. The choice depends only on the seed and the labels.
pub(crate) fn choose_samples(seed: u64, labels: &[u32], limit: usize) -> Vec<u32> {
    if labels.len() <= limit {
        return (0..labels.len() as u32).collect();
    }
    let classes = labels.iter().max().map_or(0, |label| *label as usize + 1);
    let mut members: Vec<Vec<(u64, u32)>> = vec![Vec::new(); classes];
    for (place, label) in (0u32..).zip(labels) {
        let key = Rng::from_key(&[seed, u64::from(*label), u64::from(place)]).next_u64();
        members[*label as usize].push((key, place));
    }
    let counts: Vec<usize> = members.iter().map(Vec::len).collect();
    let mut chosen = Vec::with_capacity(limit);
    for (mut of_class, count) in members.into_iter().zip(in_proportion(&counts, limit)) {
        of_class.sort_unstable();
        chosen.extend(of_class.into_iter().take(count).map(|(_, place)| place));
    }
    chosen.sort_unstable();
    chosen
}

/// Moves at most `limit` samples, chosen by seed with each class in proportion, to the front of
/// `order`, and returns their number. The chosen samples and the others keep their order.
pub fn chosen_first(order: &mut [u32], seed: u64, labels: &[u32], limit: usize) -> usize {
    let mut is_other = vec![true; labels.len()];
    let chosen = choose_samples(seed, labels, limit);
    for index in &chosen {
        is_other[*index as usize] = false;
    }
    order.sort_by_key(|index| is_other[*index as usize]);
    chosen.len()
}

/// How many of each class make up `limit` samples in all, by the largest remainders. `limit` is
/// at most the sum of `counts`.
fn in_proportion(counts: &[usize], limit: usize) -> Vec<usize> {
    let all: usize = counts.iter().sum();
    let exact = |count: usize| count as u128 * limit as u128;
    let whole = |count: usize| (exact(count) / all.max(1) as u128) as usize;
    let mut shares: Vec<usize> = counts.iter().map(|count| whole(*count)).collect();
    let mut order: Vec<usize> = (0..counts.len()).collect();
    let remainder = |class: &usize| exact(counts[*class]) % all.max(1) as u128;
    order.sort_by_key(|class| std::cmp::Reverse(remainder(class)));
    let rest = limit - shares.iter().sum::<usize>();
    for class in order.into_iter().take(rest) {
        shares[class] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(n: usize) -> Vec<String> {
        (0..n).map(|i| format!("ant/{i:04}.jpg")).collect()
    }

    fn held(seed: u64, paths: &[String], fraction: f64) -> Vec<bool> {
        let views: Vec<&str> = paths.iter().map(String::as_str).collect();
        choose_held_out(seed, "ant", &views, fraction)
    }

    #[test]
    fn a_class_of_two_or_more_trains_and_holds_out() {
        for n in 2..40 {
            for fraction in [0.01, 0.2, 0.5, 0.9] {
                let count = held(3, &paths(n), fraction).iter().filter(|h| **h).count();
                assert!((1..n).contains(&count), "{count} of {n} at {fraction}");
            }
        }
        assert_eq!(held(3, &paths(1), 0.5), [false]);
        assert_eq!(held(3, &paths(100), 0.2).iter().filter(|h| **h).count(), 20);
    }

    #[test]
    fn another_seed_holds_out_other_samples() {
        assert_ne!(held(1, &paths(50), 0.2), held(2, &paths(50), 0.2));
        assert_eq!(held(1, &paths(50), 0.2), held(1, &paths(50), 0.2));
    }

    #[test]
    fn adding_a_file_moves_at_most_one_other() {
        for n in 5..60 {
            let before = held(9, &paths(n), 0.2);
            let after = held(9, &paths(n + 1), 0.2);
            let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count();
            assert!(moved <= 1, "{moved} of {n} moved");
        }
    }

    #[test]
    fn chosen_samples_depend_on_the_seed_and_keep_the_proportions() {
        let labels: Vec<u32> = (0..1000).map(|place| u32::from(place % 10 == 0)).collect();
        let chosen = choose_samples(7, &labels, 100);
        assert_eq!(chosen.len(), 100);
        assert!(chosen.is_sorted_by(|a, b| a < b));
        let rare = chosen.iter().filter(|place| **place % 10 == 0).count();
        assert_eq!(rare, 10);
        assert_eq!(chosen, choose_samples(7, &labels, 100));
        assert_ne!(chosen, choose_samples(8, &labels, 100));
        assert_eq!(choose_samples(7, &labels, 1000).len(), 1000);
        assert_eq!(choose_samples(7, &[], 5), Vec::<u32>::new());
    }

    #[test]
    fn a_subset_keeps_the_proportions_of_the_classes() {
        let files: Vec<(u32, String)> = (0..100)
            .map(|i| {
                (
                    u32::from(i >= 80) + u32::from(i >= 98),
                    format!("{i:03}.jpg"),
                )
            })
            .collect();
        let chosen = choose_subset(4, &files, 10);
        let of = |label: u32| chosen.iter().filter(|i| files[**i].0 == label).count();
        assert_eq!((of(0), of(1), of(2)), (7, 2, 1));
        assert_eq!(choose_subset(4, &files, 3).len(), 3);
        assert_eq!(choose_subset(4, &files, 1000), (0..100).collect::<Vec<_>>());
    }
}
