"""Computes the same proteins in different batches, and says how far their vectors are apart.

Alone, packed for several budgets, from a shuffled file, with one thread and with two: see docs/internals/parity.md. Ends with 0
if all are as near as their type allows, with 1 if some are not, and with 2 if a program failed.
"""

import argparse
import os
import random
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np

import affordable
import checkpoint
import proteins
from configurations import CONFIGURATIONS
from programs import Embedder, ProgramFailed

ROOT = Path(__file__).parents[2]
# Largest |difference| / |vector| of a protein's or a residue's vector. In f32 and int8, not one bit.
LIMITS = {"f32": 0.0, "bf16": 2e-2, "f16": 2e-3, "int8": 0.0}
# Name, token budget (below the shortest protein: each is alone), threads, and whether the file is shuffled.
ALONE = ("alone", 1, 1, False)
COMPOSITIONS = [
    ("alone, 2 threads", 1, 2, False),
    ("1,024 tokens", 1024, 1, False),
    ("4,096 tokens", 4096, 1, False),
    ("4,096 tokens, 2 threads", 4096, 2, False),
    ("4,096 tokens, shuffled", 4096, 1, True),
    ("32,768 tokens", 32768, 1, False),
]


def embedded(options, configuration, chosen, dtype, composition):
    """Accession -> output -> vectors."""
    _, budget, options.threads, shuffled = composition
    if shuffled:
        chosen = random.Random(1).sample(chosen, len(chosen))
    embedder = Embedder(options, options.folder / "batch_invariance", budget)
    folder = checkpoint.make(configuration, options.folder)
    found = embedder.embed(chosen, folder, configuration.layers, dtype, ["pooled", "residues"])
    return dict(found)


def apart(one, other):
    """Values that differ, all values, and the largest relative difference of a vector."""
    differ, values, largest = 0, 0, 0.0
    assert one.keys() == other.keys()
    for accession, named in one.items():
        for name, vectors in named.items():
            difference = vectors - other[accession][name]
            differ += int(np.count_nonzero(difference))
            values += difference.size
            norms = np.linalg.norm(vectors, axis=1)
            relative = np.linalg.norm(difference, axis=1) / np.where(norms > 0, norms, 1)
            largest = max(largest, float(relative.max()))
    return differ, values, largest


def main():
    parser = argparse.ArgumentParser(prog="batch_invariance", description=__doc__.splitlines()[0])
    names = [configuration.short_name for configuration in CONFIGURATIONS]
    parser.add_argument("--configuration", choices=names, default=names[0])
    parser.add_argument("--dtypes", default=",".join(LIMITS), help=f"some of {','.join(LIMITS)}")
    parser.add_argument("--kernels", default="auto", help="what computes the layers: see gpu-embed [default: auto]")
    parser.add_argument("--programs", type=Path, default=ROOT / "target/release")
    parser.add_argument("--gpu-embed", type=Path, help="another gpu-embed than that of --programs")
    parser.add_argument("--folder", type=Path, default=ROOT / "target/parity")
    options = parser.parse_args()
    options.gpu_embed = options.gpu_embed or options.programs / "gpu-embed"
    configuration = CONFIGURATIONS[names.index(options.configuration)]
    far = False
    print(f"{'type':6}{'proteins':>9}  {'against alone':26}{'values that differ':>24}  largest relative difference")
    for dtype in options.dtypes.split(","):
        chosen = proteins.choose(configuration.proteins, configuration.longest)
        chosen = affordable.choose(chosen, configuration, dtype)
        alone = embedded(options, configuration, chosen, dtype, ALONE)
        for composition in COMPOSITIONS:
            differ, values, largest = apart(alone, embedded(options, configuration, chosen, dtype, composition))
            far |= not largest <= LIMITS[dtype]
            verdict = "" if largest <= LIMITS[dtype] else f"; expected at most {LIMITS[dtype]:.1e}"
            count = f"{differ:,} of {values:,}"
            print(f"{dtype:6}{len(chosen):9}  {composition[0]:26}{count:>24}  {largest:.1e}{verdict}", flush=True)
    return 1 if far else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ProgramFailed as failure:
        print(f"batch_invariance: {failure}", file=sys.stderr)
        sys.exit(2)
