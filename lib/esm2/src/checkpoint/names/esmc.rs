//! Names of ESM Cambrian: those of transformers, those of the first release, and those of the package esm with Transformer Engine.
//!
//! The last two store queries, keys and values, and the gate and the input of the feed-forward network, one below the other.

const QKV: &[&str] = &[
    "encoder.layer.*.attention.self.query",
    "encoder.layer.*.attention.self.key",
    "encoder.layer.*.attention.self.value",
];
const GATE_AND_UP: &[&str] = &[
    "encoder.layer.*.intermediate.gate",
    "encoder.layer.*.intermediate.dense",
];

/// The modules of the encoder and of the language-model head, each with the canonical ones that it is made of, one below the other.
/// `*` is the number of a layer.
#[rustfmt::skip]
pub(super) const TABLE: &[(&str, &[&str])] = &[
    ("embed_tokens", &["embeddings.word_embeddings"]),
    ("layers.*.input_layernorm", &["encoder.layer.*.attention.LayerNorm"]),
    ("layers.*.self_attn.q_proj", &["encoder.layer.*.attention.self.query"]),
    ("layers.*.self_attn.k_proj", &["encoder.layer.*.attention.self.key"]),
    ("layers.*.self_attn.v_proj", &["encoder.layer.*.attention.self.value"]),
    ("layers.*.self_attn.q_norm", &["encoder.layer.*.attention.self.query_norm"]),
    ("layers.*.self_attn.k_norm", &["encoder.layer.*.attention.self.key_norm"]),
    ("layers.*.self_attn.o_proj", &["encoder.layer.*.attention.output.dense"]),
    ("layers.*.post_attention_layernorm", &["encoder.layer.*.LayerNorm"]),
    ("layers.*.mlp.gate_proj", &["encoder.layer.*.intermediate.gate"]),
    ("layers.*.mlp.up_proj", &["encoder.layer.*.intermediate.dense"]),
    ("layers.*.mlp.down_proj", &["encoder.layer.*.output.dense"]),
    ("norm", &["encoder.emb_layer_norm_after"]),
    // Both of the package esm.
    ("embed", &["embeddings.word_embeddings"]),
    ("transformer.blocks.*.attn.q_ln", &["encoder.layer.*.attention.self.query_norm"]),
    ("transformer.blocks.*.attn.k_ln", &["encoder.layer.*.attention.self.key_norm"]),
    ("transformer.blocks.*.attn.out_proj", &["encoder.layer.*.attention.output.dense"]),
    ("transformer.norm", &["encoder.emb_layer_norm_after"]),
    // The first release.
    ("transformer.blocks.*.attn.layernorm_qkv.0", &["encoder.layer.*.attention.LayerNorm"]),
    ("transformer.blocks.*.attn.layernorm_qkv.1", QKV),
    ("transformer.blocks.*.ffn.0", &["encoder.layer.*.LayerNorm"]),
    ("transformer.blocks.*.ffn.1", GATE_AND_UP),
    ("transformer.blocks.*.ffn.3", &["encoder.layer.*.output.dense"]),
    ("sequence_head.0", &["lm_head.dense"]),
    ("sequence_head.2", &["lm_head.layer_norm"]),
    ("sequence_head.3", &["lm_head.decoder"]),
    // With Transformer Engine.
    ("transformer.blocks.*.attn.layernorm_qkv.layer_norm", &["encoder.layer.*.attention.LayerNorm"]),
    ("transformer.blocks.*.attn.layernorm_qkv", QKV),
    ("transformer.blocks.*.ffn.layer_norm", &["encoder.layer.*.LayerNorm"]),
    ("transformer.blocks.*.ffn.fc1", GATE_AND_UP),
    ("transformer.blocks.*.ffn.fc2", &["encoder.layer.*.output.dense"]),
    ("lm_head.0", &["lm_head.dense"]),
    ("lm_head.2", &["lm_head.layer_norm"]),
    ("lm_head.3", &["lm_head.decoder"]),
    // Computed frequencies, which some versions store.
    ("rotary_emb.inv_freq", &[]),
    ("rotary_emb.original_inv_freq", &[]),
    ("transformer.blocks.*.attn.rotary.inv_freq", &[]),
];
