//! How residues become one vector.

/// The way in which the residue vectors of a sequence become one vector. Only [`Pooling::Bos`] uses `<cls>`; none uses `<eos>`.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    strum::Display,
    strum::EnumString,
    strum::EnumMessage,
    strum::VariantArray,
)]
#[strum(serialize_all = "lowercase")]
pub enum Pooling {
    /// The mean over residues
    Mean,
    /// The maximum over residues, per channel
    Max,
    /// The population standard deviation over residues, per channel (divisor n; 0 for a single residue)
    Std,
    /// The vector of `<cls>`
    Bos,
}
