"""Measures `gpu-embed --scores masked` of one protein beside a loop over transformers at its best batch size, in turns, in f32.

Neither pays for loading the model. Ends with 1 if log-probabilities of the first residues differ from those of transformers in float64
by more than 1e-5, and by more than those of transformers in f32 do.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import pyarrow.parquet as pq
import torch
import transformers

import machine
import models

sys.path.append(str(Path(__file__).parents[1] / "parity"))
import proteins
import references
from scores import masked

ROOT = Path(__file__).parents[2]
SIZES = [1, 2, 4, 8, 16, 32, 64]
# Residues on which each size is tried, and which are computed in float64.
TRIED = 64
LIMIT = 1e-5


def plmkit(options, batches, model):
    """Seconds of the run, by the clock and of the CPU, and the log-probabilities."""
    out, events = options.folder / "scores.parquet", options.folder / "events.jsonl"
    events.unlink(missing_ok=True)
    command = [options.programs / "gpu-embed", batches, "--model", model, "--out", out, "--device", "cpu", "--dtype", "f32", "--force"]
    command += ["--scores", "masked", "--threads", options.threads, "--events", events]
    before = os.times()
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    done = json.loads(events.read_text(encoding="utf-8").splitlines()[-1])
    return done["elapsed_s"], cpu, np.float32(pq.read_table(out)["log_probs"].to_pylist()[0])


def loop(model, tokens, at_once, residues=None):
    start, cpu = time.monotonic(), time.process_time()
    found = masked(model, tokens, at_once, residues)
    return time.monotonic() - start, time.process_time() - cpu, found.numpy()


def main():
    parser = argparse.ArgumentParser(prog="masked_scores", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="35M", choices=list(models.NAMES))
    parser.add_argument("--residues", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--programs", type=Path, default=ROOT / "target/release")
    parser.add_argument("--folder", type=Path, default=ROOT / "target/bench")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model = models.make(options.model, options.folder)
    protein = next(protein for protein in proteins.read() if len(protein) >= options.residues)
    protein = proteins.Protein(protein.accession, protein.sequence[: options.residues])
    fasta, batches = options.folder / "scored.fasta", options.folder / "scored.arrow"
    proteins.write_fasta([protein], fasta)
    for command in [
        ["fasta-shard", fasta, "--out", options.folder / "scored", "--shards", "1", "--force"],
        ["pack-batches", options.folder / "scored/shard-00000.parquet", "--out", batches, "--force"],
    ]:
        subprocess.run([options.programs / command[0], *command[1:]], check=True, capture_output=True)
    peer = transformers.EsmForMaskedLM.from_pretrained(model, attn_implementation="sdpa", dtype=torch.float32).eval()
    tokens = references.tokens_of(protein)
    tried = {size: loop(peer, tokens, size, TRIED) for size in SIZES}
    best = min(SIZES, key=lambda size: tried[size][0])
    own, others = [], []
    for _ in range(options.repeats):
        own.append(plmkit(options, batches, model))
        others.append(loop(peer, tokens, best))
    described = machine.describe(options.threads)
    print(f"{described['cpu']}, {described['cores']} cores; {options.model}, {options.residues} residues, {options.threads} threads")
    for name, runs in [("plmkit", own), (f"transformers, {best} at once", others)]:
        seconds, cpu = ([run[at] for run in runs] for at in (0, 1))
        print(f"{name:28} median {median(seconds):.1f} s ({min(seconds):.1f} to {max(seconds):.1f}), {median(cpu):.1f} s of the CPU")
    ratios = [mine[0] / its[0] for mine, its in zip(own, others, strict=True)]
    print(f"plmkit / transformers {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    exact = loop(peer.double(), tokens, 4, TRIED)[2]
    apart, theirs = (float(np.abs(runs[0][2][:TRIED] - exact).max()) for runs in (own, others))
    print(f"largest difference from float64: plmkit {apart:.1e}, transformers {theirs:.1e}")
    return 1 if apart > max(LIMIT, theirs) else 0


if __name__ == "__main__":
    sys.exit(main())
