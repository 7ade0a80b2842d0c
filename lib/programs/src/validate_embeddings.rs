//! `validate-embeddings`: checks that embeddings are complete, finite and right.

mod args;
mod dataset;
mod groups;
mod html;
mod lists;
mod log;
mod mqc;
mod progress;
mod proteins;
mod recompute;
mod reference;
mod report;
mod rows;
mod run;
mod spot_sample;
mod verdict_files;

pub use args::{Args, Options};
pub use html::{add_checks, add_failures, add_origin, shown};
pub use progress::Progress;
pub use recompute::SpotModel;
pub use report::Report;
pub use run::{run, validate};
pub use spot_sample::spot_check_tokens;
