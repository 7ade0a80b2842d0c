//! The shape of a model, and what it costs to compute.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{VOCABULARY, Widths};

/// The sizes that decide the cost of a model. The names are those of a checkpoint's `config.json`.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelShape {
    /// Transformer layers.
    #[serde(rename(deserialize = "num_hidden_layers"))]
    pub layers: u32,
    /// Channels of a token's vector.
    #[serde(rename(deserialize = "hidden_size"))]
    pub hidden: u32,
    /// Channels inside the feed-forward network.
    #[serde(rename(deserialize = "intermediate_size"))]
    pub intermediate: u32,
    /// Whether the feed-forward network has a gate, and so three matrices instead of two.
    #[serde(default)]
    pub gated: bool,
    /// Values in the logits of a residue.
    #[serde(rename(deserialize = "vocab_size"), default = "esm_vocabulary")]
    pub logits: u32,
}

fn esm_vocabulary() -> u32 {
    VOCABULARY as u32
}

/// The published models: names, layers, channels, and inner channels of a network with a gate; those without have four times the
/// channels.
const PUBLISHED: [(&str, u32, u32, Option<u32>); 10] = [
    ("facebook/esm2_t6_8M_UR50D", 6, 320, None),
    ("facebook/esm2_t12_35M_UR50D", 12, 480, None),
    ("facebook/esm2_t30_150M_UR50D", 30, 640, None),
    ("facebook/esm2_t33_650M_UR50D", 33, 1280, None),
    ("facebook/esm2_t36_3B_UR50D", 36, 2560, None),
    ("facebook/esm2_t48_15B_UR50D", 48, 5120, None),
    ("facebook/esm1b_t33_650M_UR50S", 33, 1280, None),
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
                esm_vocabulary()
            },
        })
    }

    /// Iterates over the ids of the published models.
    pub fn published_ids() -> impl Iterator<Item = &'static str> {
        PUBLISHED.into_iter().map(|model| model.0)
    }

    /// Reads the bytes of a `config.json`. Checks only the sizes; the error describes what is wrong.
    pub fn from_json(json: &[u8]) -> Result<Self, String> {
        let invalid = |error| format!("not the configuration of a model: {error}");
        let entries: Value = serde_json::from_slice(json).map_err(invalid)?;
        let gated = entries["hidden_act"] == "silu" || entries["model_type"] == "esmc";
        let mut shape: Self = serde_json::from_value(entries).map_err(invalid)?;
        shape.gated = gated;
        for (key, found, most) in [
            ("num_hidden_layers", shape.layers, Self::MOST.layers),
            ("hidden_size", shape.hidden, Self::MOST.hidden),
            ("vocab_size", shape.logits, Self::MOST.logits),
            (
                "intermediate_size",
                shape.intermediate,
                Self::MOST.intermediate,
            ),
        ] {
            if !(1..=most).contains(&found) {
                return Err(format!("key '{key}': expected 1 to {most}, found {found}"));
            }
        }
        Ok(shape)
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
        let millions = [8, 35, 150, 650, 3_000, 15_000, 650, 333, 575, 6_300];
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
    fn a_config_without_the_sizes_is_refused() {
        let read = |json: &str| ModelShape::from_json(json.as_bytes());
        let whole = r#"{"num_hidden_layers": 6, "hidden_size": 320, "intermediate_size": 1280, "model_type": "esm"}"#;
        assert_eq!(
            read(whole).ok(),
            ModelShape::published("facebook/esm2_t6_8M_UR50D")
        );
        let esmc = whole
            .replace("esm\"", "esmc\"")
            .replace('}', ", \"vocab_size\": 64}");
        let esmc = read(&esmc).unwrap();
        assert_eq!((esmc.gated, esmc.logits), (true, 64));
        assert_eq!(esmc.flops_per_token(), 6 * 2 * 320 * (4 * 320 + 3 * 1280));
        assert!(read("{}").unwrap_err().contains("num_hidden_layers"));
        let error = read(&whole.replace("320", "0")).unwrap_err();
        assert_eq!(error, "key 'hidden_size': expected 1 to 65536, found 0");
        assert!(read(&whole.replace("320", "-1")).is_err());
    }
}
