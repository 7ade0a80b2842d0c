//! Verdicts on embeddings: whether they are complete, of one origin, and plausible. Pure, given rows.
//!
//! A [`Validator`] sees the rows of some embeddings files, and ends in [`Findings`]: a tally of each of the [`CHECKS`]. The findings
//! of several validators, which may run at the same time, add up. They end in a [`Verdict`]: a list of [`Check`]s, each with what it
//! counted and its first violations.
//!
//! ```
//! use plmkit_check::{CheckOutcome, Criteria, EmbeddedFile, Validator};
//! use plmkit_contract::{EmbeddingLayout, Labels, Provenance, RowDigest, RowKey, SequenceDigest, StoreDtype};
//!
//! let row = |ordinal, id| RowKey { ordinal, id, start: 0, length: 3, truncated: false, digest: SequenceDigest::new(b"MKV"), n_windows: 1 };
//! let criteria = Criteria::default();
//! let mut validator = Validator::new(&criteria, true);
//! validator.expect(&row(0, "P1"));
//! validator.expect(&row(1, "P2"));
//!
//! let columns = vec!["mean_6".parse().unwrap()];
//! let layout = EmbeddingLayout { columns, dim: 2, logits: 33, dtype: StoreDtype::F32, stitched: false, labels: Labels::default() };
//! let file = EmbeddedFile {
//!     name: "embeddings.parquet".to_owned(),
//!     position: 0,
//!     provenance: Provenance::new("gpu-embed", vec![]),
//!     layout,
//!     rows: RowDigest::default(),
//! };
//! validator.begin_file(file);
//! validator.add_row(&row(0, "P1"), &[&[0.6, 0.8]]);
//!
//! let verdict = validator.finish().verdict(&criteria);
//! assert!(!verdict.passed());
//! let coverage = &verdict.checks[0];
//! assert_eq!((coverage.definition.name, coverage.outcome), ("coverage", CheckOutcome::Fail));
//! assert_eq!(coverage.violations[0].to_string(), "ordinal 1 'P2': missing");
//! ```

mod agreement;
mod aliases;
mod check;
mod checks;
mod columns;
mod constant;
mod contacts;
mod coverage;
mod criteria;
mod difference;
mod equal_sequences;
mod files;
mod findings;
mod manifest;
mod ordinals;
mod origin;
mod outliers;
mod pooling;
mod power;
mod reference;
mod rejected;
mod sample;
mod spot_check;
mod tolerance;
mod validator;
mod vector;
mod verdict;
mod violation;

pub use agreement::ColumnAgreement;
pub use aliases::AliasLists;
pub use check::{Check, CheckOutcome};
pub use checks::{CHECKS, Definition};
pub use criteria::{Criteria, Recomputed};
pub use files::{EmbeddedFile, ShardFile};
pub use findings::Findings;
pub use power::Power;
pub use reference::Reference;
pub use rejected::{count_reasons, parse_share};
pub use sample::{Amount, Candidate, Chosen, LEAST, choose, shares};
pub use validator::{Validator, length_bin};
pub use verdict::Verdict;
pub use violation::Violation;
