"""What gpu-embed is run on: batches that are all alike, others, and models."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

ROOT = Path(__file__).parents[2]
RESIDUES = "LAGVSERTIDPKQNFYMHWC"


def protein(length, seed):
    return "".join(RESIDUES[(seed + i * i) % len(RESIDUES)] for i in range(length))


class Inputs:
    def __init__(self, options):
        self.options = options
        self.folder = options.work / "inputs"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.model = ROOT / "test-data/model-tiny"
        # 20 batches of 8 proteins of 62 residues: whatever grows, grows by the same.
        self.alike_rows = 160
        self.alike = self.packed("alike", [protein(62, seed) for seed in range(self.alike_rows)], 8 * 64)
        natural = (ROOT / "test-data/proteins.fasta").read_text(encoding="utf-8")
        self.natural_rows = natural.count(">")
        self.natural = self.packed("natural", natural, 4096)
        self.windows_rows = 3
        windows = [protein(length, length) for length in (900, 250, 90)]
        self.windows = self.packed("windows", windows, 1024, "--long-policy", "window", "--max-residues", "100", "--overlap", "20")
        # One batch. Of the longest first, so that the calls of attention differ in that, too.
        self.peptides_rows = 70_000
        peptides = [protein(3 + seed % 5, seed) for seed in range(self.peptides_rows)]
        self.peptides = self.packed("peptides", peptides, 9 * self.peptides_rows)

        # Heads whose channels are no multiple of 8.
        self.relatives = {"ESMC": esmc(self.model, self.folder / "esmc"), "ESM-1b": esm_1b(self.model, self.folder / "esm-1b")}
        self.heads = {head_dim: with_heads(self.model, head_dim, self.folder / f"heads-of-{head_dim}") for head_dim in (10, 20)}

    def packed(self, name, proteins, budget, *options):
        if not isinstance(proteins, str):
            proteins = "".join(f">{name}{i}\n{sequence}\n" for i, sequence in enumerate(proteins))
        fasta, shards, batches = (self.folder / f"{name}{end}" for end in (".fasta", "-shards", ".arrow"))
        fasta.write_text(proteins, encoding="utf-8")
        self.run("fasta-shard", fasta, "--out", shards, "--shards", "1", "--force", *options)
        self.run("pack-batches", shards / "shard-00000.parquet", "--out", batches, "--max-batch-tokens", str(budget), "--force")
        return batches

    def run(self, program, *arguments):
        done = subprocess.run([self.options.programs / program, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{program} ended with {done.returncode}: {done.stderr.strip()}")


def with_heads(model, head_dim, folder):
    """A checkpoint in the shape of `model`, whose heads are of 16 channels. Its values do not matter."""
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    heads = config["num_attention_heads"]
    wide = heads * head_dim
    sizes = {config["hidden_size"]: wide, config["intermediate_size"]: 4 * wide}
    tensors = load_file(model / "model.safetensors")
    for name, tensor in tensors.items():
        shape = [head_dim // 2] if name.endswith("inv_freq") else [sizes.get(size, size) for size in tensor.shape]
        tensors[name] = np.resize(tensor, shape)
    config |= {"hidden_size": wide, "intermediate_size": 4 * wide}
    return saved(folder, config, tensors)


def esm_1b(model, folder):
    """A checkpoint in the shape of `model` whose positions are learned."""
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    config |= {"position_embedding_type": "absolute", "emb_layer_norm_before": True, "max_position_embeddings": 1026, "pad_token_id": 1}
    tensors = {name: tensor for name, tensor in load_file(model / "model.safetensors").items() if "inv_freq" not in name}
    width = config["hidden_size"]
    tensors["esm.embeddings.position_embeddings.weight"] = np.ones((1026, width), np.float32)
    for kind in ("weight", "bias"):
        tensors[f"esm.embeddings.layer_norm.{kind}"] = np.ones(width, np.float32)
    return saved(folder, config, tensors)


def esmc(model, folder):
    """A checkpoint in the shape of `model` with normalised queries and keys, a gate, and no biases. Its values do not matter."""
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    layers, width, inner = (config[key] for key in ("num_hidden_layers", "hidden_size", "intermediate_size"))
    shapes = {"esmc.embed_tokens.weight": (64, width), "esmc.norm.weight": (width,), "lm_head.dense.weight": (width, width)}
    shapes |= {"lm_head.decoder.weight": (64, width), "lm_head.decoder.bias": (64,), "lm_head.dense.bias": (width,)}
    shapes |= {f"lm_head.layer_norm.{kind}": (width,) for kind in ("weight", "bias")}
    for layer in range(layers):
        own = {f"{norm}.{kind}": (width,) for norm in ("input_layernorm", "post_attention_layernorm") for kind in ("weight", "bias")}
        own |= {f"self_attn.{part}_norm.weight": (width,) for part in "qk"}
        own |= {f"self_attn.{part}_proj.weight": (width, width) for part in "qkvo"}
        own |= {f"mlp.{part}_proj.weight": (inner, width) for part in ("gate", "up")}
        own["mlp.down_proj.weight"] = (width, inner)
        shapes |= {f"esmc.layers.{layer}.{name}": shape for name, shape in own.items()}
    kept = {key: config[key] for key in ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")}
    config = {"model_type": "esmc", "vocab_size": 64, "hidden_act": "silu", **kept}
    tensors = {name: np.full(shape, 0.01, np.float32) for name, shape in shapes.items()}
    return saved(folder, config, tensors)


def saved(folder, config, tensors):
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
