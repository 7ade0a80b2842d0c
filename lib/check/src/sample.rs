//! Which rows are computed again.

use std::collections::HashSet;

/// Rows of each shard that are always in the sample.
const LEAST: u64 = 8;

/// A row that may be chosen.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Ordinal and start.
    pub key: (u64, u32),
    /// Its residues.
    pub residues: u32,
    /// Whether residues were cut off.
    pub truncated: bool,
    /// Whether it is a window of a longer protein, or stitched from windows.
    pub windowed: bool,
    /// Whether other records have its vectors.
    pub aliased: bool,
}

/// How many rows of each of some shards with so many `rows` make a sample of `sample` in all: at least eight of each, or all that it
/// has; what small shards leave is for larger ones. None if `sample` is zero.
pub fn quotas(sample: u64, rows: &[u64]) -> Vec<u64> {
    if sample == 0 {
        return vec![0; rows.len()];
    }
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&shard| (rows[shard], shard));
    let mut quotas = vec![0; rows.len()];
    let mut left = sample;
    for (place, &shard) in order.iter().enumerate() {
        let share = left.div_ceil((rows.len() - place) as u64).max(LEAST);
        quotas[shard] = share.min(rows[shard]);
        left = left.saturating_sub(quotas[shard]);
    }
    quotas
}

/// Chooses so many rows of a shard: the shortest and the longest, one of each kind, and one of each of as many classes of length.
pub fn choose(candidates: &[Candidate], quota: u64, seed: u64) -> HashSet<(u64, u32)> {
    let quota = usize::try_from(quota)
        .unwrap_or(usize::MAX)
        .min(candidates.len());
    let mut sorted = candidates.to_vec();
    sorted.sort_unstable_by_key(|row| (row.residues, row.key));
    // A number that depends on others in no simple way.
    let random = |row: &Candidate| scramble(seed, row.key.0 + 1) ^ u64::from(row.key.1);
    let kinds: [fn(&Candidate) -> bool; 3] =
        [|row| row.truncated, |row| row.windowed, |row| row.aliased];
    let of_kinds = kinds.iter().filter_map(|is| {
        let rows = sorted.iter().filter(|row| is(row));
        rows.min_by_key(|row| (random(row), row.key))
    });
    let ends = sorted.first().into_iter().chain(sorted.last());
    let classes = (0..quota).filter_map(|class| {
        let [begin, end] = [class, class + 1].map(|class| class * sorted.len() / quota);
        let class = &sorted[begin..end];
        class.iter().min_by_key(|row| (random(row), row.key))
    });
    let mut chosen = HashSet::new();
    for row in ends.chain(of_kinds).chain(classes) {
        if chosen.len() < quota {
            chosen.insert(row.key);
        }
    }
    // Where a class has no row but those of kinds, other rows take its place.
    sorted.sort_unstable_by_key(|row| (random(row), row.key));
    for row in &sorted {
        if chosen.len() < quota {
            chosen.insert(row.key);
        }
    }
    chosen
}

/// splitmix64.
fn scramble(seed: u64, number: u64) -> u64 {
    let mut z = (seed ^ number.rotate_left(32)).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shard_has_eight_rows_and_all_together_the_sample() {
        assert_eq!(quotas(200, &[1000, 1000]), [100, 100]);
        assert_eq!(quotas(200, &[5, 1000]), [5, 195]);
        assert_eq!(quotas(200, &[1000; 50]), [8; 50]);
        assert_eq!(quotas(10, &[1000, 3]), [8, 3]);
        assert_eq!(quotas(0, &[1000, 3]), [0, 0]);
        assert_eq!(quotas(u64::MAX, &[1000, 3]), [1000, 3]);
    }

    #[test]
    fn a_sample_has_both_ends_and_every_kind() {
        let mut rows: Vec<Candidate> = (0..100)
            .map(|ordinal| Candidate {
                key: (ordinal, 0),
                residues: 10 + (ordinal as u32 * 37) % 100,
                truncated: false,
                windowed: false,
                aliased: false,
            })
            .collect();
        rows[41].truncated = true;
        rows[42].windowed = true;
        rows[43].aliased = true;
        let chosen = choose(&rows, 8, 0);
        assert_eq!(chosen.len(), 8);
        for place in [41, 42, 43] {
            assert!(chosen.contains(&(place, 0)), "{place}");
        }
        for residues in [10, 109] {
            let end = rows.iter().find(|row| row.residues == residues);
            assert!(chosen.contains(&end.expect("a row").key), "{residues}");
        }
        assert_eq!(choose(&rows, 1000, 0).len(), 100);
        assert_ne!(choose(&rows, 8, 1), chosen);
        assert!(choose(&[], 8, 0).is_empty());
    }
}
