"""How far outputs are from the truth, and how far they may be.

An output is an array of rows and channels (see outputs.py); all figures are in float64.

`l2` is the usual relative error, |found - truth| / |truth| in the Frobenius norm. Where outlier channels of 1e3 stand
beside ordinary ones of 1e1, it could stay small though all ordinary channels were wrong. So `channel_l2` divides each
channel by its own size first: the root mean square of the truth in that channel over all rows of all proteins.
`vector_l2` is that of the worst single row, so that one bad residue in a thousand is not averaged away.
"""

import math
from dataclasses import astuple, dataclass

import numpy as np

# Relative errors in float32 that need no excuse; the plain implementations stay below 2e-6.
ROUNDING = 1e-5
# How much larger than the plain implementation's an error may be.
FACTOR = {"f32": 2.0, "bf16": 2.0, "f16": 2.0, "int8": 1.0, "fp8": 1.25}
# That of int8 depends on the configuration.
POOLED_COSINE = {"f32": 0.9999999, "bf16": 0.9995}
# In float32, between gpu-embed's contact probabilities and fair-esm's.
CONTACTS = 1e-5
RELATIVE = ["l2", "channel_l2", "vector_l2"]


@dataclass(frozen=True)
class Figures:
    max_abs: float
    l2: float
    channel_l2: float
    vector_l2: float
    cosine: float  # the lowest of any row

    def worst(self, other):
        *errors, cosine = zip(astuple(self), astuple(other), strict=True)
        return Figures(*map(max, errors), min(cosine))


def scales(truths):
    """Output name -> the size of each channel, from the truth of every protein."""
    squares, rows = {}, {}
    for truth in truths:
        for name, values in truth.items():
            if name != "contacts":  # a matrix of one kind of value, different in size for each protein
                squares[name] = squares.get(name, 0) + np.square(values).sum(0)
                rows[name] = rows.get(name, 0) + len(values)
    return {name: np.sqrt(total / rows[name]) for name, total in squares.items()}


def figures(found, truth, scale):
    """Of one output of one protein; `scale` is one value for each channel, or 1."""
    if found.shape != truth.shape or not np.isfinite(found).all():
        return Figures(math.inf, math.inf, math.inf, math.inf, -1.0)
    error = found - truth
    norm = np.linalg.norm
    lengths = norm(found, axis=1) * norm(truth, axis=1)
    return Figures(
        max_abs=float(np.abs(error).max()),
        l2=float(norm(error) / norm(truth)),
        channel_l2=float(norm(error / scale) / norm(truth / scale)),
        vector_l2=float((norm(error / scale, axis=1) / norm(truth / scale, axis=1)).max()),
        cosine=float(((found * truth).sum(1) / np.where(lengths > 0, lengths, 1)).min()),
    )


def all_figures(found, truth, scale):
    """Output name -> figures; an output that is missing is infinitely wrong."""
    missing = np.array([[math.nan]])
    return {name: figures(found.get(name, missing), values, scale.get(name, 1.0)) for name, values in truth.items()}


def worst_of(by_protein):
    """Output name -> the worst of each figure over the proteins."""
    worst = {}
    for named in by_protein.values():
        for name, found in named.items():
            worst[name] = worst[name].worst(found) if name in worst else found
    return worst


def limits(dtype, plain):
    """Figure -> how large it may be, given the plain implementation's worst figures for the same output and type."""
    # The embedding of int8 is f32, and its residual stream.
    floor = ROUNDING if dtype in ("f32", "int8") else 0.0
    return {figure: max(floor, FACTOR[dtype] * getattr(plain, figure)) for figure in RELATIVE}


def lowest_cosine(dtype, name, of_int8):
    """What the cosine of a pooled vector must reach, or none."""
    lowest = of_int8 if dtype == "int8" else POOLED_COSINE.get(dtype)
    return lowest if name.split("_")[0] in ("mean", "max", "std", "bos") else None
