//! The shape of an ESM-2, and what it costs to compute.

use serde::{Deserialize, Serialize};

/// The sizes that decide the cost of an ESM-2. The names are those of a checkpoint's `config.json`.
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
}

/// The published ESM-2 models: names, layers and channels. All have an inner width of four times the channels.
const PUBLISHED: [(&str, u32, u32); 6] = [
    ("facebook/esm2_t6_8M_UR50D", 6, 320),
    ("facebook/esm2_t12_35M_UR50D", 12, 480),
    ("facebook/esm2_t30_150M_UR50D", 30, 640),
    ("facebook/esm2_t33_650M_UR50D", 33, 1280),
    ("facebook/esm2_t36_3B_UR50D", 36, 2560),
    ("facebook/esm2_t48_15B_UR50D", 48, 5120),
];

impl ModelShape {
    /// The most layers, channels and inner channels of a model.
    pub const MOST: Self = Self {
        layers: 1 << 10,
        hidden: 1 << 16,
        intermediate: 1 << 18,
    };

    /// Returns the shape of a published model, given its id on the Hugging Face Hub, with or without `@REVISION`.
    pub fn published(id: &str) -> Option<Self> {
        let name = id.split('@').next()?;
        let (_, layers, hidden) = PUBLISHED.into_iter().find(|model| model.0 == name)?;
        Some(Self {
            layers,
            hidden,
            intermediate: 4 * hidden,
        })
    }

    /// Iterates over the ids of the published models.
    pub fn published_ids() -> impl Iterator<Item = &'static str> {
        PUBLISHED.into_iter().map(|model| model.0)
    }

    /// Reads the bytes of a `config.json`. Checks only the sizes; the error describes what is wrong.
    pub fn from_json(json: &[u8]) -> Result<Self, String> {
        let shape: Self = serde_json::from_slice(json)
            .map_err(|error| format!("not the configuration of an ESM-2: {error}"))?;
        for (key, found, most) in [
            ("num_hidden_layers", shape.layers, Self::MOST.layers),
            ("hidden_size", shape.hidden, Self::MOST.hidden),
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

    /// Returns the floating-point operations for a token in the matrix products of all layers. A multiplication and an
    /// addition count as two.
    pub fn flops_per_token(&self) -> u64 {
        let [layers, hidden, intermediate] =
            [self.layers, self.hidden, self.intermediate].map(u64::from);
        layers * 2 * hidden * (4 * hidden + 2 * intermediate)
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
        let millions = [8, 35, 150, 650, 3_000, 15_000];
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
        assert!(read("{}").unwrap_err().contains("num_hidden_layers"));
        let error = read(&whole.replace("320", "0")).unwrap_err();
        assert_eq!(error, "key 'hidden_size': expected 1 to 65536, found 0");
        assert!(read(&whole.replace("320", "-1")).is_err());
    }
}
