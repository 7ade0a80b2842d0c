"""What a run found, for people to read."""

from itertools import groupby

import figures
from results import FLOOR

TITLES = ["program", "type", "case", "tokens/s", "best", "±", "seconds", "of floor", "x hugging-face", "batch"]
TITLES += ["cosine"]
WORDS = TITLES[:3]
LEGEND = """\
tokens/s: residues, <cls> and <eos>, never padding; the mean of all repeats and the best. seconds: of a repeat, least to
most. embed: without loading the model, int8 without its sample, and peers without tokenising; command: all of gpu-embed;
chain: all four programs. gemm-floor: what the matrix products alone would allow, with torch's GEMM. Ratios are of the
best on the same model and input: of floor to that of the same type, x hugging-face to its f32. batch: tokens of a peer's
batches with padding, as its calibration chose; 0 is one sequence at a time. cosine: the lowest of any mean vector with
plmkit's."""


def text(document):
    machine = document.machine
    lines = [f"{machine['cpu']} ({' '.join(machine['flags'])}), {machine['threads']} of {machine['cores']} cores"]
    lines += [" ".join(f"{name} {version}" for name, version in document.versions.items())]
    lines += [f"SKIPPED {line}" for line in document.skipped]
    for (model, name), group in groupby(document.results, lambda result: (result.model, result.input)):
        group = list(group)
        lines += ["", f"{model} {name}: {group[0].tokens:,.0f} tokens" if model else "files"]
        lines += aligned([TITLES, *(row(result, group) for result in group)])
    return "\n".join([*lines, "", LEGEND])


def row(result, group):
    spread = figures.spread(result.seconds)
    return [
        result.program,
        result.dtype,
        result.case,
        *(f"{rate:,.0f}" for rate in (result.mean, result.best)),
        f"{spread['stddev'] / spread['mean']:.1%}",
        f"{spread['min']:.3g} - {spread['max']:.3g}",
        ratio(result, group, FLOOR, result.dtype),
        ratio(result, group, "hugging-face", "f32"),
        "" if result.batch_tokens is None else str(result.batch_tokens),
        "" if result.cosine is None else f"{result.cosine:.6f}",
    ]


def ratio(result, group, program, dtype):
    """To the best of a program in a type, where it was measured."""
    others = [other for other in group if (other.program, other.dtype) == (program, dtype)]
    return f"{result.best / others[0].best:.2f}" if others else ""


def aligned(rows):
    """Text to the left, numbers to the right; columns that are empty but for their title are left out."""
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    padded = [[justified(cell, max(map(len, column)), column[0]) for cell in column] for column in columns]
    return ["  ".join(cells).rstrip() for cells in zip(*padded, strict=True)]


def justified(cell, width, title):
    return cell.ljust(width) if title in WORDS else cell.rjust(width)
