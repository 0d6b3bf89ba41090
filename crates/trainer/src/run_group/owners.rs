//! Which rank updates which parameter, if the machines of a run share the optimizer state (ZeRO
//! stage 1: Rajbhandari et al. 2020). A rank keeps the moments of its own parameters only, updates
//! these, and gets the others from their owners.

/// The owner of every parameter, by position.
#[derive(Debug, Clone)]
pub(crate) struct Owners {
    owners: Vec<usize>,
    /// The rank that asks.
    rank: usize,
}

impl Owners {
    /// Assigns parameters to `ranks` owners so that each gets about the same part of the state.
    /// `sizes` are the bytes of the state of each parameter, by position. The largest parameters
    /// are assigned first, each to the rank that has least, so that a rank has at most the average
    /// and the largest parameter. All ranks get the same result.
    pub(crate) fn new(sizes: &[u64], ranks: usize, rank: usize) -> Self {
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by_key(|&index| (std::cmp::Reverse(sizes[index]), index));
        let (mut owners, mut held) = (vec![0; sizes.len()], vec![0u64; ranks.max(1)]);
        for index in order {
            let least = (0..held.len()).min_by_key(|&rank| (held[rank], rank));
            let owner = least.unwrap_or(0);
            held[owner] += sizes[index];
            owners[index] = owner;
        }
        Owners { owners, rank }
    }

    /// The largest part of the state that one of `ranks` owners has, in bytes.
    pub(crate) fn largest_part(sizes: &[u64], ranks: usize) -> u64 {
        let mut held = vec![0u64; ranks.max(1)];
        let owners = Owners::new(sizes, ranks, 0).owners.into_iter();
        for (owner, size) in owners.zip(sizes) {
            held[owner] += size;
        }
        held.into_iter().max().unwrap_or(0)
    }

    /// Makes rank 0 the owner of all parameters, so that no other rank has any moments.
    pub(crate) fn all_at_rank_0(parameters: usize, rank: usize) -> Self {
        let owners = vec![0; parameters];
        Owners { owners, rank }
    }

    /// The owner of each parameter, for a comparison of all ranks.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.owners.iter().map(usize::to_string).collect()
    }

    /// The owner of each parameter.
    pub(super) fn all(&self) -> &[usize] {
        &self.owners
    }

    /// Whether another rank than 0 owns parameters.
    pub(crate) fn are_divided(&self) -> bool {
        self.owners.iter().any(|&owner| owner != 0)
    }

    /// Whether this rank owns the parameter at this position.
    pub(crate) fn is_mine(&self, index: usize) -> bool {
        self.owners[index] == self.rank
    }

    /// For each position, whether this rank owns the parameter.
    pub(crate) fn mine(&self) -> Vec<bool> {
        (0..self.owners.len())
            .map(|index| self.is_mine(index))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of AdamW's moments for the parameters of a network like GPT-2 small.
    fn gpt_small() -> Vec<u64> {
        let (width, vocabulary, context) = (768u64, 50_257, 1024);
        let matrices = [3 * width, width, 4 * width, 4 * width].map(|rows| rows * width);
        let vectors = [3 * width, width, 4 * width, width];
        let norms = [width; 4];
        let block = || matrices.into_iter().chain(vectors).chain(norms);
        let values = [vocabulary * width, context * width].into_iter();
        let blocks = (0..12).flat_map(|_| block());
        let values = values.chain(blocks).chain([width; 2]);
        values.map(|values| 8 * values).collect()
    }

    #[test]
    fn two_ranks_have_about_half_of_the_moments_each() {
        let sizes = gpt_small();
        let all: u64 = sizes.iter().sum();
        let part = |ranks, rank| {
            let owners = Owners::new(&sizes, ranks, rank);
            let mine = owners.mine().into_iter().zip(&sizes);
            let held: u64 = mine
                .filter(|(is_mine, _)| *is_mine)
                .map(|(_, size)| size)
                .sum();
            held as f64 / all as f64
        };
        for rank in 0..2 {
            let part = part(2, rank);
            println!("rank {rank} of 2 has {:.1} % of the moments", 100.0 * part);
            assert!(part <= 0.55, "{part}");
        }
        // The embedding is a third of the network, and has one owner.
        let parts: Vec<f64> = (0..4).map(|rank| part(4, rank)).collect();
        assert!((parts.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!(parts.iter().all(|part| *part < 0.35), "{parts:?}");
    }

    #[test]
    fn the_largest_part_is_that_of_the_fullest_rank() {
        let sizes = [5, 3, 1, 1];
        let largest = |ranks| Owners::largest_part(&sizes, ranks);
        assert_eq!([0, 1, 2, 3, 9].map(largest), [10, 10, 5, 5, 5]);
        assert_eq!(Owners::largest_part(&[], 2), 0);
    }

    #[test]
    fn every_parameter_has_one_owner() {
        for (sizes, ranks) in [
            (vec![5, 1, 1, 1], 3),
            (vec![4], 3),
            (vec![], 2),
            (vec![0, 0], 2),
        ] {
            let owners: Vec<_> = (0..ranks).map(|r| Owners::new(&sizes, ranks, r)).collect();
            for index in 0..sizes.len() {
                let count = owners
                    .iter()
                    .filter(|of_rank| of_rank.is_mine(index))
                    .count();
                assert_eq!(count, 1, "{sizes:?}");
            }
        }
    }
}
