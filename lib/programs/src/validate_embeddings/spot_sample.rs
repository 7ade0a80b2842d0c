//! The sample of a spot check: which rows of some shards are computed again.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use plmkit_check::{AliasLists, Amount, Candidate, Chosen, LEAST, choose, shares};
use plmkit_cli::Fault;
use plmkit_contract::{KNOWN, Kind, Manifest, Provenance, SPECIAL_TOKENS, ShardRow, ShardSummary};
use plmkit_store::{RecordListWriter, Shard, ShardReader, read_shard};

use super::args::{Args, Sampling};

/// A sample of the rows of some shards.
#[derive(Debug)]
pub(crate) struct SpotSample<'a> {
    shards: &'a [PathBuf],
    aliases: &'a AliasLists,
    /// The most rows and tokens of each shard that are in it.
    shares: Vec<Amount>,
    seed: u64,
    /// Whether the windows of a protein are one row.
    stitched: bool,
    /// What a sample of these shards is made by, of which one may be without rows. Rows that were computed again have it as their
    /// source, and no others.
    made_by: Provenance,
}

impl<'a> SpotSample<'a> {
    /// Of these shards, which are some or all of those of a manifest; without one, they are all that there are.
    pub(crate) fn new(
        sampling: Sampling,
        shards: &'a [PathBuf],
        manifest: Option<&Manifest>,
        aliases: &'a AliasLists,
        stitched: bool,
    ) -> Result<Self, Fault> {
        let mut made_by = None;
        let mut own = Vec::new();
        for path in shards {
            let mut opened = ShardReader::open(path)?;
            made_by.get_or_insert_with(|| opened.provenance().clone());
            let (mut size, mut last) = (Amount::default(), None);
            if manifest.is_none() {
                opened.lengths(|ordinal, _, residues| {
                    let before = last.replace(ordinal);
                    size.rows += u64::from(!stitched || before != last);
                    size.tokens += u64::from(residues + SPECIAL_TOKENS);
                })?;
            }
            own.push((opened.digest().to_string(), size));
        }
        let mut made_by = made_by.unwrap_or_else(|| Provenance::new("fasta-shard", Vec::new()));
        // The sample is of another type, and has other columns, than the known datasets.
        made_by.options.remove(KNOWN);
        // In an order that is not that of the files.
        let all: BTreeMap<_, _> = manifest.map_or_else(|| own.iter().cloned().collect(), sizes);
        let rows = all.values().map(|shard| shard.rows).sum();
        let proteins = manifest.filter(|_| stitched);
        let proteins = proteins.map_or(rows, |manifest| manifest.accepted);
        let all = shares(sampling.sample, proteins, &all);
        // A shard that is not listed fails elsewhere.
        let own = own.iter();
        let own = own.map(|(digest, _)| all.get(digest).copied().unwrap_or_default());
        Ok(Self {
            shards,
            aliases,
            shares: own.collect(),
            seed: sampling.seed,
            stitched,
            made_by: made_by.with("sample", "computed again"),
        })
    }

    /// The source of rows that were computed again from these shards.
    pub(crate) fn source(&self) -> String {
        self.made_by.source()
    }

    /// The rows of the shard at a position: ordinal and start, the latter 0 where windows are stitched.
    pub(crate) fn chosen(&self, position: usize, shard: &Shard) -> Chosen {
        let mut candidates: Vec<Candidate> = Vec::new();
        for row in shard.rows().iter() {
            let key = key_of(&row, self.stitched);
            let residues = row.sequence.len() as u32;
            let tokens = u64::from(residues + SPECIAL_TOKENS);
            if let Some(last) = candidates.last_mut().filter(|last| last.key == key) {
                last.tokens += tokens;
                continue;
            }
            candidates.push(Candidate {
                key,
                tokens,
                truncated: row.key.truncated,
                windowed: residues < row.key.length && !row.key.truncated,
                aliased: self.aliases.has(row.key.ordinal),
            });
        }
        choose(&candidates, self.shares[position], self.seed)
    }

    /// Writes the chosen rows of all shards as one shard. Returns their keys.
    pub(crate) fn write(&self, path: &Path) -> Result<HashSet<(u64, u32)>, Fault> {
        let mut writer = RecordListWriter::create(path, Kind::Shard)?;
        let mut all = HashSet::new();
        for (position, source) in self.shards.iter().enumerate() {
            if self.shares[position].rows == 0 {
                continue;
            }
            let shard = read_shard(source)?;
            let chosen = self.chosen(position, &shard).0;
            for row in shard.rows().iter() {
                if chosen.contains(&key_of(&row, self.stitched)) {
                    writer.push(&ShardRow {
                        description: None,
                        ..row
                    })?;
                }
            }
            all.extend(chosen);
        }
        writer.finish(&self.made_by)?.1.finish()?;
        Ok(all)
    }
}

/// The rows and tokens of the shards of a manifest, by digest.
fn sizes(manifest: &Manifest) -> BTreeMap<String, Amount> {
    let size = |shard: &ShardSummary| {
        let (rows, tokens) = (shard.rows, shard.tokens);
        (shard.digest.clone(), Amount { rows, tokens })
    };
    manifest.shards.iter().map(size).collect()
}

/// About how many tokens the spot check of a sample with this manifest computes.
pub fn spot_check_tokens(args: &Args, manifest: &Manifest) -> u64 {
    if args.model.is_none() {
        return 0;
    }
    let all = sizes(manifest);
    let shares = shares(args.options.sampling.sample, manifest.accepted, &all);
    let tokens = all.values().zip(shares.values()).map(|(shard, share)| {
        let cost = |rows: u64| (rows * shard.tokens).div_ceil(shard.rows.max(1));
        share.tokens.max(cost(LEAST)).min(cost(share.rows))
    });
    tokens.sum()
}

/// The key of the embedding that a row of a shard becomes, or a part of.
fn key_of(row: &ShardRow, stitched: bool) -> (u64, u32) {
    (row.key.ordinal, if stitched { 0 } else { row.key.start })
}
