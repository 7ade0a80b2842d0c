"""The table and report.json."""

import json
from dataclasses import asdict

import outputs
from compare import RELATIVE

TITLES = ["model", "layers", "proteins", "type", "output", "worst", "max abs", "L2", "channel L2", "vector L2"]
TITLES += ["transformers", "fair-esm", "limit", "1 - cosine", "verdict"]
LEGEND = """\
Errors against float64, of the worst protein; `worst` is the output that comes closest to its limit. transformers and
fair-esm: their channel L2 in the same type, to which the limit applies. A cosine is the lowest of any vector."""


def rows(result):
    for group in outputs.GROUPS:
        names = [name for name in result.limits if outputs.group(name) == group]
        if names:
            yield row(result, group, max(names, key=lambda name: nearness(result, name)))


def nearness(result, name):
    """How much of its limit the worst figure of an output takes."""
    ours = result.worst["plmkit"][name]
    return max(getattr(ours, figure) / result.limits[name][figure] for figure in RELATIVE)


def row(result, group, name):
    ours = result.worst["plmkit"][name]
    plain = [result.worst.get(library, {}).get(name) for library in ("transformers", "fair-esm")]
    failed = sum(outputs.group(offender.output) == group for offender in result.offenders)
    return [
        result.configuration,
        result.layers,
        str(len(result.proteins)),
        result.dtype,
        group,
        name,
        *(f"{value:.1e}" for value in (ours.max_abs, ours.l2, ours.channel_l2, ours.vector_l2)),
        *(f"{figures.channel_l2:.1e}" if figures else "–" for figures in plain),
        f"{result.limits[name]['channel_l2']:.1e}",
        f"{1 - ours.cosine:.1e}",
        f"FAILED {failed}" if failed else "ok",
    ]


def table(results):
    lines = [TITLES, *(line for result in results for line in rows(result))]
    widths = [max(len(line[i]) for line in lines) for i in range(len(TITLES))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([*text, "", LEGEND])


def offenders(results, most=20):
    found = [offender for result in results for offender in result.offenders]
    lines = [
        f"{offender.configuration} {offender.dtype} {offender.output} of {offender.protein}: {offender.figure} is "
        f"{offender.found:.9g}; expected at {'least' if offender.figure == 'cosine' else 'most'} {offender.limit:.9g}"
        for offender in sorted(found, key=excess, reverse=True)
    ]
    if len(lines) > most:
        lines[most:] = [f"and {len(lines) - most} more, all in report.json"]
    return lines


def excess(offender):
    return float("inf") if offender.figure == "cosine" else offender.found / offender.limit


def write(results, seconds, path):
    text = json.dumps(
        {"results": [asdict(result) for result in results], "seconds": seconds}, indent=1, allow_nan=True
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")
