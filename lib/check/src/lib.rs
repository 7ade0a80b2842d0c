//! Verdicts on embeddings: coverage, origin, finite values, dimensions, agreement. Pure, given rows.
//!
//! An [`Examination`] is told what to expect (the rows of the shards, the rejected records, the manifest, a reference), then
//! sees every row of every embeddings file once, and ends in a [`Verdict`]: a list of [`Check`]s, each with what
//! it counted and its first offenders. It opens nothing and keeps no vector but the reference's own.
//!
//! ```
//! use plmkit_check::{Examination, Outcome, Row, ShardRows};
//! use plmkit_contract::{EmbeddingLayout, Labels, Provenance, SequenceDigest, StoreDtype};
//!
//! let row = |ordinal, id| Row { ordinal, id, start: 0, length: 3, truncated: false, digest: SequenceDigest::new(b"MKV"), n_windows: 1 };
//! let mut shards = ShardRows::default();
//! shards.push(&row(0, "P1"));
//! shards.push(&row(1, "P2"));
//!
//! let mut examination = Examination::new().with_shards(shards);
//! let columns = vec!["mean_6".parse().unwrap()];
//! let layout = EmbeddingLayout { columns, dim: 2, dtype: StoreDtype::F32, stitched: false, labels: Labels::default() };
//! examination.file("embeddings.parquet", &Provenance::new("gpu-embed", vec![]), &layout).unwrap();
//! examination.row(&row(0, "P1"), &[&[0.6, 0.8]]);
//!
//! let verdict = examination.finish();
//! assert!(!verdict.passed());
//! let coverage = &verdict.checks[0];
//! assert_eq!((coverage.name, coverage.outcome), ("coverage", Outcome::Fail));
//! assert_eq!(coverage.offenders[0].to_string(), "ordinal 1 'P2': missing");
//! ```

mod agreement;
mod check;
mod cosines;
mod coverage;
mod dimensions;
mod error;
mod examination;
mod manifest;
mod offender;
mod ordinals;
mod origin;
mod parts;
mod reference;
mod row;
mod values;
mod vector;
mod verdict;

pub use check::{Check, Outcome};
pub use cosines::{ColumnAgreement, Compared};
pub use coverage::ShardRows;
pub use error::ReferenceError;
pub use examination::Examination;
pub use offender::Offender;
pub use parts::{Parts, parts};
pub use reference::{Reference, ReferenceBuilder};
pub use row::Row;
pub use values::ColumnNorms;
pub use verdict::Verdict;
