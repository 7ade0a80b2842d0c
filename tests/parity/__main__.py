"""Compares gpu-embed with transformers, fair-esm and float64 for all six ESM-2: see docs/internals/parity.md.

Ends with 0 if every output is within the tolerance, with 1 if one is not, and with 2 if a program failed.
"""

import argparse
import os
import sys
import time
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers

import memory
import outputs
import report
import suite
from configurations import CONFIGURATIONS
from programs import ProgramFailed

ROOT = Path(__file__).parents[2]


def arguments():
    names = [configuration.short_name for configuration in CONFIGURATIONS]

    def some_of(choices):
        def parse(text):
            chosen = text.split(",")
            if unknown := set(chosen) - set(choices):
                raise argparse.ArgumentTypeError(f"{','.join(sorted(unknown))} is not among {','.join(choices)}")
            return [choice for choice in choices if choice in chosen]

        return parse

    parser = argparse.ArgumentParser(prog="parity", description=__doc__.splitlines()[0])
    parser.add_argument("--configurations", type=some_of(names), default=names, help=f"some of {','.join(names)}")
    dtypes = ["f32", "bf16", "f16", "int8", "fp8"]
    parser.add_argument("--dtypes", type=some_of(dtypes), default=dtypes, help=f"some of {','.join(dtypes)}")
    groups = outputs.GROUPS
    parser.add_argument("--outputs", type=some_of(groups), default=groups, help=f"some of {','.join(groups)}")
    kernels = "auto, portable, neon, neon_dot, neon_matrix, avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16, amx or libtorch"
    parser.add_argument("--kernels", default="auto", help=f"what computes the layers: {kernels} [default: auto]")
    programs = ROOT / "target/release"
    parser.add_argument("--programs", type=Path, default=programs, help="folder of fasta-shard and pack-batches")
    parser.add_argument("--gpu-embed", type=Path, help="the program to compare [default: PROGRAMS/gpu-embed]")
    parser.add_argument("--folder", type=Path, default=ROOT / "target/parity", help="for checkpoints and references")
    parser.add_argument("--work", type=Path, help="for what the programs write [default: FOLDER/work]")
    parser.add_argument("--report", type=Path, help="[default: FOLDER/report.json]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    options.gpu_embed = options.gpu_embed or options.programs / "gpu-embed"
    options.work = options.work or options.folder / "work"
    options.report = options.report or options.folder / "report.json"
    return options


def main():
    options = arguments()
    memory.keep()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    results, seconds = [], {}
    for configuration in CONFIGURATIONS:
        name = configuration.short_name
        if name in options.configurations:
            start = time.monotonic()
            found, seconds[name] = suite.run(configuration, options)
            results += found
            print(f"{name}: {time.monotonic() - start:.0f} s", file=sys.stderr)
    report.write(results, seconds, options.report)
    print(report.table(results))
    for line in (lines := report.offenders(results)):
        print(line)
    return 1 if lines else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ProgramFailed as failure:
        print(f"parity: {failure}", file=sys.stderr)
        sys.exit(2)
