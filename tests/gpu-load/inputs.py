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
    folder.mkdir(exist_ok=True)
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    heads = config["num_attention_heads"]
    wide = heads * head_dim
    sizes = {config["hidden_size"]: wide, config["intermediate_size"]: 4 * wide}
    tensors = load_file(model / "model.safetensors")
    for name, tensor in tensors.items():
        shape = [head_dim // 2] if name.endswith("inv_freq") else [sizes.get(size, size) for size in tensor.shape]
        tensors[name] = np.resize(tensor, shape)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config |= {"hidden_size": wide, "intermediate_size": 4 * wide}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
