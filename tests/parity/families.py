"""The families of models: config.json as the published models have it, and the class in transformers that has their tensors."""

import transformers

VOCABULARY, POSITIONS = 33, 1026


def esm2(configuration):
    return {
        "architectures": ["EsmForMaskedLM"],
        "attention_probs_dropout_prob": 0.0,
        "emb_layer_norm_before": False,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "hidden_size": configuration.width,
        "initializer_range": 0.02,
        "intermediate_size": configuration.intermediate,
        "is_folding_model": False,
        "layer_norm_eps": 1e-05,
        "mask_token_id": 32,
        "max_position_embeddings": POSITIONS,
        "model_type": "esm",
        "num_attention_heads": configuration.heads,
        "num_hidden_layers": configuration.layers,
        "pad_token_id": 1,
        "position_embedding_type": "rotary",
        "token_dropout": True,
        "torch_dtype": "float32",
        "use_cache": True,
        "vocab_size": VOCABULARY,
    }


def esm1b(configuration):
    return esm2(configuration) | {"position_embedding_type": "absolute", "emb_layer_norm_before": True}


def esm1v(configuration):
    """Without the first LayerNorm, which fair-esm expects of a checkpoint only if it is there."""
    return esm1b(configuration) | {"emb_layer_norm_before": False}


def esmc(configuration):
    return {
        "architectures": ["EsmcForMaskedLM"],
        "attention_bias": False,
        "head_dim": configuration.width // configuration.heads,
        "hidden_act": "silu",
        "hidden_size": configuration.width,
        "initializer_range": 0.02,
        "intermediate_size": configuration.intermediate,
        "mask_token_id": 32,
        "max_position_embeddings": 2048,
        "mlp_bias": False,
        "model_type": "esmc",
        "num_attention_heads": configuration.heads,
        "num_hidden_layers": configuration.layers,
        "num_key_value_heads": configuration.heads,
        "pad_token_id": 1,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "tie_word_embeddings": False,
        "vocab_size": 64,
    }


SETTINGS = {"esm2": esm2, "esm1b": esm1b, "esm1v": esm1v, "esmc": esmc}


def settings(configuration):
    return SETTINGS[configuration.family](configuration)


def model(configuration):
    """transformers' own, on the device that is the default."""
    if configuration.family == "esmc":
        return transformers.EsmcForMaskedLM(transformers.EsmcConfig(**settings(configuration)))
    return transformers.EsmForMaskedLM(transformers.EsmConfig(**settings(configuration)))
