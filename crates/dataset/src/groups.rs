//! Photographs that belong together, as those of one plate do: a group is trained on or held out as a whole, or what is held
//! out would be known already. Groups come from a column, or from times in names. Sees names only.

use crate::stream::{self, Stream};
use std::collections::BTreeMap;

/// Photographs taken at most so long after one another belong together, in seconds: scans of one plate are minutes apart.
pub(crate) const GAP_SECONDS: u64 = 600;
/// Unix seconds from 2001 to 2100: ten digits.
const SECONDS: std::ops::Range<u64> = 978_307_200..4_102_444_800;
/// Of a hundred names so many at least hold a time.
const MIN_TIMES_PERCENT: usize = 90;

/// The group of each photograph by the times in their names, and how many groups there are; nothing where names hold no times.
pub(crate) fn by_time<'a>(
    names: impl Iterator<Item = &'a str>,
) -> Option<(Vec<Option<String>>, usize)> {
    let times: Vec<Option<u64>> = names.map(time).collect();
    let mut order: Vec<(u64, usize)> = times
        .iter()
        .enumerate()
        .filter_map(|(place, time)| Some(((*time)?, place)))
        .collect();
    if order.len() < 2 || order.len() * 100 < times.len() * MIN_TIMES_PERCENT {
        return None;
    }
    order.sort_unstable();
    let mut groups = vec![None; times.len()];
    let (mut count, mut before, mut first) = (0, None, 0);
    for (time, place) in order {
        if before.is_none_or(|before| time - before > GAP_SECONDS) {
            (count, first) = (count + 1, time);
        }
        before = Some(time);
        groups[place] = Some(first.to_string());
    }
    Some((groups, count))
}

/// The Unix time in a name, in seconds; of milliseconds too.
fn time(name: &str) -> Option<u64> {
    let mut runs = name.split(|c: char| !c.is_ascii_digit());
    runs.find_map(|run| {
        let number: u64 = run.parse().ok()?;
        let seconds = match run.len() {
            10 => number,
            13 => number / 1000,
            _ => return None,
        };
        SECONDS.contains(&seconds).then_some(seconds)
    })
}

/// Which photographs are held out, given the class and the group of each: whole groups in an order that the seed chooses, as
/// long as no class gives more than its share. A class of several groups holds out at least one of them where it can, and no
/// class loses its last one.
pub(crate) fn held_out(seed: u64, members: &[(&str, &str)], fraction: f64) -> Vec<bool> {
    let mut left: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut groups: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for (class, group) in members {
        left.entry(class).or_default().0 += 1;
        *groups.entry(group).or_default().entry(class).or_default() += 1;
    }
    for (all, wanted) in left.values_mut() {
        let share = (*all as f64 * fraction).round() as usize;
        *wanted = match fraction > 0.0 && *all > 1 {
            true => share.clamp(1, *all - 1),
            false => 0,
        };
    }
    let mut ranked: Vec<&str> = groups.keys().copied().collect();
    ranked.sort_by_key(|group| (Stream::keyed(&[seed, stream::name(group)]).bits(), *group));
    let mut held: BTreeMap<&str, ()> = BTreeMap::new();
    for group in &ranked {
        let fits = groups[group].iter().all(|(class, n)| left[class].1 >= *n);
        if fits {
            take(&groups[group], &mut left, true);
            held.insert(group, ());
        }
    }
    // A class whose groups are all larger than its share: its first one goes, as long as another one stays.
    for group in &ranked {
        let untouched = |class: &str| left[class].1 > 0 && !any_held(class, &groups, &held);
        let wanted = groups[group].keys().any(|class| untouched(class));
        let stays = groups[group].iter().all(|(class, n)| left[class].0 > *n);
        if wanted && stays && !held.contains_key(group) {
            take(&groups[group], &mut left, false);
            held.insert(group, ());
        }
    }
    let is_held = |(_, group): &(&str, &str)| held.contains_key(group);
    members.iter().map(is_held).collect()
}

fn take<'a>(
    group: &BTreeMap<&'a str, usize>,
    left: &mut BTreeMap<&'a str, (usize, usize)>,
    count: bool,
) {
    for (class, n) in group {
        if let Some((all, wanted)) = left.get_mut(class) {
            *all -= n;
            *wanted = if count { *wanted - n } else { 0 };
        }
    }
}

fn any_held(
    class: &str,
    groups: &BTreeMap<&str, BTreeMap<&str, usize>>,
    held: &BTreeMap<&str, ()>,
) -> bool {
    held.keys().any(|group| groups[group].contains_key(class))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn photographs_minutes_apart_are_one_group() {
        let names = [
            "dish_1558115867.png",
            "dish_1558115867999.png",
            "dish_1558116400.png",
            "dish_1558117001.png",
        ];
        let (groups, count) = by_time(names.into_iter()).expect("there are times");
        assert_eq!(count, 2);
        assert!(groups[0] == groups[1] && groups[1] == groups[2] && groups[2] != groups[3]);
        assert_eq!(by_time(["ant_01.jpg", "ant_02.jpg"].into_iter()), None);
    }

    #[test]
    fn no_group_is_on_both_sides_and_every_class_trains() {
        for seed in 0..200 {
            let mut stream = Stream::keyed(&[seed]);
            let n = 2 + stream.below(60) as usize;
            let owned: Vec<(String, String)> = (0..n)
                .map(|_| {
                    let group = stream.below(1 + n as u64 / 2);
                    let class = match seed % 2 {
                        0 => group % 3,
                        _ => stream.below(3),
                    };
                    (format!("class {class}"), format!("plate {group}"))
                })
                .collect();
            let members: Vec<(&str, &str)> = owned
                .iter()
                .map(|(c, g)| (c.as_str(), g.as_str()))
                .collect();
            let held = held_out(seed, &members, 0.2);
            for (i, a) in members.iter().enumerate() {
                for (j, b) in members.iter().enumerate() {
                    assert!(a.1 != b.1 || held[i] == held[j], "{a:?} {b:?}");
                }
                let trains = members
                    .iter()
                    .zip(&held)
                    .any(|(b, held)| b.0 == a.0 && !held);
                assert!(trains, "seed {seed}: {} is not trained on", a.0);
            }
        }
    }

    #[test]
    fn about_the_share_is_held_out_and_another_seed_holds_out_others() {
        let owned: Vec<String> = (0..100).map(|i| format!("plate {}", i / 3)).collect();
        let members: Vec<(&str, &str)> = owned.iter().map(|g| ("", g.as_str())).collect();
        let count = |seed| held_out(seed, &members, 0.2).iter().filter(|h| **h).count();
        assert!((17..=20).contains(&count(1)), "{}", count(1));
        assert_ne!(held_out(1, &members, 0.2), held_out(2, &members, 0.2));
        assert!(held_out(1, &members, 0.0).iter().all(|held| !held));
        let one_plate = [("", "a"), ("", "a")];
        assert_eq!(held_out(1, &one_plate, 0.5), [false, false]);
        let two_plates = [
            ("", "a"),
            ("", "a"),
            ("", "a"),
            ("", "b"),
            ("", "b"),
            ("", "b"),
        ];
        assert_eq!(
            held_out(1, &two_plates, 0.1).iter().filter(|h| **h).count(),
            3
        );
    }
}
