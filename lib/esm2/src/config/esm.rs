//! ESM-2, ESM-1b and ESM-1v, as transformers describes them: `model_type` `esm`.

use plmkit_contract::{ModelShape, RESIDUES, VOCABULARY};

use super::{Architecture, Entries, FeedForward, ModelConfig, Positions};
use crate::rope::ROPE_BASE;

/// The row of `<cls>` in a table of positions: that of `<pad>` precedes it.
const FIRST_POSITION: usize = 2;

impl Architecture {
    /// That of ESM-2.
    pub(crate) const ESM2: Self = Self {
        positions: Positions::StoredRotary,
        embedding_norm: false,
        query_key_norm: false,
        feed_forward: FeedForward::Gelu,
        dense_bias: true,
        final_norm_bias: true,
        branch_depth: None,
    };
}

pub(super) fn read(entries: &Entries) -> Result<ModelConfig, String> {
    let positions = positions(entries)?;
    entries.must_be("vocab_size", VOCABULARY, false)?;
    entries.must_be("hidden_act", "gelu", true)?;
    entries.must_be("rope_theta", ROPE_BASE, true)?;
    entries.must_be("partial_rotary_factor", 1.0, true)?;
    entries.must_be_default()?;
    entries.must_be("is_decoder", false, true)?;
    entries.must_be("is_folding_model", false, true)?;
    let most = ModelShape::MOST;
    Ok(ModelConfig {
        layers: entries.count("num_hidden_layers", 1..=most.layers as usize)?,
        hidden: entries.count("hidden_size", 2..=most.hidden as usize)?,
        heads: entries.count("num_attention_heads", 1..=1 << 12)?,
        intermediate: entries.count("intermediate_size", 1..=most.intermediate as usize)?,
        layer_norm_eps: entries.epsilon("layer_norm_eps")?,
        token_dropout: entries.flag("token_dropout", None)?,
        tied_decoder: entries.flag("tie_word_embeddings", Some(true))?,
        vocabulary: VOCABULARY,
        tokens: token_names("<null_1>"),
        architecture: Architecture {
            positions,
            embedding_norm: entries.flag("emb_layer_norm_before", Some(false))?,
            ..Architecture::ESM2
        },
    })
}

fn positions(entries: &Entries) -> Result<Positions, String> {
    let key = "position_embedding_type";
    if *entries.get(key) != "absolute" {
        let rotary = entries.must_be(key, "rotary", false);
        let expected = "\"rotary\" or \"absolute\"";
        return rotary
            .map(|()| Positions::StoredRotary)
            .map_err(|_| entries.invalid(key, expected));
    }
    entries.must_be("pad_token_id", FIRST_POSITION - 1, false)?;
    let rows = entries.count("max_position_embeddings", FIRST_POSITION + 3..=1 << 20)?;
    Ok(Positions::Learned {
        first: FIRST_POSITION,
        longest: rows - FIRST_POSITION,
    })
}

/// Returns the names of the tokens, whose ids all ESM share but for one.
pub(super) fn token_names(id_31: &str) -> Vec<String> {
    let special = ["<cls>", "<pad>", "<eos>", "<unk>"].map(str::to_owned);
    let residues = RESIDUES
        .iter()
        .map(|&residue| char::from(residue).to_string());
    let last = [".", "-", id_31, "<mask>"].map(str::to_owned);
    special.into_iter().chain(residues).chain(last).collect()
}
