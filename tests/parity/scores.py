"""Compares the scores of gpu-embed with a plain loop over transformers: docs/internals/parity.md.

Wild-type marginals are those of whole proteins, masked ones those of their first residues, since each is a pass. Ends with 0 if all
log-probabilities are near and no bit depends on packing or threads, with 1 if not, and with 2 if a program failed.
"""

import argparse
import json
import os
import sys
from itertools import product
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import pyarrow.parquet as pq
import torch
import transformers
from safetensors.numpy import save_file

import checkpoint
import families
import proteins
import references
from configurations import CONFIGURATIONS
from programs import ProgramFailed, run

ROOT = Path(__file__).parents[2]
AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
TOKENS = [references.ALPHABET.get_idx(letter) for letter in AMINO_ACIDS]
MASK = references.ALPHABET.mask_idx
COLUMNS = ["log_probs", "log_likelihood"]
# Of a log-probability, in f32.
LIMIT = 1e-5
# Proteins, the longest of them, and their residues of which each is masked; of models that are wider than the first, fewer.
COUNT, WHOLE, MASKED = 50, 1022, 32
FEW, SHORT, ONLY = 10, 300, 8
BUDGETS, THREADS = (1024, 16384), (1, 2)


def log_probs(logits):
    """Of the twenty amino acids, by their logits alone."""
    return logits[..., TOKENS].double().log_softmax(-1)


@torch.no_grad()
def wild_type(model, tokens):
    return log_probs(model(tokens).logits[0, 1:-1])


@torch.no_grad()
def masked(model, tokens, at_once=16, residues=None):
    """Each residue, or the first ones, from the others, so many copies of the protein at a time."""
    found = []
    for some in torch.arange(1, tokens.shape[1] - 1)[:residues].split(at_once):
        copies, rows = tokens.repeat(len(some), 1), torch.arange(len(some))
        copies[rows, some] = MASK
        found.append(log_probs(model(copies).logits[rows, some]))
    return torch.cat(found)


WAYS = {"wild-type": wild_type, "masked": masked}


def likelihood(protein, scores):
    own = [scores[at, AMINO_ACIDS.index(letter)] for at, letter in enumerate(protein.sequence) if letter in AMINO_ACIDS]
    return np.mean(own) if own else None


class Values(checkpoint.Values):
    """Of tamer checkpoints, of which f32 knows log-probabilities to 1e-5.

    `<mask>` has no outlier channels, so that the gains which bring others back to one would decide its attention by the last bits of
    f32: transformers would differ from itself in f64 by 5e-4. Logits are a quarter: log-probabilities reach -8, and not -32.
    """

    def __init__(self, configuration):
        super().__init__(configuration)
        self.outliers = {}

    def norm(self, rng, parent, kind, shape):
        if parent == "lm_head.layer_norm":
            return super().norm(rng, parent, kind, shape) / 4
        return super().norm(rng, parent, kind, shape) if kind == "bias" else rng.uniform(0.7, 1.4, shape).astype(np.float32)


def make(configuration, parent):
    """The folder of the checkpoint."""
    folder, values = parent / "scores" / configuration.name, Values(configuration)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: values.of(name, shape) for name, shape in sorted(checkpoint.shapes(configuration).items())}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(families.settings(configuration)), encoding="utf-8")
    return folder


def packed(options, chosen, budget):
    """A batches file of the proteins."""
    folder = options.folder / "scores"
    folder.mkdir(parents=True, exist_ok=True)
    fasta, batches = folder / "proteins.fasta", folder / f"{budget}.arrow"
    proteins.write_fasta(chosen, fasta)
    run(options.programs / "fasta-shard", fasta, "--out", folder / "shards", "--shards", 1, "--max-residues", WHOLE, "--force")
    shard = folder / "shards/shard-00000.parquet"
    run(options.programs / "pack-batches", shard, "--out", batches, "--max-batch-tokens", budget, "--force")
    return batches


def embedded(options, batches, model, way, threads):
    """Id -> bytes and values of its scores."""
    out = batches.with_suffix(".parquet")
    embed = [batches, "--model", model, "--out", out, "--device", "cpu", "--dtype", "f32", "--threads", threads, "--force", "--scores", way]
    run(options.programs / "gpu-embed", *embed)
    table = pq.read_table(out)
    rows = zip(*(table[name].to_pylist() for name in ["id", *COLUMNS]), strict=True)
    return {name: (np.float32(scores), mean) for name, scores, mean in rows}


def compare(options, configuration, way):
    """The largest difference to transformers, and how many proteins have other bits in other batches or on other threads."""
    model = make(configuration, options.folder)
    is_first = configuration == CONFIGURATIONS[0]
    count, longest, residues = (COUNT, WHOLE, MASKED) if is_first else (FEW, SHORT, ONLY)
    chosen = proteins.choose(count - 1, longest)
    assert len(chosen) == count
    if way == "masked":
        chosen = [proteins.Protein(protein.accession, protein.sequence[:residues]) for protein in chosen]
    reference = references.plain(configuration, "f32")[0](model, "f32").model
    found = []
    for budget, threads in product(BUDGETS, THREADS):
        found.append(embedded(options, packed(options, chosen, budget), model, way, threads))
    largest = 0.0
    for protein in chosen:
        scores, mean = found[0][protein.accession]
        expected = WAYS[way](reference, references.tokens_of(protein)).numpy()
        assert scores.shape == expected.shape == (len(protein), len(AMINO_ACIDS))
        largest = max(largest, float(np.abs(scores - expected).max()))
        expected = likelihood(protein, expected)
        assert (mean is None) == (expected is None)
        largest = max(largest, abs(mean - expected) if mean is not None else 0.0)

    def bits(of):
        return [(of[protein.accession][0].tobytes(), of[protein.accession][1]) for protein in chosen]

    others = sum(one != other for more in found[1:] for one, other in zip(bits(found[0]), bits(more), strict=True))
    return len(chosen), largest, others


def main():
    parser = argparse.ArgumentParser(prog="scores", description=__doc__.splitlines()[0])
    names = {configuration.short_name: configuration for configuration in CONFIGURATIONS}
    parser.add_argument("--configurations", default="8M,1v,C600M", help=f"some of {','.join(names)}")
    parser.add_argument("--programs", type=Path, default=ROOT / "target/release")
    parser.add_argument("--folder", type=Path, default=ROOT / "target/parity")
    options = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    wrong = False
    print(f"{'model':7}{'scores':11}{'proteins':>9}{'largest difference':>20}{'with other bits':>17}")
    for name, way in product(options.configurations.split(","), WAYS):
        count, largest, others = compare(options, names[name], way)
        is_wrong = not largest <= LIMIT or others > 0
        verdict = f"; expected at most {LIMIT:.0e} and none" if is_wrong else ""
        print(f"{name:7}{way:11}{count:9}{largest:20.1e}{others:17}{verdict}", flush=True)
        wrong |= is_wrong
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ProgramFailed as failure:
        print(f"scores: {failure}", file=sys.stderr)
        sys.exit(2)
