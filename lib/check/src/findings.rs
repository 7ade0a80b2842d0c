//! What was found in some of the files; the findings in all of them make the verdict.

use std::collections::{BTreeMap, BTreeSet};

use plmkit_contract::{Column, ModelName};
use roaring::RoaringTreemap;

use crate::agreement::ColumnAgreement;
use crate::check::Tallies;
use crate::checks::coverage;
use crate::equal_sequences::EqualSequences;
use crate::files::{EmbeddedFile, ShardFile};
use crate::power::Power;

/// What was found in some files, in a size that does not depend on the number of their rows.
#[derive(Debug, Default)]
pub struct Findings {
    pub(crate) rows: u64,
    pub(crate) truncated: u64,
    /// See [`Verdict::lengths`](crate::Verdict::lengths).
    pub(crate) lengths: BTreeMap<u32, u64>,
    /// Whether shards say what is expected.
    pub(crate) knows_shards: bool,
    pub(crate) tallies: Tallies,
    /// The records in the shards.
    pub(crate) ordinals: RoaringTreemap,
    pub shards: Vec<ShardFile>,
    pub embeddings: Vec<EmbeddedFile>,
    /// What was sampled of each column.
    pub(crate) columns: Vec<(Column, EqualSequences)>,
    pub(crate) recomputed: Vec<ColumnAgreement>,
    pub(crate) power: Power,
    pub(crate) agreement: Vec<ColumnAgreement>,
    /// The rows of the reference that were found, by id and start.
    pub(crate) found: BTreeSet<(String, u32)>,
}

impl Findings {
    /// Adds what was found in other files, which follow these.
    pub fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        self.truncated += other.truncated;
        for (bin, proteins) in other.lengths {
            *self.lengths.entry(bin).or_default() += proteins;
        }
        self.knows_shards |= other.knows_shards;
        self.tallies.merge(other.tallies);
        // The windows of a protein are in one shard.
        for ordinal in &self.ordinals & &other.ordinals {
            let problem = "in the shards more than once";
            self.tallies
                .add(coverage::doubled_in_shards, ordinal, problem);
        }
        self.ordinals |= other.ordinals;
        self.shards.extend(other.shards);
        self.embeddings.extend(other.embeddings);
        for (column, sequences) in other.columns {
            sequences.add_to(&mut self.columns, column, &mut self.tallies);
        }
        for column in other.recomputed {
            column.add_to(&mut self.recomputed);
        }
        self.power.add(&other.power);
        for column in other.agreement {
            column.add_to(&mut self.agreement);
        }
        self.found.extend(other.found);
    }

    /// Returns two names of the model, if files have others: they are of one work nevertheless.
    pub fn two_models(&self) -> Option<[&ModelName; 2]> {
        let files = self.embeddings.iter();
        let mut models = files.filter_map(|file| file.provenance.model.as_ref());
        let first = models.next()?;
        Some([first, models.find(|other| *other != first)?])
    }

    /// Puts the files of one run in the order given.
    pub fn sort(&mut self) {
        self.shards.sort_by_key(|file| file.position);
        self.embeddings.sort_by_key(|file| file.position);
    }
}
