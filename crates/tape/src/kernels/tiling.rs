//! Decides which f32 products use tensor cores, and how they are tiled, from the shapes and from
//! times measured on an H200.

/// Rows per tile, and elements of the inner axis per step: ROWS and DEPTH of the source.
pub(super) const ROWS: usize = 128;
const DEPTH: usize = 32;
/// Widths of a tile, with the microseconds per step on an H200 and the microseconds before and
/// after all steps.
pub(super) const WIDTHS: [(usize, f64, f64); 3] =
    [(128, 1.25, 5.5), (96, 1.05, 4.0), (64, 0.95, 3.0)];
/// Microseconds until the next group may add to a shared tile.
const TURN_US: f64 = 3.0;
/// Longest sum before it is added to the result.
const LONGEST: usize = 1024;
/// Numbers of groups that may share a tile.
const PARTS: [usize; 8] = [1, 2, 3, 4, 6, 8, 12, 16];
/// Maximum number of shared tiles.
pub(super) const SHARED_TILES: usize = 1024;

/// An operand by address, or by a list of addresses on the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Side {
    /// Address of the first element or of the list.
    pub address: u64,
    /// Elements between two rows, or between two columns if transposed.
    pub step: usize,
    /// Column-major.
    pub turned: bool,
}

/// `c = a b + keep c` in f32.
#[cfg_attr(
    not(feature = "cuda"),
    allow(dead_code, reason = "without CUDA nothing is multiplied")
)]
pub(super) struct Work {
    /// Rows of `a`, columns of `b`, and the inner size.
    pub sizes: [usize; 3],
    /// First operand.
    pub a: Side,
    /// Second operand.
    pub b: Side,
    /// The result, row-major.
    pub c: Side,
    /// Factor of the old result.
    pub keep: f32,
    /// The number of matrices; `None` for a single product.
    pub many: Option<usize>,
    /// Elements between neighboring matrices of `a`, `b` and `c`; `None` if operands are lists of
    /// addresses, or for a single product.
    pub strides: Option<[usize; 3]>,
}

/// Maximum number of matrices: groups of a launch along its second axis.
const MOST_MATRICES: usize = 65_535;

impl Work {
    /// True if every read of an operand can take four elements at once, and every write of the
    /// result two.
    pub fn fits(&self) -> bool {
        let [m, n, k] = self.sizes;
        let (a, b) = (self.a, self.b);
        let beside = [if a.turned { m } else { k }, if b.turned { k } else { n }];
        let listed = self.many.is_some() && self.strides.is_none();
        let whole = |address: u64| listed || address.is_multiple_of(16);
        let apart = self.strides.unwrap_or_default();
        let fours = [beside[0], beside[1], a.step, b.step];
        fours.iter().all(|n| n.is_multiple_of(4))
            && [n, self.c.step].iter().all(|n| n.is_multiple_of(2))
            && [a.address, b.address, self.c.address]
                .into_iter()
                .all(whole)
            && apart.iter().all(|n| n.is_multiple_of(4))
            && self.many.unwrap_or(1) <= MOST_MATRICES
            && !self.c.turned
    }

    /// The width of a tile and the number of groups that share it, if that is faster than cuBLAS
    /// according to measurements on an H200.
    pub fn plan(&self, multiprocessors: usize) -> Option<(usize, usize)> {
        let [m, n, k] = self.sizes;
        let (count, shares) = (self.many.unwrap_or(1), self.many.is_none());
        let time = |&((width, step, fixed), parts): &((usize, f64, f64), usize)| {
            let tiles = m.div_ceil(ROWS) * n.div_ceil(width) * count;
            let each = each(k, parts);
            let rounds = (tiles * parts).div_ceil(multiprocessors) as f64;
            let again = (each.div_ceil(LONGEST) - 1) as f64 + (parts - 1) as f64;
            rounds * ((each / DEPTH) as f64 * step + fixed) + again * TURN_US
        };
        let possible = |&((width, ..), parts): &((usize, f64, f64), usize)| {
            let tiles = m.div_ceil(ROWS) * n.div_ceil(width);
            let apart = shares && each(k, parts) <= LONGEST && tiles <= SHARED_TILES;
            k.div_ceil(each(k, parts)) == parts && (parts == 1 || apart)
        };
        let all = WIDTHS
            .into_iter()
            .flat_map(|width| PARTS.map(|parts| (width, parts)));
        let timed = all.filter(possible).map(|plan| (time(&plan), plan));
        let (fastest, ((width, ..), parts)) = timed.min_by(|a, b| a.0.total_cmp(&b.0))?;
        let operations = 2.0 * (m * n * k * count) as f64;
        // The estimated time of cuBLAS, which is far from its best for many small matrices.
        let others = match self.many {
            None => 10.0 + operations / 48e6,
            Some(_) => 5.0 + operations / 15e6,
        };
        (fastest < others).then_some((width, parts))
    }
}

/// Elements of the inner axis for each of `parts` groups.
pub(super) fn each(k: usize, parts: usize) -> usize {
    k.div_ceil(parts).next_multiple_of(DEPTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(sizes: [usize; 3], many: Option<usize>) -> Work {
        let side = |step| Side {
            address: 256,
            step,
            turned: false,
        };
        Work {
            sizes,
            a: side(sizes[2]),
            b: side(sizes[1]),
            c: side(sizes[1]),
            keep: 0.0,
            many,
            strides: None,
        }
    }

    #[test]
    fn tensor_cores_take_large_products_but_no_long_thin_sums() {
        assert!(work([4096, 3072, 768], None).plan(132).is_some());
        assert!(work([64, 64, 4096], None).plan(132).is_none());
    }

    #[test]
    fn a_long_sum_is_cut_so_that_no_part_goes_on_for_too_long() {
        let (_, parts) = work([768, 768, 4096], None).plan(132).expect("it pays");
        assert!(parts > 1 && each(4096, parts) <= LONGEST, "{parts}");
    }

    #[test]
    fn operands_without_alignment_are_left_to_cublas() {
        assert!(work([4096, 768, 768], None).fits());
        assert!(!work([4096, 767, 768], None).fits());
        let mut odd = work([4096, 768, 768], None);
        odd.a.address += 4;
        assert!(!odd.fits());
        let mut apart = work([4096, 768, 768], Some(3));
        assert!(apart.fits(), "addresses of a list are checked elsewhere");
        apart.strides = Some([4096 * 768, 768 * 768, 4096 * 768]);
        assert!(apart.fits());
        apart.a.address += 4;
        assert!(!apart.fits());
        apart.a.address -= 4;
        apart.strides = Some([4096 * 768 + 2, 768 * 768, 4096 * 768]);
        assert!(!apart.fits());
        assert!(!work([128, 128, 128], Some(70_000)).fits());
    }
}
