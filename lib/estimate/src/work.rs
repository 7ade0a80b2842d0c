//! The sequences that a run embeds.

use plmkit_contract::{LengthSummary, Manifest, SPECIAL_TOKENS};
use serde::Serialize;

/// From this length on, the bins of a histogram are wide.
const WIDE_BINS: u64 = 1000;

/// The sequences that a run embeds, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Work {
    /// Samples, each a folder of shards.
    pub samples: u64,
    /// The lengths of all sequences.
    #[serde(flatten)]
    pub all: Lengths,
    /// Whether the lengths of all sequences were read. If not, pairs follow from the histogram of a manifest.
    pub exact: bool,
    /// Bytes of the shards and of their lists; estimated where a file was not read.
    pub shard_bytes: u64,
    /// Lists of aliases and of known records, each a file.
    #[serde(skip)]
    pub lists: u64,
    /// Each shard.
    #[serde(skip)]
    pub shards: Vec<Lengths>,
}

/// The lengths of the sequences of a shard, in sums.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lengths {
    /// Rows: proteins, or windows of them.
    pub sequences: u64,
    /// Proteins: the rows of the embeddings, as windows become one row again.
    pub proteins: u64,
    /// Tokens of all rows, `<cls>` and `<eos>` included.
    pub tokens: u64,
    /// Pairs of tokens of one sequence: the sum of the squares of their lengths in tokens.
    pub pairs: u64,
    /// Residues of the rows of the embeddings.
    pub residues: u64,
    /// Pairs of residues of one protein: the values of contacts.
    pub residue_pairs: u64,
    /// The ordinal and the residues of the last protein.
    #[serde(skip)]
    last: Option<(u64, u64)>,
}

impl Lengths {
    /// Adds a row of `residues` residues, of the protein `ordinal` with `length` residues. Rows of a protein are adjacent.
    pub fn add(&mut self, ordinal: u64, length: u32, residues: u32) {
        let tokens = u64::from(residues) + u64::from(SPECIAL_TOKENS);
        self.sequences += 1;
        self.tokens += tokens;
        self.pairs = self.pairs.saturating_add(tokens.saturating_mul(tokens));
        let of_protein = match self.last {
            Some((last, residues)) if last == ordinal => {
                self.proteins -= 1;
                self.residues -= residues;
                self.residue_pairs -= residues * residues;
                length
            }
            _ => residues,
        };
        let of_protein = u64::from(of_protein);
        self.proteins += 1;
        self.residues += of_protein;
        self.residue_pairs = self.residue_pairs.saturating_add(of_protein * of_protein);
        self.last = Some((ordinal, of_protein));
    }
}

impl Work {
    /// Starts with nothing; the lengths of all shards that are added are exact.
    pub fn new() -> Self {
        Self {
            exact: true,
            ..Self::default()
        }
    }

    /// Adds a shard of `bytes`.
    pub fn add(&mut self, shard: Lengths, bytes: u64) {
        for (sum, own) in [
            (&mut self.all.sequences, shard.sequences),
            (&mut self.all.proteins, shard.proteins),
            (&mut self.all.tokens, shard.tokens),
            (&mut self.all.pairs, shard.pairs),
            (&mut self.all.residues, shard.residues),
            (&mut self.all.residue_pairs, shard.residue_pairs),
            (&mut self.shard_bytes, bytes),
        ] {
            // A manifest may count anything.
            *sum = sum.saturating_add(own);
        }
        self.shards.push(shard);
    }

    /// Adds a list of aliases or of known records.
    pub fn add_list(&mut self, bytes: u64) {
        self.shard_bytes = self.shard_bytes.saturating_add(bytes);
        self.lists += 1;
    }

    /// Adds the shards of a manifest whose files are not there. Rows and tokens are exact; pairs follow from the histogram of
    /// lengths, spread over the shards by their tokens.
    pub fn add_manifest(&mut self, manifest: &Manifest) {
        self.exact = false;
        let option = |name: &str| manifest.options.get(name);
        let longest = option("max_residues").and_then(serde_json::Value::as_f64);
        let policy = option("long_policy").and_then(serde_json::Value::as_str);
        // The sums over all proteins, as the histogram has them.
        let (mut tokens, mut pairs, mut residues, mut residue_pairs) = (0.0, 0.0, 0.0, 0.0);
        for (length, count) in lengths(&manifest.lengths) {
            let cut = longest.filter(|&longest| length > longest);
            // Rows of a protein, and residues of each.
            let (rows, row) = match (cut, policy) {
                (Some(longest), Some("window")) => (length / longest, longest),
                (Some(longest), Some("truncate")) => (1.0, longest),
                _ => (1.0, length),
            };
            let protein = if policy == Some("truncate") {
                row
            } else {
                length
            };
            let special = f64::from(SPECIAL_TOKENS);
            tokens += count * rows * (row + special);
            pairs += count * rows * (row + special).powi(2);
            residues += count * protein;
            residue_pairs += count * protein * protein;
        }
        let all = manifest.tokens as f64;
        // Records whose residues another record or an earlier dataset has are in no shard.
        let known = manifest.known.as_ref().map(|known| &known.list);
        let listed = [manifest.aliases.as_ref(), known].into_iter().flatten();
        let listed = listed.map(|list| list.rows);
        let listed = listed.fold(0, u64::saturating_add);
        let proteins = manifest.accepted.saturating_sub(listed);
        let share = proteins as f64 / manifest.accepted as f64;
        for shard in &manifest.shards {
            // 0 of nothing: a float that is no number becomes 0.
            let part = |sum: f64, of: f64, exact: u64| (sum / of * exact as f64).round() as u64;
            let (proteins, residues) = match policy {
                Some("window") => (
                    part(proteins as f64, manifest.rows as f64, shard.rows),
                    part(share * residues, all, shard.tokens),
                ),
                _ => (shard.rows, shard.residues),
            };
            let lengths = Lengths {
                sequences: shard.rows,
                proteins,
                tokens: shard.tokens,
                pairs: part(pairs, tokens, shard.tokens),
                residues,
                residue_pairs: part(share * residue_pairs, all, shard.tokens),
                last: None,
            };
            self.add(
                lengths,
                super::disk::shard_bytes(shard.rows, shard.residues),
            );
        }
    }
}

/// Returns lengths of proteins and how many there are of each: the middles of the bins, and for the wide bins of long proteins
/// what the mean of all leaves for them.
fn lengths(of: &LengthSummary) -> Vec<(f64, f64)> {
    let bins = of.histogram.windows(2);
    let middles = bins.map(|bins| (bins[0].from as f64 + bins[1].from as f64 - 1.0) / 2.0);
    let last = of.max.unwrap_or(0) as f64;
    let middles = middles.chain([last]);
    let mut lengths: Vec<(f64, f64)> = middles
        .zip(&of.histogram)
        .map(|(middle, bin)| (middle.min(last), bin.count as f64))
        .collect();
    let sum = |lengths: &[(f64, f64)]| -> f64 {
        lengths.iter().map(|(length, count)| length * count).sum()
    };
    let count: f64 = lengths.iter().map(|(_, count)| count).sum();
    let narrow = of.histogram.partition_point(|bin| bin.from < WIDE_BINS);
    let left = of.mean.unwrap_or(0.0) * count - sum(&lengths[..narrow]);
    let scale = left / sum(&lengths[narrow..]);
    if scale.is_finite() && scale > 0.0 {
        for (length, _) in &mut lengths[narrow..] {
            *length *= scale;
        }
    }
    lengths
}
