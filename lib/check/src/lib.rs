//! Verdicts on embeddings: whether they are complete, of one origin, and plausible. Pure, given rows.
//!
//! A [`Validator`] sees the rows of some embeddings files, and ends in [`Findings`]: a tally of each of the [`CHECKS`]. The findings
//! of several validators, which may run at the same time, add up. They end in a [`Verdict`]: a list of [`Check`]s, each with what it
//! counted and its first violations.
//!
//! ```
//! use plmkit_check::{CheckOutcome, Criteria, EmbeddedFile, ExpectedRows, Validator, WholeSet};
//! use plmkit_contract::{EmbeddingLayout, Labels, Provenance, RowDigest, RowKey, SequenceDigest, StoreDtype};
//!
//! let row = |ordinal, id| RowKey { ordinal, id, start: 0, length: 3, truncated: false, digest: SequenceDigest::new(b"MKV"), n_windows: 1 };
//! let mut shards = ExpectedRows::default();
//! shards.push(&row(0, "P1"));
//! shards.push(&row(1, "P2"));
//!
//! let criteria = Criteria::default();
//! let mut validator = Validator::new(&criteria, Some(shards));
//! let columns = vec!["mean_6".parse().unwrap()];
//! let layout = EmbeddingLayout { columns, dim: 2, logits: 33, dtype: StoreDtype::F32, stitched: false, labels: Labels::default() };
//! let vector: &[f32] = &[0.6, 0.8];
//! let file = EmbeddedFile {
//!     name: "embeddings.parquet".to_owned(),
//!     position: 0,
//!     provenance: Provenance::new("gpu-embed", vec![]),
//!     layout,
//!     rows: RowDigest::default(),
//!     begins: None,
//! };
//! validator.begin_file(file, &[vec![vector]]).unwrap();
//! validator.add_row(&row(0, "P1"), &[vector]);
//!
//! let verdict = validator.finish().verdict(&criteria, &WholeSet::default());
//! assert!(!verdict.passed());
//! let coverage = &verdict.checks[0];
//! assert_eq!((coverage.name, coverage.outcome), ("coverage", CheckOutcome::Fail));
//! assert_eq!(coverage.violations[0].to_string(), "ordinal 1 'P2': missing");
//! ```

mod agreement;
mod aliases;
mod check;
mod checks;
mod columns;
mod contacts;
mod cosines;
mod coverage;
mod difference;
mod dimensions;
mod error;
mod expectations;
mod files;
mod findings;
mod manifest;
mod match_by;
mod ordinals;
mod origin;
mod outliers;
mod parts;
mod pooling;
mod recomputed;
mod reference;
mod sample;
mod sequences;
mod tolerance;
mod validator;
mod vector;
mod verdict;
mod violation;

pub use aliases::AliasLists;
pub use check::{Check, CheckOutcome};
pub use checks::{CHECKS, Definition};
pub use columns::ColumnNorms;
pub use cosines::{ColumnAgreement, Compared, Tiers};
pub use coverage::ExpectedRows;
pub use error::ReferenceError;
pub use expectations::{Expectations, parse_share};
pub use files::{EmbeddedFile, RejectsLists, ShardFile, WholeSet};
pub use findings::Findings;
pub use match_by::MatchBy;
pub use parts::DatasetParts;
pub use recomputed::{Recomputed, RecomputedAgreement};
pub use reference::Reference;
pub use sample::{Candidate, choose, quotas};
pub use validator::{Criteria, Validator};
pub use verdict::Verdict;
pub use violation::Violation;
