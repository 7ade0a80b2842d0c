//! Which rows are computed again.

use std::collections::{BTreeMap, HashSet};

use crate::power::Power;

/// Random rows that see a fault in a tenth of all rows with 99.9 %: 0.9^66 is below 0.001.
const ENOUGH: u64 = 66;

/// Rows of each shard that are always in the sample. So many make a median.
pub const LEAST: u64 = 8;

/// Rows, and the tokens that they are computed from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Amount {
    /// Rows.
    pub rows: u64,
    pub tokens: u64,
}

/// A row that may be chosen.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Ordinal and start.
    pub key: (u64, u32),
    /// The tokens that it is computed from.
    pub tokens: u64,
    /// Whether residues were cut off.
    pub truncated: bool,
    /// Whether it is a window of a longer protein, or stitched from windows.
    pub windowed: bool,
    /// Whether other records have its vectors.
    pub aliased: bool,
}

/// Ordinal and start of the rows of a shard that are computed again, and what these show of the shard.
pub type Chosen = (HashSet<(u64, u32)>, Power);

/// The most rows and tokens of each of all shards that are computed again, by the name of the shard. There are so many `proteins`,
/// which may have several rows.
///
/// Of `sample` rows in all, each shard has the share that it has of all rows. By default, each has the share of a budget that it has of
/// all tokens: a tenth of them, and no more than random rows need that see a fault in a tenth of all. At least eight rows of a shard are
/// chosen, whatever its share is.
pub fn shares(
    sample: Option<u64>,
    proteins: u64,
    shards: &BTreeMap<String, Amount>,
) -> BTreeMap<String, Amount> {
    let sum = |of: fn(&Amount) -> u64| shards.values().map(of).sum::<u64>().max(1);
    let (rows, tokens) = (sum(|shard| shard.rows), sum(|shard| shard.tokens));
    let wanted = sample.unwrap_or_else(|| proteins.div_ceil(10).min(ENOUGH));
    let budget = (tokens / 10).min(ENOUGH * tokens / proteins.max(1));
    let least = if sample == Some(0) { 0 } else { LEAST };
    let share = |all: u64, part: u64, whole: u64| {
        (u128::from(all) * u128::from(part) / u128::from(whole)) as u64
    };
    let mut before = 0;
    let parts = shards.iter().map(|(name, shard)| {
        // Sums are rounded: so the parts have the rows that are wanted.
        let begin = share(wanted, before, rows);
        before += shard.rows;
        let quota = share(wanted, before, rows) - begin;
        let own = Amount {
            rows: quota.max(least).min(shard.rows),
            tokens: sample.map_or_else(|| share(budget, shard.tokens, tokens), |_| u64::MAX),
        };
        (name.clone(), own)
    });
    parts.collect()
}

/// Chooses rows of a shard: one at random of each of as many classes of length as its share has rows; and the shortest, the shortest of
/// each kind, and the longest, if it takes no more than one of the least rows may. Random ones are left out until all fit into the
/// share, but eight rows are always chosen.
pub fn choose(candidates: &[Candidate], share: Amount, seed: u64) -> Chosen {
    if candidates.is_empty() || share.rows == 0 {
        return Chosen::default();
    }
    let mut sorted = candidates.to_vec();
    sorted.sort_unstable_by_key(|row| (row.tokens, row.key));
    let (all, longest) = (sorted.len() as u64, sorted[sorted.len() - 1].tokens);
    let cost = |rows: &[Candidate]| rows.iter().map(|row| row.tokens).sum::<u64>();
    let budget = share.tokens.max(cost(&sorted) * LEAST.min(all) / all);
    // One that alone is above the budget would leave no room for others, whichever of them are left out.
    let fitting = &sorted[..sorted.partition_point(|row| row.tokens <= budget)];
    // Numbers that depend on others in no simple way.
    let number = |seed, row: &Candidate| scramble(scramble(seed, row.key.0 + 1), row.key.1.into());
    let quota = usize::try_from(share.rows).unwrap_or(usize::MAX);
    let classes = quota.min(fitting.len());
    let random = (0..classes).filter_map(|class| {
        let [begin, end] = [class, class + 1].map(|class| class * fitting.len() / classes);
        let class = fitting[begin..end].iter();
        class.min_by_key(|row| (number(seed, row), row.key))
    });
    let mut random: Vec<Candidate> = random.copied().collect();
    // In this order they stay, which knows no length.
    random.sort_unstable_by_key(|row| (number(!seed, row), row.key));
    let kinds: [&dyn Fn(&Candidate) -> bool; 5] = [
        &|row| row.tokens == sorted[0].tokens,
        &|row| row.truncated,
        &|row| row.windowed,
        &|row| row.aliased,
        &|row| row.tokens == longest && longest <= budget / LEAST,
    ];
    let mut kept = random.len();
    let rows = loop {
        let mut rows = random[..kept].to_vec();
        for is_of_kind in kinds {
            if !rows.iter().any(is_of_kind) {
                rows.extend(fitting.iter().find(|row| is_of_kind(row)));
            }
        }
        let fits = rows.len() <= quota && cost(&rows) <= budget;
        if fits || rows.len() <= LEAST as usize || kept == 0 {
            break rows;
        }
        kept -= 1;
    };
    let power = Power {
        rows: all,
        random: kept as u64,
        too_long: all - fitting.len() as u64,
        one_in: fitting.len() as f64 / kept as f64,
        longest,
        longest_chosen: rows.iter().map(|row| row.tokens).max().unwrap_or(0),
    };
    (rows.iter().map(|row| row.key).collect(), power)
}

/// splitmix64.
fn scramble(seed: u64, number: u64) -> u64 {
    let mut z = (seed ^ number.rotate_left(32)).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;
