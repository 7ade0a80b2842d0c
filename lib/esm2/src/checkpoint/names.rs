//! Canonical names of tensors.

/// The canonical name of rotary frequencies that all layers share.
pub(super) const SHARED_INV_FREQ: &str =
    "encoder.layer.*.attention.self.rotary_embeddings.inv_freq";

/// Their name in the state dictionary of transformers 5. `save_pretrained` changes it, `torch.save` does not.
const STATE_INV_FREQ: &str = "rotary_embeddings.inv_freq";

/// What the names of a classifier begin with.
pub(super) const CLASSIFIER: &str = "classifier.";

/// Heads of other models. They do not affect the hidden states.
const OTHER_HEADS: [&str; 2] = ["pooler.", CLASSIFIER];

/// Tensors that an ESM-2 stores but does not use: positions are rotary.
const UNUSED: [&str; 2] = [
    "embeddings.position_embeddings.weight",
    "embeddings.position_ids",
];

/// Returns the canonical name of a stored tensor, or `None` for one that is not read.
///
/// Canonical is the name in `EsmModel`: the Hub's name without `esm.`. Some versions of transformers save the `LayerNorm`
/// parameters `weight` and `bias` as `gamma` and `beta`.
pub(super) fn canonical(stored: &str) -> Option<String> {
    let name = stored.strip_prefix("esm.").unwrap_or(stored);
    if UNUSED.contains(&name) || OTHER_HEADS.iter().any(|head| name.starts_with(head)) {
        return None;
    }
    Some(if name == STATE_INV_FREQ {
        SHARED_INV_FREQ.to_owned()
    } else if let Some(stem) = name.strip_suffix("LayerNorm.gamma") {
        format!("{stem}LayerNorm.weight")
    } else if let Some(stem) = name.strip_suffix("LayerNorm.beta") {
        format!("{stem}LayerNorm.bias")
    } else {
        name.to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_names_become_canonical() {
        let norm = "encoder.layer.0.LayerNorm.weight";
        for (stored, expected) in [
            ("esm.encoder.layer.0.LayerNorm.weight", Some(norm)),
            (norm, Some(norm)),
            ("esm.encoder.layer.0.LayerNorm.gamma", Some(norm)),
            ("encoder.LayerNorm.beta", Some("encoder.LayerNorm.bias")),
            (SHARED_INV_FREQ, Some(SHARED_INV_FREQ)),
            ("esm.rotary_embeddings.inv_freq", Some(SHARED_INV_FREQ)),
            ("classifier.dense.weight", None),
            ("esm.embeddings.position_ids", None),
            ("esm.embeddings.position_embeddings.weight", None),
            ("esm.encoder.adapter", Some("encoder.adapter")),
        ] {
            assert_eq!(canonical(stored).as_deref(), expected, "{stored}");
        }
    }
}
