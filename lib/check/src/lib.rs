//! Verdicts on embeddings: coverage, origin, finite values, dimensions, agreement. Pure, given rows.
//!
//! A [`Validator`] gets its expectations (the rows of the shards, the rejected records, the manifest, a reference), then
//! sees every row of every embeddings file once, and ends in a [`Verdict`]: a list of [`Check`]s, each with what
//! it counted and its first violations. It opens nothing and keeps no vector but the reference's own.
//!
//! ```
//! use plmkit_check::{CheckOutcome, ExpectedRows, Validator};
//! use plmkit_contract::{EmbeddingLayout, Labels, Provenance, RowKey, SequenceDigest, StoreDtype};
//!
//! let row = |ordinal, id| RowKey { ordinal, id, start: 0, length: 3, truncated: false, digest: SequenceDigest::new(b"MKV"), n_windows: 1 };
//! let mut shards = ExpectedRows::default();
//! shards.push(&row(0, "P1"));
//! shards.push(&row(1, "P2"));
//!
//! let mut validator = Validator::new().with_shards(shards);
//! let columns = vec!["mean_6".parse().unwrap()];
//! let layout = EmbeddingLayout { columns, dim: 2, dtype: StoreDtype::F32, stitched: false, labels: Labels::default() };
//! validator.begin_file("embeddings.parquet", &Provenance::new("gpu-embed", vec![]), &layout).unwrap();
//! validator.add_row(&row(0, "P1"), &[&[0.6, 0.8]]);
//!
//! let verdict = validator.finish();
//! assert!(!verdict.passed());
//! let coverage = &verdict.checks[0];
//! assert_eq!((coverage.name, coverage.outcome), ("coverage", CheckOutcome::Fail));
//! assert_eq!(coverage.violations[0].to_string(), "ordinal 1 'P2': missing");
//! ```

mod agreement;
mod check;
mod cosines;
mod coverage;
mod dimensions;
mod error;
mod manifest;
mod ordinals;
mod origin;
mod parts;
mod reference;
mod validator;
mod values;
mod vector;
mod verdict;
mod violation;

pub use check::{Check, CheckOutcome};
pub use cosines::{ColumnAgreement, Compared};
pub use coverage::ExpectedRows;
pub use error::ReferenceError;
pub use parts::{Parts, check_parts};
pub use reference::Reference;
pub use validator::Validator;
pub use values::ColumnNorms;
pub use verdict::Verdict;
pub use violation::Violation;
