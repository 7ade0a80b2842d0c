"""Makes model-tiny: a seeded checkpoint with the shape, the tensor names and the habits of the ESM-2 files on the Hub.

Random weights of the usual small scale would hide most mistakes: attention would be uniform, LayerNorm the identity. So
attention is sharp, no bias is zero, `inv_freq` is rounded through float16 as in the published models, and two channels
of the residual stream reach 750 where a typical one stays below 100.
"""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

TARGET = Path(__file__).with_name("model-tiny")
LAYERS, WIDTH, HEADS, VOCABULARY = 4, 64, 4, 33
CONFIG = {
    "architectures": ["EsmForMaskedLM"],
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout": None,
    "emb_layer_norm_before": False,
    "esmfold_config": None,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "hidden_size": WIDTH,
    "initializer_range": 0.02,
    "intermediate_size": 4 * WIDTH,
    "is_folding_model": False,
    "layer_norm_eps": 1e-05,
    "mask_token_id": 32,
    "max_position_embeddings": 1026,
    "model_type": "esm",
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "pad_token_id": 1,
    "position_embedding_type": "rotary",
    "token_dropout": True,
    "torch_dtype": "float32",
    "transformers_version": "4.25.0.dev0",
    "use_cache": True,
    "vocab_list": None,
    "vocab_size": VOCABULARY,
}
# Channel of the residual stream -> what the embedding, and then every layer, adds to it.
OUTLIERS = {5: (300.0, 20.0), 41: (-40.0, -240.0)}

rng = np.random.default_rng(20240607)


def normal(*shape, scale):
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def linear(tensors, name, outputs, inputs, scale=1.0):
    tensors[f"{name}.weight"] = normal(outputs, inputs, scale=scale / np.sqrt(inputs))
    tensors[f"{name}.bias"] = normal(outputs, scale=0.2)


def layer_norm(tensors, name, outliers=True):
    """With outliers the variance is theirs, so the weights that bring ordinary channels back to 1 are large."""
    weight = rng.uniform(0.7, 1.4, WIDTH).astype(np.float32)
    if outliers:
        weight *= 12.0
    weight[list(OUTLIERS)] = 0.05
    tensors[f"{name}.weight"] = weight
    tensors[f"{name}.bias"] = normal(WIDTH, scale=0.2)


def make():
    tensors = {}
    words = normal(VOCABULARY, WIDTH, scale=6.0)
    for channel, (embedding, _) in OUTLIERS.items():
        words[:, channel] += embedding
    tensors["esm.embeddings.word_embeddings.weight"] = words
    # In the files on the Hub, and used by no rotary model.
    tensors["esm.embeddings.position_embeddings.weight"] = np.zeros((1026, WIDTH), np.float32)

    head_width = WIDTH // HEADS
    inv_freq = 10000.0 ** (-np.arange(0, head_width, 2) / head_width)
    for i in range(LAYERS):
        layer = f"esm.encoder.layer.{i}"
        layer_norm(tensors, f"{layer}.attention.LayerNorm")
        linear(tensors, f"{layer}.attention.self.query", WIDTH, WIDTH, scale=1.0)
        linear(tensors, f"{layer}.attention.self.key", WIDTH, WIDTH, scale=1.0)
        linear(tensors, f"{layer}.attention.self.value", WIDTH, WIDTH)
        linear(tensors, f"{layer}.attention.output.dense", WIDTH, WIDTH, scale=2.0)
        tensors[f"{layer}.attention.self.rotary_embeddings.inv_freq"] = inv_freq.astype(np.float16).astype(np.float32)
        layer_norm(tensors, f"{layer}.LayerNorm")
        linear(tensors, f"{layer}.intermediate.dense", 4 * WIDTH, WIDTH, scale=1.5)
        linear(tensors, f"{layer}.output.dense", WIDTH, 4 * WIDTH, scale=5.0)
        for channel, (_, each_layer) in OUTLIERS.items():
            tensors[f"{layer}.output.dense.bias"][channel] += each_layer
    layer_norm(tensors, "esm.encoder.emb_layer_norm_after")
    linear(tensors, "esm.contact_head.regression", 1, LAYERS * HEADS, scale=1.5)
    linear(tensors, "lm_head.dense", WIDTH, WIDTH)
    layer_norm(tensors, "lm_head.layer_norm", outliers=False)
    tensors["lm_head.bias"] = normal(VOCABULARY, scale=0.2)
    return tensors


def main():
    TARGET.mkdir(exist_ok=True)
    weights = TARGET / "model.safetensors"
    save_file(make(), weights, metadata={"format": "pt"})
    weights.chmod(0o644)
    (TARGET / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
