//! The shape of a model, and what it costs to compute.

use serde::Serialize;

use crate::{VOCABULARY, Widths};

/// The sizes that decide the cost of a model.
///
/// ```
/// use plmkit_contract::ModelShape;
///
/// let model = ModelShape::published("facebook/esm2_t33_650M_UR50D").unwrap();
/// assert_eq!((model.layers, model.hidden, model.intermediate), (33, 1280, 5120));
/// // Twice the parameters of its matrices: 33 layers of 12 x 1280 x 1280.
/// assert_eq!(model.flops_per_token(), 2 * 648_806_400);
/// assert_eq!(model.flops_per_pair(), 33 * 4 * 1280);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ModelShape {
    /// Transformer layers.
    pub layers: u32,
    /// Channels of a token's vector.
    pub hidden: u32,
    /// Channels inside the feed-forward network.
    pub intermediate: u32,
    /// Whether the feed-forward network has a gate, and so three matrices instead of two.
    pub gated: bool,
    /// Values in the logits of a residue.
    pub logits: u32,
}

/// The published models: names, layers, channels, and inner channels of a network with a gate; those without have four times the
/// channels.
const PUBLISHED: [(&str, u32, u32, Option<u32>); 15] = [
    ("facebook/esm2_t6_8M_UR50D", 6, 320, None),
    ("facebook/esm2_t12_35M_UR50D", 12, 480, None),
    ("facebook/esm2_t30_150M_UR50D", 30, 640, None),
    ("facebook/esm2_t33_650M_UR50D", 33, 1280, None),
    ("facebook/esm2_t36_3B_UR50D", 36, 2560, None),
    ("facebook/esm2_t48_15B_UR50D", 48, 5120, None),
    ("facebook/esm1b_t33_650M_UR50S", 33, 1280, None),
    ("facebook/esm1v_t33_650M_UR90S_1", 33, 1280, None),
    ("facebook/esm1v_t33_650M_UR90S_2", 33, 1280, None),
    ("facebook/esm1v_t33_650M_UR90S_3", 33, 1280, None),
    ("facebook/esm1v_t33_650M_UR90S_4", 33, 1280, None),
    ("facebook/esm1v_t33_650M_UR90S_5", 33, 1280, None),
    ("biohub/ESMC-300M", 30, 960, Some(2560)),
    ("biohub/ESMC-600M", 36, 1152, Some(3072)),
    ("biohub/ESMC-6B", 80, 2560, Some(6912)),
];

impl ModelShape {
    /// The most layers, channels and inner channels of a model.
    pub const MOST: Self = Self {
        layers: 1 << 10,
        hidden: 1 << 16,
        intermediate: 1 << 18,
        gated: true,
        logits: 1 << 8,
    };

    /// Returns the shape of a published model, given its id on the Hugging Face Hub, with or without `@REVISION`.
    pub fn published(id: &str) -> Option<Self> {
        let name = id.split('@').next()?;
        let (_, layers, hidden, gated) = PUBLISHED.into_iter().find(|model| model.0 == name)?;
        Some(Self {
            layers,
            hidden,
            intermediate: gated.unwrap_or(4 * hidden),
            gated: gated.is_some(),
            logits: if gated.is_some() {
                64
            } else {
                VOCABULARY as u32
            },
        })
    }

    /// Iterates over the ids of the published models.
    pub fn published_ids() -> impl Iterator<Item = &'static str> {
        PUBLISHED.into_iter().map(|model| model.0)
    }

    /// Returns the number of values in the vectors of the model.
    pub fn widths(&self) -> Widths {
        Widths {
            dim: self.hidden as usize,
            logits: self.logits as usize,
        }
    }

    /// Returns the floating-point operations for a token in the matrix products of all layers. A multiplication and an
    /// addition count as two.
    pub fn flops_per_token(&self) -> u64 {
        let [layers, hidden, intermediate] =
            [self.layers, self.hidden, self.intermediate].map(u64::from);
        layers * 2 * hidden * (4 * hidden + (2 + u64::from(self.gated)) * intermediate)
    }

    /// Returns the floating-point operations for a pair of tokens in the attention of all layers and heads: queries by keys,
    /// and weights by values.
    pub fn flops_per_pair(&self) -> u64 {
        u64::from(self.layers) * 4 * u64::from(self.hidden)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_models_have_about_the_parameters_of_their_names() {
        let of_esm1 = [650; 6];
        let of_esm2 = [8, 35, 150, 650, 3_000, 15_000];
        let millions = of_esm2.into_iter().chain(of_esm1).chain([333, 575, 6_300]);
        for (id, millions) in ModelShape::published_ids().zip(millions) {
            let shape = ModelShape::published(&format!("{id}@main")).expect(id);
            let found = shape.flops_per_token() / 2_000_000;
            assert!(
                (millions * 9 / 10..=millions * 11 / 10).contains(&found),
                "{id}: {found}"
            );
        }
        assert_eq!(ModelShape::published("esm2_t6_8M_UR50D"), None);
    }

    #[test]
    fn a_gate_is_a_third_matrix() {
        let shape = |gated| ModelShape {
            layers: 6,
            hidden: 320,
            intermediate: 1280,
            gated,
            logits: 64,
        };
        let attention = 4 * 320 * 320;
        let of_a_matrix = 320 * 1280;
        assert_eq!(
            shape(false).flops_per_token(),
            6 * 2 * (attention + 2 * of_a_matrix)
        );
        assert_eq!(
            shape(true).flops_per_token(),
            6 * 2 * (attention + 3 * of_a_matrix)
        );
    }
}
