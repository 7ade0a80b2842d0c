//! The names that tensors have in checkpoints of different origin, and the one that they have here.

/// The canonical name of rotary frequencies that all layers share.
pub(super) const SHARED_INV_FREQ: &str =
    "encoder.layer.*.attention.self.rotary_embeddings.inv_freq";

/// Their name in the state dictionary of transformers 5, which `save_pretrained` changes and `torch.save` does not.
const STATE_INV_FREQ: &str = "rotary_embeddings.inv_freq";

/// Parts of other models on top of the encoder: none of them touches its hidden states.
const OTHER_HEADS: [&str; 2] = ["pooler.", "classifier."];

/// What an ESM-2 stores and does not use: its positions are rotary, and its decoder is the table of word embeddings.
const UNUSED: [&str; 4] = [
    "embeddings.position_embeddings.weight",
    "embeddings.position_ids",
    "lm_head.decoder.weight",
    "lm_head.decoder.bias",
];

/// The name of a tensor, or none for one that is not read.
///
/// Canonical is the name in `EsmModel`: the Hub's without its `esm.`, and with the `LayerNorm` parameters that some
/// versions of transformers save as `gamma` and `beta` called `weight` and `bias`.
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
    fn names_of_every_origin_become_one() {
        for stored in [
            "esm.encoder.layer.0.LayerNorm.weight",
            "encoder.layer.0.LayerNorm.weight",
            "esm.encoder.layer.0.LayerNorm.gamma",
        ] {
            assert_eq!(
                canonical(stored).as_deref(),
                Some("encoder.layer.0.LayerNorm.weight")
            );
        }
        assert_eq!(
            canonical("encoder.layer.0.attention.LayerNorm.beta").as_deref(),
            Some("encoder.layer.0.attention.LayerNorm.bias")
        );
        for shared in [SHARED_INV_FREQ, STATE_INV_FREQ] {
            assert_eq!(
                canonical(&format!("esm.{shared}")).as_deref(),
                Some(SHARED_INV_FREQ)
            );
        }
    }

    #[test]
    fn other_heads_and_unused_tables_are_passed_over_and_nothing_else() {
        for stored in [
            "lm_head.decoder.weight",
            "classifier.dense.weight",
            "esm.embeddings.position_ids",
            "esm.embeddings.position_embeddings.weight",
        ] {
            assert_eq!(canonical(stored), None, "{stored}");
        }
        assert_eq!(
            canonical("esm.encoder.adapter").as_deref(),
            Some("encoder.adapter")
        );
    }
}
