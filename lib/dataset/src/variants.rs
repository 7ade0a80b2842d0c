//! Scores of variants: log-ratios of mutant and wild type, summed over the substitutions.

mod sites;
mod table;
mod variant;

pub use sites::Sites;
pub use table::Table;
pub use variant::{Unscored, Variant};
