//! Canonical names of tensors.

mod esmc;

/// The canonical name of rotary frequencies that all layers share.
pub(super) const SHARED_INV_FREQ: &str =
    "encoder.layer.*.attention.self.rotary_embeddings.inv_freq";

/// Their name in the state dictionary of transformers 5. `save_pretrained` changes it, `torch.save` does not.
const STATE_INV_FREQ: &str = "rotary_embeddings.inv_freq";

/// What the names of a classifier begin with.
pub(super) const CLASSIFIERS: [&str; 2] = ["classifier.", "score."];

/// Tensors that no vector depends on: other heads, numbers of positions, and the state of Transformer Engine.
const UNUSED: [&str; 2] = ["pooler.", "embeddings.position_ids"];
const UNUSED_END: &str = "_extra_state";

/// What a checkpoint's names begin with, if the encoder is a part of the model.
const PREFIXES: [&str; 2] = ["esm.", "esmc."];

/// Returns the canonical names of a stored tensor: of each matrix, if it is several of one shape, one below the other, and none if it
/// is not read.
///
/// Canonical is the name in `EsmModel`: the Hub's name without `esm.`. Some versions of transformers save the `LayerNorm`
/// parameters `weight` and `bias` as `gamma` and `beta`.
pub(super) fn canonical(stored: &str) -> Vec<String> {
    let prefix = PREFIXES
        .iter()
        .find_map(|prefix| stored.strip_prefix(prefix));
    let name = prefix.unwrap_or(stored);
    let unused = UNUSED.iter().chain(&CLASSIFIERS);
    if name.ends_with(UNUSED_END) || unused.into_iter().any(|unused| name.starts_with(unused)) {
        return Vec::new();
    }
    // Names that are not in the table are canonical.
    if let Some(names) = look_up(name) {
        return names;
    }
    vec![match name {
        STATE_INV_FREQ => SHARED_INV_FREQ.to_owned(),
        name => name
            .replace("LayerNorm.gamma", "LayerNorm.weight")
            .replace("LayerNorm.beta", "LayerNorm.bias"),
    }]
}

/// Returns the canonical names of a parameter of a module in the table.
fn look_up(name: &str) -> Option<Vec<String>> {
    let kinds = ["weight", "bias", "inv_freq"];
    let kind = kinds.into_iter().find(|kind| name.ends_with(kind))?;
    let module = name.strip_suffix(kind)?;
    let module = module
        .strip_suffix(['.', '_'])
        .filter(|_| kind != "inv_freq")
        .unwrap_or(name);
    esmc::TABLE.iter().find_map(|(pattern, canonical)| {
        let layer = layer_in(module, pattern)?;
        let name = |canonical: &&str| format!("{}.{kind}", canonical.replace('*', layer));
        Some(canonical.iter().map(name).collect())
    })
}

/// Returns the number of the layer of a module that has the pattern; empty if the pattern has no layer.
fn layer_in<'a>(module: &'a str, pattern: &str) -> Option<&'a str> {
    let Some((before, after)) = pattern.split_once('*') else {
        return (module == pattern).then_some("");
    };
    let layer = module.strip_prefix(before)?.strip_suffix(after)?;
    layer
        .bytes()
        .all(|digit| digit.is_ascii_digit())
        .then_some(layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_layout_become_canonical() {
        for (stored, expected) in [
            (
                "esm.encoder.layer.3.LayerNorm.gamma",
                &["encoder.layer.3.LayerNorm.weight"][..],
            ),
            ("classifier.dense.weight", &[]),
            ("score.bias", &[]),
            (
                "esmc.embed_tokens.weight",
                &["embeddings.word_embeddings.weight"],
            ),
            (
                "layers.12.mlp.gate_proj.weight",
                &["encoder.layer.12.intermediate.gate.weight"],
            ),
            ("norm.weight", &["encoder.emb_layer_norm_after.weight"]),
            ("lm_head.decoder.bias", &["lm_head.decoder.bias"]),
            (
                "transformer.blocks.7.ffn.1.weight",
                &[
                    "encoder.layer.7.intermediate.gate.weight",
                    "encoder.layer.7.intermediate.dense.weight",
                ],
            ),
            (
                "esmc.transformer.blocks.7.attn.layernorm_qkv.layer_norm_bias",
                &["encoder.layer.7.attention.LayerNorm.bias"],
            ),
            (
                "esmc.transformer.blocks.7.ffn.fc2_weight",
                &["encoder.layer.7.output.dense.weight"],
            ),
            ("esmc.transformer.blocks.7.ffn._extra_state", &[]),
            ("sequence_head.2.bias", &["lm_head.layer_norm.bias"]),
            ("rotary_emb.inv_freq", &[]),
            (
                "layers.x.mlp.gate_proj.weight",
                &["layers.x.mlp.gate_proj.weight"],
            ),
        ] {
            assert_eq!(canonical(stored), expected, "{stored}");
        }
        assert_eq!(
            canonical("transformer.blocks.0.attn.layernorm_qkv.weight").len(),
            3
        );
    }
}
