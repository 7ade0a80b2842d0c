//! The options for the columns of embeddings, of `gpu-embed` and of estimates of its work.

use clap::Args;
use plmkit_contract::{Layers, Outputs, Pooling, Scores};

use crate::variant;

/// The options for the columns of embeddings.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Vectors")]
pub struct ColumnArgs {
    /// Poolings of residue vectors into one vector, a column each; several are separated by commas
    #[arg(
        long,
        value_name = "POOL",
        value_parser = variant::<Pooling>(),
        value_delimiter = ',',
        default_value = "mean"
    )]
    pool: Vec<Pooling>,

    /// Layers to store: numbers from 0 (the token embedding) or from the end (-1 is the last), separated by commas; last, or all
    #[arg(long, value_name = "LAYERS", allow_hyphen_values = true, value_parser = clap::value_parser!(Layers), default_value = "last")]
    layers: Layers,

    /// Store per-residue vectors, too, for each layer: a column `residues_<layer>` of L x D values
    #[arg(long)]
    residues: bool,

    /// Store the logits of the language-model head for each residue: a column `logits` of L x 33 values, before softmax, in
    /// the order of the vocabulary
    #[arg(long)]
    logits: bool,

    /// Store the probability of contact of each pair of residues: a column `contacts` of L x L values
    #[arg(long)]
    contacts: bool,

    /// Store scores of substitutions: for each residue the log-probabilities of the twenty amino acids, a column `log_probs` of
    /// L x 20 values in the order ACDEFGHIKLMNPQRSTVWY, and in `log_likelihood` the mean of those of the protein's own residues
    ///
    /// The softmax is over the logits of the twenty. Scores of several ways are never mixed in one dataset.
    #[arg(long, value_name = "WAY", num_args = 0..=1, default_missing_value = "wild-type", value_parser = variant::<Scores>())]
    scores: Option<Scores>,
}

impl From<ColumnArgs> for Outputs {
    fn from(args: ColumnArgs) -> Self {
        Self {
            pools: args.pool,
            layers: args.layers,
            residues: args.residues,
            logits: args.logits,
            contacts: args.contacts,
            scores: args.scores,
        }
    }
}
