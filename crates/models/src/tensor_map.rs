//! How published tensors and Ebb's parameters correspond: one row of a table for each, with the
//! conversion between their layouts. The rows work in both directions, for reading and for export.

mod resize_positions;

use resize_positions::resize_positions;

/// A published tensor and its parameter. `{}` in the names is replaced by the index of each block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TensorRow {
    /// Published name without the table's prefix.
    pub theirs: &'static str,
    /// Name of the parameter. For [`TensorLayout::Unused`], any parameter of the same shape.
    pub ours: &'static str,
    /// Layout of the published tensor.
    pub layout: TensorLayout,
}

/// How a published tensor relates to its parameter. The shapes below are those of the published
/// tensor; `[..]` is the parameter's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TensorLayout {
    /// `[..]`: identical.
    Same,
    /// `[1, .., ..]`: this many leading axes of size 1.
    LeadingOnes(usize),
    /// `[1, before + from², width]`: position embeddings of a square grid, resized to the
    /// parameter's.
    PositionGrid {
        /// Rows before the grid.
        before: usize,
        /// Side of the published grid.
        from: usize,
    },
    /// `[width, 3, side, side]`: a convolution over patches that do not overlap, which is a linear
    /// map of their pixels.
    PatchConvolution,
    /// `[inputs, outputs]`: the transpose, as GPT-2 stores linear maps.
    Transposed,
    /// It is the n-th third of the parameter's rows: query, key or value.
    PartOfOurs(usize),
    /// Its n-th third is the parameter.
    PartOfTheirs(usize),
    /// `[..]`: not needed, because no output depends on it. Exported as zeros.
    Unused,
    /// A BatchNorm's factor: `weight / sqrt(variance + epsilon)`. The row names the norm.
    BatchNormScale,
    /// A BatchNorm's term: `bias - mean * weight / sqrt(variance + epsilon)`. The row names the
    /// norm.
    BatchNormShift,
}

/// A row with complete names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TensorPair {
    /// Published name without the table's prefix.
    pub theirs: String,
    /// Name of the parameter.
    pub ours: String,
    /// Layout of the published tensor.
    pub layout: TensorLayout,
}

/// All rows of an architecture.
#[derive(Debug, Clone)]
pub(crate) struct TensorTable {
    /// Prefix of the body's names in folders that include a head: `bert.`.
    pub prefix: &'static str,
    pub body: Vec<TensorPair>,
    /// The head. Its names have no prefix.
    pub head: Vec<TensorPair>,
    /// Names of tensors that are ignored. `{}` matches any number, a final `*` any suffix.
    pub unneeded: &'static [&'static str],
}

impl TensorRow {
    /// A tensor in the parameter's layout.
    pub const fn same(theirs: &'static str, ours: &'static str) -> Self {
        TensorRow::with_layout(theirs, ours, TensorLayout::Same)
    }

    /// A tensor in another layout.
    pub const fn with_layout(
        theirs: &'static str,
        ours: &'static str,
        layout: TensorLayout,
    ) -> Self {
        TensorRow {
            theirs,
            ours,
            layout,
        }
    }

    /// The row with its `{}` filled in, theirs and ours.
    pub fn filled(self, theirs: &str, ours: &str) -> TensorPair {
        TensorPair {
            theirs: self.theirs.replace("{}", theirs),
            ours: self.ours.replace("{}", ours),
            layout: self.layout,
        }
    }

    /// The row itself, or one for each of `depth` blocks.
    fn repeated(self, depth: usize) -> impl Iterator<Item = TensorPair> {
        let repeats = self.ours.contains("{}") || self.theirs.contains("{}");
        (0..if repeats { depth } else { 1 }).map(move |block| {
            let block = block.to_string();
            self.filled(&block, &block)
        })
    }
}

/// The usual head of a classifier.
pub(crate) const CLASSIFIER: &[TensorRow] = &[
    TensorRow::same("classifier.weight", "head.weight"),
    TensorRow::same("classifier.bias", "head.bias"),
];

/// Added to the variance by PyTorch's BatchNorm; published formats have no setting for it.
pub(crate) const BATCH_NORM_EPSILON: f64 = 1e-5;

/// Rows for `depth` blocks.
pub(crate) fn rows(rows: &[TensorRow], depth: usize) -> Vec<TensorPair> {
    rows.iter().flat_map(|row| row.repeated(depth)).collect()
}

impl TensorTable {
    /// Whether a tensor, named without the prefix, is ignored.
    pub fn is_unneeded(&self, name: &str) -> bool {
        self.unneeded.iter().any(|pattern| matches(pattern, name))
    }
}

/// Whether `name` matches `pattern`, in which `{}` is any number and a final `*` any suffix.
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

impl TensorLayout {
    /// The shape of the published tensor for a parameter of shape `ours`.
    pub fn published_shape(self, ours: &[usize]) -> Vec<usize> {
        match self {
            TensorLayout::Same
            | TensorLayout::Unused
            | TensorLayout::BatchNormScale
            | TensorLayout::BatchNormShift => ours.to_vec(),
            TensorLayout::LeadingOnes(count) => [&vec![1; count], ours].concat(),
            TensorLayout::PositionGrid { before, from } => vec![1, before + from * from, ours[1]],
            TensorLayout::PatchConvolution => {
                let (width, pixels) = (ours[0], ours[1] / 3);
                vec![width, 3, pixels.isqrt(), pixels.isqrt()]
            }
            TensorLayout::Transposed => ours.iter().rev().copied().collect(),
            TensorLayout::PartOfOurs(_) => [&[ours[0] / 3], &ours[1..]].concat(),
            TensorLayout::PartOfTheirs(_) => [&[ours[0] * 3], &ours[1..]].concat(),
        }
    }

    /// Copies a published tensor into `ours`, the values of a parameter of shape `shape`.
    pub fn read(self, theirs: &[f32], shape: &[usize], ours: &mut [f32]) {
        let len = ours.len();
        match self {
            TensorLayout::Same | TensorLayout::LeadingOnes(_) | TensorLayout::PatchConvolution => {
                ours.copy_from_slice(theirs)
            }
            TensorLayout::PositionGrid { before, from } => {
                let to = (shape[0] - before).isqrt();
                ours.copy_from_slice(&resize_positions(theirs, before, from, to, shape[1]));
            }
            TensorLayout::Transposed => transpose(theirs, [shape[1], shape[0]], ours),
            TensorLayout::PartOfOurs(n) => ours[n * len / 3..][..len / 3].copy_from_slice(theirs),
            TensorLayout::PartOfTheirs(n) => ours.copy_from_slice(&theirs[n * len..][..len]),
            TensorLayout::Unused | TensorLayout::BatchNormScale | TensorLayout::BatchNormShift => {}
        }
    }

    /// Copies `ours`, the values of a parameter of shape `shape`, into a published tensor. A
    /// position grid keeps the parameter's size.
    pub fn write(self, ours: &[f32], shape: &[usize], theirs: &mut [f32]) {
        let len = ours.len();
        match self {
            TensorLayout::Same
            | TensorLayout::LeadingOnes(_)
            | TensorLayout::PatchConvolution
            | TensorLayout::PositionGrid { .. } => theirs.copy_from_slice(ours),
            TensorLayout::Transposed => transpose(ours, [shape[0], shape[1]], theirs),
            TensorLayout::PartOfOurs(n) => theirs.copy_from_slice(&ours[n * len / 3..][..len / 3]),
            TensorLayout::PartOfTheirs(n) => theirs[n * len..][..len].copy_from_slice(ours),
            TensorLayout::Unused | TensorLayout::BatchNormScale | TensorLayout::BatchNormShift => {}
        }
    }
}

/// Copies `from`, whose `shape` is [rows, columns], transposed into `to` [columns, rows].
fn transpose(from: &[f32], shape: [usize; 2], to: &mut [f32]) {
    let [rows, columns] = shape;
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
    fn written_tensors_read_back_the_same() {
        for (layout, shape) in [
            (TensorLayout::Same, vec![2, 3]),
            (TensorLayout::LeadingOnes(2), vec![6]),
            (TensorLayout::PatchConvolution, vec![2, 12]),
            (TensorLayout::Transposed, vec![2, 3]),
        ] {
            let ours: Vec<f32> = (0..shape.iter().product::<usize>())
                .map(|v| v as f32)
                .collect();
            let expected = layout.published_shape(&shape);
            assert_eq!(expected.iter().product::<usize>(), ours.len(), "{layout:?}");
            let (mut theirs, mut again) = (vec![0.0; ours.len()], vec![0.0; ours.len()]);
            layout.write(&ours, &shape, &mut theirs);
            layout.read(&theirs, &shape, &mut again);
            assert_eq!(again, ours, "{layout:?}");
        }
        let mut transposed = vec![0.0; 6];
        TensorLayout::Transposed.read(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], &[2, 3], &mut transposed);
        assert_eq!(
            transposed,
            [0.0, 2.0, 4.0, 1.0, 3.0, 5.0],
            "inputs by outputs"
        );
    }

    #[test]
    fn queries_keys_and_values_are_parts_of_one_map() {
        let mut ours = vec![0.0; 6];
        for n in 0..3 {
            TensorLayout::PartOfOurs(n).read(&[n as f32, n as f32 + 0.5], &[3, 2], &mut ours);
        }
        assert_eq!(ours, [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]);
        let mut value = vec![0.0; 2];
        TensorLayout::PartOfTheirs(2).read(&ours, &[2], &mut value);
        assert_eq!(value, [2.0, 2.5]);
    }

    #[test]
    fn ignored_tensors_are_matched_by_pattern() {
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
