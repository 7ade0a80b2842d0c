"""Whether two programs have computed the same: a peer that computes something else is no peer."""

import math

# Lowest cosine of a mean vector, by type.
COSINES = {"f32": 0.9999, "bf16": 0.999, "int8": 0.98}


class Disagreement(Exception):
    """The vectors of a peer are not those of gpu-embed."""


def compare(ours, result, vectors):
    """The lowest cosine of any vector of a result with ours, which are in f32; both by accession."""
    name, least = f"{result.program} {result.dtype}", COSINES[result.dtype]
    if vectors.keys() != ours.keys():
        raise Disagreement(f"{name}: {len(vectors)} vectors; expected those of {len(ours)} proteins")
    lowest = 1.0
    for accession, vector in vectors.items():
        found = cosine(ours[accession], vector)
        if not found >= least:  # not a number, too
            raise Disagreement(f"{name}: cosine of {accession} {found:.6f}; expected at least {least}")
        lowest = min(lowest, found)
    return lowest


def cosine(one, other):
    return product(one, other) / math.sqrt(product(one, one) * product(other, other))


def product(one, other):
    return math.fsum(a * b for a, b in zip(one, other, strict=True))
