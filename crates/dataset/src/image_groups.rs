//! Groups of images that show the same subject. A whole group is either trained on or held out;
//! otherwise the evaluation leaks. Groups come from a column or from times in names. Only names are
//! used.

use crate::rng::{self, Rng};
use std::collections::{BTreeMap, BTreeSet};

/// The rule that groups images whose names contain times, as the end of "grouped by …".
pub(crate) const BY_TIME: &str = "the times in their names";
/// Images taken at most this many seconds apart are in one group: shots of one subject are minutes
/// apart.
pub(crate) const GAP_SECONDS: u64 = 600;
/// Unix seconds from 2001 to 2100, which have ten digits.
const UNIX_SECONDS: std::ops::Range<u64> = 978_307_200..4_102_444_800;
/// Fewest percent of the names that must contain a time.
const MIN_TIMES_PERCENT: usize = 90;

/// Groups images by the times in their names; `None` if the names contain no times.
pub(crate) fn group_by_time<'a>(
    names: impl Iterator<Item = &'a str>,
) -> Option<Vec<Option<String>>> {
    let times: Vec<Option<u64>> = names.map(unix_time).collect();
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
    let (mut before, mut first) = (None, 0);
    for (time, place) in order {
        if before.is_none_or(|before| time - before > GAP_SECONDS) {
            first = time;
        }
        before = Some(time);
        groups[place] = Some(first.to_string());
    }
    Some(groups)
}

/// The Unix time in a name, given in seconds or milliseconds; in seconds.
fn unix_time(name: &str) -> Option<u64> {
    let mut runs = name.split(|c: char| !c.is_ascii_digit());
    runs.find_map(|run| {
        let number: u64 = run.parse().ok()?;
        let seconds = match run.len() {
            10 => number,
            13 => number / 1000,
            _ => return None,
        };
        UNIX_SECONDS.contains(&seconds).then_some(seconds)
    })
}

/// The class and group of an image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member<'a> {
    /// Its class; empty without classes.
    pub class: &'a str,
    pub group: &'a str,
}

/// The images of a class while groups are chosen.
#[derive(Default)]
struct Remaining {
    /// Images that are not held out.
    train: usize,
    /// Images that may still be held out.
    wanted: usize,
}

/// Chooses the held-out images in whole groups. The seed orders the groups; a group is held out as
/// long as no class exceeds its fraction. A class with several groups holds out at least one of
/// them if possible, and always keeps one.
pub(crate) fn choose_held_out(seed: u64, members: &[Member], fraction: f64) -> Vec<bool> {
    let mut left: BTreeMap<&str, Remaining> = BTreeMap::new();
    let mut groups: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for member in members {
        left.entry(member.class).or_default().train += 1;
        let classes = groups.entry(member.group).or_default();
        *classes.entry(member.class).or_default() += 1;
    }
    for class in left.values_mut() {
        if fraction > 0.0 && class.train > 1 {
            let share = (class.train as f64 * fraction).round() as usize;
            class.wanted = share.clamp(1, class.train - 1);
        }
    }
    let mut ranked: Vec<&str> = groups.keys().copied().collect();
    ranked.sort_by_key(|group| {
        (
            Rng::from_key(&[seed, rng::hash_text(group)]).next_u64(),
            *group,
        )
    });
    let mut held: BTreeSet<&str> = BTreeSet::new();
    for group in &ranked {
        let fits = groups[group]
            .iter()
            .all(|(class, n)| left[class].wanted >= *n);
        if fits {
            hold_out(&groups[group], &mut left);
            held.insert(group);
        }
    }
    // If all groups of a class exceed its share, its first one is held out, as long as another
    // remains.
    for group in &ranked {
        let untouched = |class: &str| left[class].wanted > 0 && !any_held(class, &groups, &held);
        let wanted = groups[group].keys().any(|class| untouched(class));
        let stays = groups[group]
            .iter()
            .all(|(class, n)| left[class].train > *n);
        if wanted && stays && !held.contains(group) {
            hold_out(&groups[group], &mut left);
            held.insert(group);
        }
    }
    let is_held = |member: &Member| held.contains(member.group);
    members.iter().map(is_held).collect()
}

/// Holds out a group, given by its images per class.
fn hold_out<'a>(group: &BTreeMap<&'a str, usize>, left: &mut BTreeMap<&'a str, Remaining>) {
    for (class, n) in group {
        if let Some(class) = left.get_mut(class) {
            class.train -= n;
            class.wanted = class.wanted.saturating_sub(*n);
        }
    }
}

fn any_held(
    class: &str,
    groups: &BTreeMap<&str, BTreeMap<&str, usize>>,
    held: &BTreeSet<&str>,
) -> bool {
    held.iter().any(|group| groups[group].contains_key(class))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_taken_minutes_apart_are_one_group() {
        let names = [
            "dish_1558115867.png",
            "dish_1558115867999.png",
            "dish_1558116400.png",
            "dish_1558117001.png",
        ];
        let groups = group_by_time(names.into_iter()).expect("the names contain times");
        assert!(groups[0] == groups[1] && groups[1] == groups[2] && groups[2] != groups[3]);
        assert_eq!(
            group_by_time(["ant_01.jpg", "ant_02.jpg"].into_iter()),
            None
        );
    }

    #[test]
    fn no_group_is_split_and_every_class_keeps_images() {
        for seed in 0..200 {
            let mut rng = Rng::from_key(&[seed]);
            let n = 2 + rng.below(60) as usize;
            let owned: Vec<(String, String)> = (0..n)
                .map(|_| {
                    let group = rng.below(1 + n as u64 / 2);
                    let class = match seed % 2 {
                        0 => group % 3,
                        _ => rng.below(3),
                    };
                    (format!("class {class}"), format!("plate {group}"))
                })
                .collect();
            let members: Vec<Member> = owned
                .iter()
                .map(|(class, group)| Member { class, group })
                .collect();
            let held = choose_held_out(seed, &members, 0.2);
            for (i, a) in members.iter().enumerate() {
                for (j, b) in members.iter().enumerate() {
                    assert!(a.group != b.group || held[i] == held[j], "{a:?} {b:?}");
                }
                let trains = members
                    .iter()
                    .zip(&held)
                    .any(|(b, held)| b.class == a.class && !held);
                assert!(trains, "seed {seed}: {} has no image to train on", a.class);
            }
        }
    }

    #[test]
    fn the_fraction_and_the_seed_decide_what_is_held_out() {
        let names: Vec<String> = (0..100).map(|i| format!("plate {}", i / 3)).collect();
        let nameless = |group| Member { class: "", group };
        let members: Vec<Member> = names.iter().map(|group| nameless(group)).collect();
        let held = |seed, fraction| choose_held_out(seed, &members, fraction);
        let count = held(1, 0.2).iter().filter(|h| **h).count();
        assert!((17..=20).contains(&count), "{count}");
        assert_ne!(held(1, 0.2), held(2, 0.2));
        assert!(held(1, 0.0).iter().all(|held| !held));
        let one_plate = ["a", "a"].map(nameless);
        assert_eq!(choose_held_out(1, &one_plate, 0.5), [false, false]);
        let two_plates = ["a", "a", "a", "b", "b", "b"].map(nameless);
        let held = choose_held_out(1, &two_plates, 0.1);
        assert_eq!(held.iter().filter(|h| **h).count(), 3);
    }
}
