"""Writes a seeded checkpoint of a configuration, as the Hub has it: names, `inv_freq` in every layer, both heads.

transformers says which tensors there are and of what shape; the values are drawn here, because its own small ones would
let most mistakes pass. As in test-data/model-tiny, attention is sharp in some heads, no bias is zero, `inv_freq` went
through float16 and some channels of the residual stream reach 1000 where a typical one stays below 100.
"""

import hashlib
import json
import re
import shutil
import zlib
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

import families

SEED = 20240711
MASK = 32
# Residual stream: what ordinary channels start with and, roughly, what a layer adds to them; and that one channel in
# `RARITY` goes from `EMBEDDED` to `LAST` through the layers.
ORDINARY, ADDED, RARITY, EMBEDDED, LAST = 4.0, 2.5, 160, 300.0, 1000.0
# Standard deviation of attention scores, from the first head of a layer to its last: nearly uniform to a few residues.
SHARPNESS = 0.5, 2.5


def shapes(configuration):
    """Hub name -> shape, from transformers' own model."""
    with torch.device("meta"):
        model = families.model(configuration)
    found = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if configuration.family == "esmc":
        return found
    del found["lm_head.decoder.weight"]  # tied to the embedding
    if configuration.family == "esm2":
        frequencies = found.pop("esm.rotary_embeddings.inv_freq")  # one for all layers since transformers 5
        for layer in range(configuration.layers):
            found[f"esm.encoder.layer.{layer}.attention.self.rotary_embeddings.inv_freq"] = frequencies
        # There, and unused.
        found["esm.embeddings.position_embeddings.weight"] = (families.POSITIONS, configuration.width)
    return found


class Values:
    """Draws each tensor from its name, so that none depends on which others there are."""

    def __init__(self, configuration):
        self.configuration = configuration
        self.is_esmc = configuration.family == "esmc"
        # Of one outlier at least.
        self.rarity = min(RARITY, configuration.width)
        # Outliers grow by a bias in each layer, which ESMC has not.
        self.embedded = LAST if self.is_esmc else EMBEDDED
        # A model cut to a few layers would add more in each than the whole one.
        self.branch = np.sqrt(configuration.layers / 36) if self.is_esmc else 1.0
        # Channel -> sign of its outlier.
        chosen = np.random.default_rng(SEED).permutation(configuration.width)
        self.outliers = {int(channel): (-1) ** i for i, channel in enumerate(chosen[: configuration.width // self.rarity])}

    def of(self, name, shape):
        rng = np.random.default_rng([SEED, zlib.crc32(name.encode())])
        parent, kind = name.rsplit(".", 1)
        if kind == "inv_freq":
            exact = 10000.0 ** (-np.arange(shape[0]) / shape[0])
            return exact.astype(np.float16).astype(np.float32)
        if name.endswith("position_embeddings.weight"):
            used = self.configuration.family != "esm2"
            return self.normal(rng, shape, ORDINARY) if used else np.zeros(shape, np.float32)
        if name.endswith(("word_embeddings.weight", "embed_tokens.weight")):
            return self.words(rng, shape)
        if parent.endswith((".q_norm", ".k_norm")):
            return self.by_head() * rng.uniform(0.7, 1.4, shape).astype(np.float32)
        if parent.lower().endswith(("layernorm", "layer_norm", "emb_layer_norm_after", "esmc.norm")):
            return self.norm(rng, parent, kind, shape)
        if kind == "bias":
            return self.bias(rng, parent, shape)
        return self.weight(rng, parent, shape)

    def words(self, rng, shape):
        words = self.normal(rng, shape, ORDINARY)
        for channel, sign in self.outliers.items():
            words[:, channel] += sign * self.embedded
        if self.configuration.family in ("esm1b", "esm1v"):
            words[MASK] = 0  # as fair-esm makes it
        return words

    def norm(self, rng, parent, kind, shape):
        values = self.normal(rng, shape, 0.2) if kind == "bias" else rng.uniform(0.7, 1.4, shape).astype(np.float32)
        if parent == "lm_head.layer_norm":
            values *= self.sharpness()
            values[list(self.outliers)] *= 0.05
        elif parent.endswith("embeddings.layer_norm"):
            if kind == "weight":
                # What comes out is about as large as what went in.
                values *= EMBEDDED / np.sqrt(self.rarity)
        elif kind == "weight":
            # The variance is that of the outliers: ordinary channels have to be brought back to about 1.
            depth = self.configuration.layers
            number = re.search(r"\.layers?\.(\d+)\.", parent)
            layer = int(number[1]) if number else depth
            outlier = self.embedded + (LAST - self.embedded) * layer / depth
            values *= outlier / np.sqrt(self.rarity) / np.hypot(ORDINARY, ADDED * np.sqrt(layer))
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
            gain = self.by_head()[:, None]
        elif parent.endswith((".intermediate.dense", ".gate_proj")):
            gain = 1.5
        elif parent.endswith((".output.dense", ".down_proj")):
            gain = 2.0 * self.branch
        elif parent.endswith(".o_proj"):
            gain = self.branch
        elif parent.endswith("contact_head.regression"):
            gain = 12.0
        weight = self.normal(rng, shape, 1 / np.sqrt(shape[1]))
        weight *= np.asarray(gain, np.float32)
        return weight

    def sharpness(self):
        """The weight of the last LayerNorm: logits of about 5, of 2 to 3 with learned positions and of 2 in ESMC."""
        tied = {"esm2": 1.25, "esm1b": 0.8, "esm1v": 0.6}
        return 2.0 if self.is_esmc else tied[self.configuration.family] / np.sqrt(self.configuration.width)

    def by_head(self):
        """The gain of each channel of queries and of keys."""
        by_head = np.sqrt(np.linspace(*SHARPNESS, self.configuration.heads, dtype=np.float32))
        return np.repeat(by_head, self.configuration.width // self.configuration.heads)

    def normal(self, rng, shape, scale):
        values = rng.standard_normal(shape, dtype=np.float32)
        values *= np.float32(scale)
        return values


def write(values, folder, dtype=np.float32):
    """Writes `values` as weights and config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: values.of(name, shape).astype(dtype, copy=False) for name, shape in sorted(shapes(values.configuration).items())}
    weights, config = folder / "model.safetensors", folder / "config.json"
    save_file(tensors, weights, metadata={"format": "pt"})
    weights.chmod(0o644)
    config.write_text(json.dumps(families.settings(values.configuration), indent=2) + "\n", encoding="utf-8")


def write_once(values, folder, code):
    """Writes it unless the same code, and the versions of its libraries, have written it already."""
    code = [Path(path).read_text(encoding="utf-8") for path in (*code, __file__, families.__file__)]
    source = [*code, repr(values.configuration), np.__version__, transformers.__version__]
    key = hashlib.sha256("\0".join(source).encode()).hexdigest()
    stamp = folder / "made-by"
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != key:
        shutil.rmtree(folder, ignore_errors=True)
        write(values, folder)
        stamp.write_text(key, encoding="utf-8")
    return folder


def make(configuration, parent: Path):
    """The folder of the checkpoint in `parent`."""
    return write_once(Values(configuration), parent / configuration.name, [])
