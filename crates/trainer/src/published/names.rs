//! How published tensors and Ebb's parameters correspond: one row of a table for each, with what is done to the numbers
//! between them. The same rows serve both ways. Refuses to know files.

use super::positions::resized;

/// One correspondence. `{}` in the names stands for each block, counted from 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// Published name behind the table's prefix.
    pub published: &'static str,
    /// Ebb's name; for what Ebb does not need, that of a parameter by whose shape the published one goes.
    pub ours: &'static str,
    /// What is done to the numbers.
    pub take: Take,
}

/// What is done to the numbers of a published tensor. The shapes that follow are published ones; `[..]` is Ebb's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Take {
    /// `[..]`: nothing.
    Same,
    /// `[1, .., ..]`: so many axes of one before Ebb's.
    Ones(usize),
    /// `[1, before + from², width]`: embeddings of a grid of places, resized to Ebb's.
    Grid {
        /// Rows before the grid.
        before: usize,
        /// Side of the published grid.
        from: usize,
    },
    /// `[width, 3, side, side]`: a convolution over patches that do not overlap is a linear map of their pixels.
    Patches,
    /// `[inputs, outputs]`: GPT-2 writes its maps so.
    Turned,
    /// It is the n-th third of Ebb's rows: query, key or value.
    Third(usize),
    /// The n-th third of it is Ebb's.
    OfThird(usize),
    /// As large as Ebb's, and not needed: no gradient and no output depends on it. Written as zeros.
    Unseen,
    /// BatchNorm's weight, by deviation: `weight / sqrt(variance + epsilon)`. The row's name is the norm's.
    FrozenScale,
    /// BatchNorm's bias, less the mean: `bias - mean weight / sqrt(variance + epsilon)`. The row's name is the norm's.
    FrozenShift,
}

/// A row for one block: its names are whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    /// Published name without the table's prefix.
    pub published: String,
    /// Ebb's name.
    pub ours: String,
    /// What is done to the numbers.
    pub take: Take,
}

/// All rows of an architecture.
#[derive(Debug, Clone)]
pub(super) struct Table {
    /// What the names of the body begin with where a head was published with it: `bert.`.
    pub prefix: &'static str,
    /// The body.
    pub body: Vec<Named>,
    /// The head, whose names have no prefix.
    pub head: Vec<Named>,
    /// Names, or beginnings of names before a `*`, of tensors that may be there and are not needed; `{}` stands for any block.
    pub unneeded: &'static [&'static str],
}

impl Row {
    const fn new(published: &'static str, ours: &'static str, take: Take) -> Self {
        Row {
            published,
            ours,
            take,
        }
    }

    /// The same numbers in the same shape.
    pub const fn same(published: &'static str, ours: &'static str) -> Self {
        Row::new(published, ours, Take::Same)
    }

    /// Numbers that something is done to.
    pub const fn taking(published: &'static str, ours: &'static str, take: Take) -> Self {
        Row::new(published, ours, take)
    }

    /// The row itself, or one for each of `depth` blocks.
    pub fn of_blocks(self, depth: usize) -> impl Iterator<Item = Named> {
        let repeats = self.ours.contains("{}") || self.published.contains("{}");
        (0..if repeats { depth } else { 1 }).map(move |block| self.named(&block.to_string(), None))
    }

    /// The row of a block whose published name counts otherwise than Ebb's.
    pub fn named(self, published: &str, ours: Option<&str>) -> Named {
        Named {
            published: self.published.replace("{}", published),
            ours: self.ours.replace("{}", ours.unwrap_or(published)),
            take: self.take,
        }
    }
}

/// Rows for `depth` blocks.
pub(super) fn rows(rows: &[Row], depth: usize) -> Vec<Named> {
    rows.iter().flat_map(|row| row.of_blocks(depth)).collect()
}

impl Table {
    /// True for a tensor, named without the prefix, that may be there and is not needed.
    pub fn is_unneeded(&self, name: &str) -> bool {
        self.unneeded.iter().any(|pattern| matches(pattern, name))
    }
}

/// True where `name` is the pattern with numbers in the place of `{}` and anything in that of a `*` at its end.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once("{}") {
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            let digits = rest.chars().take_while(char::is_ascii_digit).count();
            digits > 0 && matches(after, &rest[digits..])
        }),
        None => match pattern.strip_suffix('*') {
            Some(before) => name.starts_with(before),
            None => name == pattern,
        },
    }
}

impl Take {
    /// The published shape of a parameter of Ebb's shape.
    pub fn published_shape(self, ours: &[usize]) -> Vec<usize> {
        match self {
            Take::Same | Take::Unseen | Take::FrozenScale | Take::FrozenShift => ours.to_vec(),
            Take::Ones(count) => [&vec![1; count], ours].concat(),
            Take::Grid { before, from } => vec![1, before + from * from, ours[1]],
            Take::Patches => {
                let (width, pixels) = (ours[0], ours[1] / 3);
                vec![width, 3, pixels.isqrt(), pixels.isqrt()]
            }
            Take::Turned => ours.iter().rev().copied().collect(),
            Take::Third(_) => [&[ours[0] / 3], &ours[1..]].concat(),
            Take::OfThird(_) => [&[ours[0] * 3], &ours[1..]].concat(),
        }
    }

    /// Puts published numbers where they belong among Ebb's, which have the axes `shape`.
    pub fn read(self, published: &[f32], shape: &[usize], ours: &mut [f32]) {
        let len = ours.len();
        match self {
            Take::Same | Take::Ones(_) | Take::Patches => ours.copy_from_slice(published),
            Take::Grid { before, from } => {
                let to = (shape[0] - before).isqrt();
                ours.copy_from_slice(&resized(published, before, from, to, shape[1]));
            }
            Take::Turned => turn(published, [shape[1], shape[0]], ours),
            Take::Third(n) => ours[n * len / 3..][..len / 3].copy_from_slice(published),
            Take::OfThird(n) => ours.copy_from_slice(&published[n * len..][..len]),
            Take::Unseen | Take::FrozenScale | Take::FrozenShift => {}
        }
    }

    /// Puts Ebb's numbers, which have the axes `shape`, where they belong among published ones. A grid has Ebb's size then.
    pub fn write(self, ours: &[f32], shape: &[usize], published: &mut [f32]) {
        let len = ours.len();
        match self {
            Take::Same | Take::Ones(_) | Take::Patches | Take::Grid { .. } => {
                published.copy_from_slice(ours)
            }
            Take::Turned => turn(ours, [shape[0], shape[1]], published),
            Take::Third(n) => published.copy_from_slice(&ours[n * len / 3..][..len / 3]),
            Take::OfThird(n) => published[n * len..][..len].copy_from_slice(ours),
            Take::Unseen | Take::FrozenScale | Take::FrozenShift => {}
        }
    }
}

/// `from` [rows, columns] to `to` [columns, rows].
fn turn(from: &[f32], [rows, columns]: [usize; 2], to: &mut [f32]) {
    for (column, row_of_to) in to.chunks_exact_mut(rows).enumerate() {
        for (row, value) in row_of_to.iter_mut().enumerate() {
            *value = from[row * columns + column];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for (take, shape) in [
            (Take::Same, vec![2, 3]),
            (Take::Ones(2), vec![6]),
            (Take::Patches, vec![2, 12]),
            (Take::Turned, vec![2, 3]),
        ] {
            let ours: Vec<f32> = (0..shape.iter().product::<usize>())
                .map(|v| v as f32)
                .collect();
            let expected = take.published_shape(&shape);
            assert_eq!(expected.iter().product::<usize>(), ours.len(), "{take:?}");
            let (mut published, mut again) = (vec![0.0; ours.len()], vec![0.0; ours.len()]);
            take.write(&ours, &shape, &mut published);
            take.read(&published, &shape, &mut again);
            assert_eq!(again, ours, "{take:?}");
        }
        let mut turned = vec![0.0; 6];
        Take::Turned.read(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], &[2, 3], &mut turned);
        assert_eq!(turned, [0.0, 2.0, 4.0, 1.0, 3.0, 5.0], "inputs by outputs");
    }

    #[test]
    fn thirds_go_to_their_places() {
        let mut ours = vec![0.0; 6];
        for n in 0..3 {
            Take::Third(n).read(&[n as f32, n as f32 + 0.5], &[3, 2], &mut ours);
        }
        assert_eq!(ours, [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]);
        let mut value = vec![0.0; 2];
        Take::OfThird(2).read(&ours, &[2], &mut value);
        assert_eq!(value, [2.0, 2.5]);
    }

    #[test]
    fn what_is_not_needed_is_known_by_its_name() {
        for (pattern, name, expected) in [
            ("h.{}.attn.bias", "h.11.attn.bias", true),
            ("h.{}.attn.bias", "h.x.attn.bias", false),
            ("pooler.*", "pooler.dense.weight", true),
            ("pooler.*", "poolers", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
