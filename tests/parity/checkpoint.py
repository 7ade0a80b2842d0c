"""Writes a seeded checkpoint of a configuration, as the Hub has it: names, `inv_freq` in every layer, both heads.

transformers says which tensors there are and of what shape; the values are drawn here, because its own small ones would
let most mistakes pass. As in test-data/model-tiny, attention is sharp in some heads, no bias is zero, `inv_freq` went
through float16 and some channels of the residual stream reach 1000 where a typical one stays below 100.
"""

import hashlib
import json
import os
import shutil
import zlib
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

SEED = 20240711
VOCABULARY, POSITIONS = 33, 1026
# Residual stream: what ordinary channels start with and, roughly, what a layer adds to them; and that one channel in
# `RARITY` goes from `EMBEDDED` to `LAST` through the layers.
ORDINARY, ADDED, RARITY, EMBEDDED, LAST = 4.0, 2.5, 160, 300.0, 1000.0
# Standard deviation of attention scores, from the first head of a layer to its last: nearly uniform to a few residues.
SHARPNESS = 0.5, 2.5


def settings(configuration):
    """config.json as the published models have it."""
    return {
        "architectures": ["EsmForMaskedLM"],
        "attention_probs_dropout_prob": 0.0,
        "emb_layer_norm_before": False,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "hidden_size": configuration.width,
        "initializer_range": 0.02,
        "intermediate_size": 4 * configuration.width,
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


def shapes(configuration):
    """Hub name -> shape, from transformers' own model."""
    config = transformers.EsmConfig(**settings(configuration))
    with torch.device("meta"):
        model = transformers.EsmForMaskedLM(config)
    found = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    frequencies = found.pop("esm.rotary_embeddings.inv_freq")  # one for all layers since transformers 5
    del found["lm_head.decoder.weight"]  # tied to the embedding
    for layer in range(configuration.layers):
        found[f"esm.encoder.layer.{layer}.attention.self.rotary_embeddings.inv_freq"] = frequencies
    found["esm.embeddings.position_embeddings.weight"] = (POSITIONS, configuration.width)  # there, and unused
    return found


class Values:
    """Draws each tensor from its name, so that none depends on which others there are."""

    def __init__(self, configuration):
        self.configuration = configuration
        # Channel -> sign of its outlier.
        chosen = np.random.default_rng(SEED).permutation(configuration.width)
        self.outliers = {int(channel): (-1) ** i for i, channel in enumerate(chosen[: configuration.width // RARITY])}

    def of(self, name, shape):
        rng = np.random.default_rng([SEED, zlib.crc32(name.encode())])
        parent, kind = name.rsplit(".", 1)
        if kind == "inv_freq":
            exact = 10000.0 ** (-np.arange(shape[0]) / shape[0])
            return exact.astype(np.float16).astype(np.float32)
        if name.endswith("position_embeddings.weight"):
            return np.zeros(shape, np.float32)
        if name.endswith("word_embeddings.weight"):
            return self.words(rng, shape)
        if parent.lower().endswith(("layernorm", "layer_norm", "emb_layer_norm_after")):
            return self.norm(rng, parent, kind, shape)
        if kind == "bias":
            return self.bias(rng, parent, shape)
        return self.weight(rng, parent, shape)

    def words(self, rng, shape):
        words = self.normal(rng, shape, ORDINARY)
        for channel, sign in self.outliers.items():
            words[:, channel] += sign * EMBEDDED
        return words

    def norm(self, rng, parent, kind, shape):
        values = self.normal(rng, shape, 0.2) if kind == "bias" else rng.uniform(0.7, 1.4, shape).astype(np.float32)
        if parent == "lm_head.layer_norm":
            values *= 1.25 / np.sqrt(self.configuration.width)  # logits of about 5
            values[list(self.outliers)] *= 0.05
        elif kind == "weight":
            # The variance is that of the outliers: ordinary channels have to be brought back to about 1.
            depth = self.configuration.layers
            layer = int(parent.split(".")[3]) if ".layer." in parent else depth
            outlier = EMBEDDED + (LAST - EMBEDDED) * layer / depth
            values *= outlier / np.sqrt(RARITY) / np.hypot(ORDINARY, ADDED * np.sqrt(layer))
            values[list(self.outliers)] = 0.05
        return values

    def bias(self, rng, parent, shape):
        bias = self.normal(rng, shape, 0.2)
        if parent.endswith(".output.dense") and not parent.endswith(".attention.output.dense"):
            for channel, sign in self.outliers.items():
                bias[channel] += sign * (LAST - EMBEDDED) / self.configuration.layers
        if parent.endswith("contact_head.regression"):
            bias -= 1.0
        return bias

    def weight(self, rng, parent, shape):
        gain = 1.0
        if parent.endswith((".query", ".key")):
            by_head = np.sqrt(np.linspace(*SHARPNESS, self.configuration.heads))
            gain = np.repeat(by_head, self.configuration.width // self.configuration.heads)[:, None]
        elif parent.endswith(".intermediate.dense"):
            gain = 1.5
        elif parent.endswith(".output.dense"):
            gain = 2.0
        elif parent.endswith("contact_head.regression"):
            gain = 12.0
        weight = self.normal(rng, shape, 1 / np.sqrt(shape[1]))
        weight *= np.asarray(gain, np.float32)
        return weight

    def normal(self, rng, shape, scale):
        values = rng.standard_normal(shape, dtype=np.float32)
        values *= np.float32(scale)
        return values


def make(configuration, parent: Path):
    """The folder of the checkpoint in `parent`; it is made only if this code has not made it already."""
    folder = parent / configuration.name
    source = [Path(__file__).read_text(encoding="utf-8"), repr(configuration), np.__version__, transformers.__version__]
    key = hashlib.sha256("\0".join(source).encode()).hexdigest()
    stamp = folder / "made-by"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == key:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    values = Values(configuration)
    tensors = {name: values.of(name, shape) for name, shape in sorted(shapes(configuration).items())}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    os.chmod(folder / "model.safetensors", 0o644)
    (folder / "config.json").write_text(json.dumps(settings(configuration), indent=2) + "\n", encoding="utf-8")
    stamp.write_text(key, encoding="utf-8")
    return folder
