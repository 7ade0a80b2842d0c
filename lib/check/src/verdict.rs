//! What an validator found.

use std::collections::BTreeMap;

use plmkit_contract::Reason;
use serde::Serialize;

use crate::{Check, CheckOutcome, ColumnAgreement, ColumnNorms, SpotAgreement};

/// All checks with what they counted, and the distributions behind them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Records of the input, as the manifest says; null when none was given.
    pub records: Option<u64>,
    /// Rows of all embeddings files.
    pub rows: u64,
    /// Of these, the ones of proteins of which residues were cut off.
    pub truncated: u64,
    /// Records that are in no shard because an earlier record has their residues, as the manifest says; null when none was given.
    pub aliases: Option<u64>,
    /// Records that are in no shard because a known dataset has their residues, as the manifest says; null when none was given.
    pub known: Option<u64>,
    /// Residues that were cut off, as the manifest says; null when none was given.
    pub residues_truncated: Option<u64>,
    /// Records that are in no shard, and rows that were not embedded, by reason, as far as lists of them were given.
    pub rejected: BTreeMap<Reason, u64>,
    /// The checks, always all of them, in this order:
    ///
    /// | name | passes when | counts |
    /// |---|---|---|
    /// | `coverage` | the embeddings hold each row of the shards exactly once and no other; rows that could not be embedded (`rejected`) may be absent | `expected`, `found`, `rejected`, `missing`, `extra`, `doubled`, `doubled_in_shards`, `without_list` (files) |
    /// | `records` | id, length, truncation and residue digest are those of the shard row; aliases have the residues of their representatives | `compared`, `aliases_compared`, `id`, `length`, `truncated`, `digest`, `n_windows`, `other_alias` |
    /// | `ordinals` | shards, rejects, aliases and known records together hold each ordinal from 0 to the last of the manifest, or to the largest, in one of them; each alias has a representative in a shard | `in_shards`, `in_rejects`, `in_aliases`, `in_known`, `absent`, `in_both`, `rejected_twice`, `listed_twice`, `no_representative`, `beyond` |
    /// | `manifest` | the shards are those of the manifest, and so are the file of rejected records, by its counts and its digest, and the lists of aliases and known records | `records`, `listed` (shards), `not_given`, `unlisted` (shards), `other_rejects` (reasons), `altered_rejects` (files), `altered_lists` (files), `unknown_dataset` (records) |
    /// | `origin` | all embeddings were made by the same work (program, options, model), all shards by the same work from the same inputs, and the batches between them are those of the shards, each embedded once; known datasets were made by the same work | `embeddings`, `shards` (files), `different` (files), `other_batches`, `embedded_twice`, `other_rejects`, `unlike_known` (files) |
    /// | `dimensions` | all files have the same vector columns, dimension and type, and those of their options | `files`, `different`, `other_options` |
    /// | `expectations` | there are rows, and the files are what the user expects | `empty`, `too_many_rejected`, `other_model`, `other_dtype`, `other_columns` |
    /// | `finite` | no value is NaN or infinite | `vectors`, `not_finite` (vectors), `nan`, `infinite` (values) |
    /// | `norms` | no vector is all zero, but in `std_*` columns, where a single residue has no deviation, and few values are exactly zero | `vectors`, `zero`, `zeros` |
    /// | `pooling` | the poolings and the residues of a layer fit together | `compared` (rows), `mean_above_max`, `std_negative`, `std_too_small`, `not_of_residues`, `residue_count` |
    /// | `contacts` | contacts are probabilities, and symmetric | `maps`, `not_probabilities`, `not_symmetric` (maps) |
    /// | `sequences` | equal sequences have equal vectors, and others have not | `repeated`, `different`, `same_vector` (vectors) |
    /// | `constant` | every dimension changes in every file | `constant` (dimensions) |
    /// | `outliers` | no vector is of another size than those of proteins of about its length in the file, or points elsewhere | `compared`, `norms`, `directions` (vectors) |
    /// | `reference` | each reference row is found or rejected, at least one is compared, each cosine reaches the floor | `compared`, `not_in_reference` (rows), `rejected`, `not_found` (reference rows), `lenient`, `below`, `undefined`, `other_dimension` (vectors), `nothing_compared` |
    /// | `spot-check` | a sample that is computed again is the same | `rows`, `other_model` (files), `different`, `other_shape` (vectors), `different_files` (columns of files), `not_computed` (rows), `not_compared` (columns of files) |
    /// | `parts` | the folder of embeddings has nothing else in it; without shards, the embeddings are those that an earlier validation listed, and it passed | `listed`, `missing_parts`, `unlisted_parts`, `altered_parts`, `strays` (files), `failed_before`, `parts_out_of_order` |
    pub checks: Vec<Check>,
    /// The norms of each vector column.
    pub norms: Vec<ColumnNorms>,
    /// How near the sampled vectors of each column are to the same computed again; empty where none were.
    pub spot_check: Vec<SpotAgreement>,
    /// The agreement of each column with the reference; empty when there is none.
    pub agreement: Vec<ColumnAgreement>,
    /// Columns of the embeddings that were not compared with the reference: those of several vectors a row, and those that it
    /// does not have. Empty when there is none.
    pub not_compared: Vec<String>,
}

impl Verdict {
    /// Skips the check of this name: what it found does not count.
    pub fn skip(&mut self, name: &str, why: &str) {
        for check in self.checks.iter_mut().filter(|check| check.name == name) {
            *check = Check::skipped(check.name, why);
        }
    }

    /// Whether no check failed. A skipped check does not fail.
    pub fn passed(&self) -> bool {
        self.failed().next().is_none()
    }

    /// The checks that failed.
    pub fn failed(&self) -> impl Iterator<Item = &Check> {
        self.checks
            .iter()
            .filter(|check| check.outcome == CheckOutcome::Fail)
    }
}
