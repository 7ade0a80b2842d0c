"""A seeded checkpoint in a published shape, and ESM-2 in numpy, right and with mistakes."""

import json

import numpy as np
from safetensors.numpy import load_file, save_file

# Channel of the residual stream -> what the embedding, and then every layer, adds to it.
OUTLIERS = {5: (300.0, 20.0), 41: (-40.0, -240.0)}
TOKENS = {residue: 4 + place for place, residue in enumerate("LAGVSERTIDPKQNFYMHWCXBUZO")}


def seeded(folder, layers, width, heads, seed):
    """Writes weights with the habits of the published ones: see test-data/make_model_tiny.py."""
    if (folder / "config.json").exists():
        return folder
    rng, tensors = np.random.default_rng(seed), {}

    def normal(name, *shape, scale):
        tensors[name] = (scale * rng.standard_normal(shape)).astype(np.float32)

    def linear(name, outputs, inputs, scale=1.0):
        normal(f"{name}.weight", outputs, inputs, scale=scale / np.sqrt(inputs))
        normal(f"{name}.bias", outputs, scale=0.2)

    def layer_norm(name, scale):
        weight = (scale * rng.uniform(0.7, 1.4, width)).astype(np.float32)
        weight[list(OUTLIERS)] = 0.05
        tensors[f"{name}.weight"] = weight
        normal(f"{name}.bias", width, scale=0.2)

    # The variance is that of the outliers; the weights bring the other channels back to 1.
    back = 12.0 * np.sqrt(64 / width)
    normal("esm.embeddings.word_embeddings.weight", 33, width, scale=6.0)
    half = width // heads // 2
    for layer in (f"esm.encoder.layer.{number}" for number in range(layers)):
        layer_norm(f"{layer}.attention.LayerNorm", back)
        for part in ["query", "key", "value"]:
            linear(f"{layer}.attention.self.{part}", width, width)
        linear(f"{layer}.attention.output.dense", width, width, scale=2.0)
        tensors[f"{layer}.attention.self.rotary_embeddings.inv_freq"] = (10000.0 ** (-np.arange(half) / half)).astype(np.float32)
        layer_norm(f"{layer}.LayerNorm", back)
        linear(f"{layer}.intermediate.dense", 4 * width, width, scale=1.5)
        linear(f"{layer}.output.dense", width, 4 * width, scale=5.0)
        for channel, (_, each_layer) in OUTLIERS.items():
            tensors[f"{layer}.output.dense.bias"][channel] += each_layer
    for channel, (embedding, _) in OUTLIERS.items():
        tensors["esm.embeddings.word_embeddings.weight"][:, channel] += embedding
    layer_norm("esm.encoder.emb_layer_norm_after", back)
    linear("esm.contact_head.regression", 1, layers * heads, scale=1.5)
    linear("lm_head.dense", width, width)
    layer_norm("lm_head.layer_norm", 1.0)
    normal("lm_head.bias", 33, scale=0.2)
    config = dict(
        model_type="esm", architectures=["EsmForMaskedLM"], hidden_act="gelu", position_embedding_type="rotary", token_dropout=True,
        hidden_size=width, intermediate_size=4 * width, num_attention_heads=heads, num_hidden_layers=layers, vocab_size=33,
        layer_norm_eps=1e-5, emb_layer_norm_before=False, mask_token_id=32, pad_token_id=1, max_position_embeddings=1026,
        is_folding_model=False,
    )
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def erf_gelu(x):
    # Abramowitz and Stegun 7.1.26, whose error is 1.5e-7.
    z = np.abs(x) / np.float32(np.sqrt(2))
    t = 1 / (1 + np.float32(0.3275911) * z)
    tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) * np.exp(-z * z)
    return x * np.where(x >= 0, 1 - tail / 2, tail / 2).astype(np.float32)


def tanh_gelu(x):
    return x / 2 * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3)))


class Model:
    """ESM-2 in f32."""

    def __init__(self, folder):
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.layers, self.heads = config["num_hidden_layers"], config["num_attention_heads"]
        self.width = config["hidden_size"]
        self.tensors = {name.removeprefix("esm."): tensor for name, tensor in load_file(folder / "model.safetensors").items()}

    def mean(self, residues, gelu=erf_gelu, eps=1e-5, last_norm=True, query_shift=0, rotation=True, next_token=False, scale=1.0, skipped=None,
             dropout=True, value_bias=True, rounded=None, causal=False):
        """The mean vector of a sequence. Each option is a mistake."""
        weights = self.tensors

        def linear(name, x, bias=True):
            weight = weights[f"{name}.weight"]
            x = x @ (rounded(weight) if rounded else weight).T
            return x + weights[f"{name}.bias"] if bias else x

        def norm(name, x):
            x = x - x.mean(axis=1, keepdims=True)
            return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + np.float32(eps)) * weights[f"{name}.weight"] + weights[f"{name}.bias"]

        # The <cls> of the next sequence follows.
        tokens = [0, *(TOKENS[residue] for residue in residues), 2, *([0] if next_token else [])]
        x = weights["embeddings.word_embeddings.weight"][tokens] * np.float32(0.88 if dropout else 1)
        count, head = len(tokens), self.width // self.heads
        for number in range(self.layers):
            layer = f"encoder.layer.{number}"
            if number == skipped:
                continue
            normed = norm(f"{layer}.attention.LayerNorm", x)
            inv_freq = weights[f"{layer}.attention.self.rotary_embeddings.inv_freq"]

            def turned(part, shift):
                # (heads, tokens, channels of a head)
                x = linear(f"{layer}.attention.self.{part}", normed).reshape(count, self.heads, head).swapaxes(0, 1)
                if not rotation:
                    return x
                angles = np.outer(np.arange(shift, count + shift, dtype=np.float32), inv_freq)
                cos, sin = np.cos(angles), np.sin(angles)
                one, two = np.split(x, 2, axis=2)
                return np.concatenate([one * cos - two * sin, two * cos + one * sin], axis=2)

            scores = turned("query", query_shift) @ turned("key", 0).swapaxes(1, 2) * np.float32(scale / np.sqrt(head))
            if causal:
                scores = np.where(np.tri(count, dtype=bool), scores, -np.inf)
            shares = np.exp(scores - scores.max(axis=2, keepdims=True))
            shares /= shares.sum(axis=2, keepdims=True)
            values = linear(f"{layer}.attention.self.value", normed, value_bias).reshape(count, self.heads, head).swapaxes(0, 1)
            x = x + linear(f"{layer}.attention.output.dense", (shares @ values).swapaxes(0, 1).reshape(count, -1))
            wide = gelu(linear(f"{layer}.intermediate.dense", norm(f"{layer}.LayerNorm", x)))
            x = x + linear(f"{layer}.output.dense", wide)
        if last_norm:
            x = norm("encoder.emb_layer_norm_after", x)
        return x[1 : 1 + len(residues)].mean(axis=0)


def to_bf16(x):
    """Rounded to bf16."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def mistakes(layers, head):
    """The name of a wrong model, and the options of `mean`."""
    return {
        "tanh GELU": dict(gelu=tanh_gelu),
        "LayerNorm epsilon 1e-3": dict(eps=1e-3),
        "last LayerNorm left out": dict(last_norm=False),
        "query positions from 1, key positions from 0": dict(query_shift=1),
        "rotation left out": dict(rotation=False),
        "attention sees the next <cls>": dict(next_token=True),
        "attention sees no later residue": dict(causal=True),
        "softmax scale left out": dict(scale=np.sqrt(head)),
        "softmax scale times 1.02": dict(scale=1.02),
        "middle layer skipped": dict(skipped=layers // 2),
        "token dropout scale left out": dict(dropout=False),
        "bias of values left out": dict(value_bias=False),
        "weights rounded to bf16": dict(rounded=to_bf16),
        "weights rounded to f16": dict(rounded=lambda weight: weight.astype(np.float16).astype(np.float32)),
    }
