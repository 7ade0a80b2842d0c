"""Measures plmkit beside its peers, in the same run and in turns: see docs/internals/performance.md.

Ends with 0, with 1 if `--baseline` finds something slower, and with 2 if a program failed or a peer computes something
else.
"""

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import agreement
import baseline
import chain
import machine
import rounds
import table
import workers
from inputs import INPUTS
from results import Document

ROOT = Path(__file__).parents[2]
DTYPES = ["f32", "bf16", "int8"]
PEERS = [peer.name for peer in workers.PEERS]
CASES = ["files", "embed"]


@dataclass(frozen=True)
class Plan:
    """How much of a model is measured unless the options say otherwise: some 20 to 40 s a repeat on two cores."""

    tokens: int
    repeats: int
    inputs: tuple


PLANS = {
    "8M": Plan(40000, 5, ("natural", "fragments")),
    "35M": Plan(25000, 5, ("natural", "fragments")),
    "150M": Plan(10000, 5, ("natural", "fragments")),
    "650M": Plan(3000, 3, ("natural",)),
    "C300M": Plan(6000, 5, ("natural", "fragments")),
    "C600M": Plan(3000, 3, ("natural", "fragments")),
}
DEFAULT_MODELS = ["150M", "650M", "C300M", "C600M"]
# --quick
QUICK_TOKENS, QUICK_REPEATS = 0.2, 2
FILE_REPEATS = 20


def arguments():
    def some_of(choices):
        def parse(text):
            chosen = text.split(",")
            if unknown := set(chosen) - {*choices, "none"}:
                raise argparse.ArgumentTypeError(f"{','.join(sorted(unknown))} is not among {','.join(choices)}")
            return [choice for choice in choices if choice in chosen]

        return parse

    parser = argparse.ArgumentParser(prog="bench", description=__doc__.splitlines()[0])

    def choice(name, choices, default, says=""):
        says = f"some of {','.join(choices)}{says}"
        parser.add_argument(name, type=some_of(choices), default=default, metavar="NAMES", help=says)

    def defaults(what):
        return ", ".join(f"{model} {getattr(plan, what)}" for model, plan in PLANS.items())

    choice("--cases", CASES, CASES)
    choice("--models", list(PLANS), DEFAULT_MODELS, f" [default: {','.join(DEFAULT_MODELS)}]")
    choice("--inputs", list(INPUTS), None, " [default: both; of 650M natural]")
    choice("--peers", PEERS, PEERS, ", or none [default: all]")
    choice("--dtypes", DTYPES, DTYPES, ", and f32 always: its vectors are the measure of all others")
    parser.add_argument(
        "--kernels",
        choices=["auto", *machine.LIMITS],
        default="auto",
        help="kernels of plmkit; its peers are kept to the same instructions [default: auto, which is all of this CPU]",
    )
    parser.add_argument("--tokens", type=int, help="tokens of a repeat, roughly [default: " + defaults("tokens") + "]")
    parser.add_argument("--repeats", type=int, help="[default: " + defaults("repeats") + "]")
    parser.add_argument("--quick", action="store_true", help="a look, no figure to quote: a fifth of the tokens, two repeats")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="[default: all cores]")
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="results of an earlier run to compare with")
    parser.add_argument("--output", type=Path, default=ROOT / "target/bench/results.json", metavar="FILE")
    parser.add_argument("--folder", type=Path, default=ROOT / "target/bench", help="for models and what programs write")
    parser.add_argument("--programs", type=Path, default=ROOT / "target/release", help="folder of the programs")
    parser.add_argument("--environments", type=Path, default=ROOT / ".venv", help="folder of the peers' Pythons")
    options = parser.parse_args()
    options.dtypes = [dtype for dtype in DTYPES if dtype in ("f32", *options.dtypes)]
    return options


def subjects(options):
    """Model, input, tokens and repeats of what gpu-embed is measured on."""
    for model in options.models:
        plan = PLANS[model]
        tokens, repeats = plan.tokens, plan.repeats
        if options.quick:
            tokens, repeats = round(tokens * QUICK_TOKENS), QUICK_REPEATS
        for name in options.inputs or plan.inputs:
            yield model, name, options.tokens or tokens, options.repeats or repeats


def first_line(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.splitlines()[0]


def shown(options):
    """What results depend on: all options but paths."""
    return {name: value for name, value in vars(options).items() if not isinstance(value, Path)}


def new_document(options):
    plmkit = first_line(options.programs / "gpu-embed", "--version").split()[-1]
    return Document(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine.describe(options.threads),
        options=shown(options),
        versions={"plmkit": plmkit, "commit": first_line("git", "describe", "--always", "--dirty")},
    )


def main():
    options = arguments()
    machine.limit(options.kernels)
    earlier = options.baseline and Document.read(options.baseline)
    document = new_document(options)
    if "files" in options.cases:
        rounds.files(ROOT / "test-data/model-tiny", FILE_REPEATS, options, document)
        document.write(options.output)
    if "embed" in options.cases:
        for model, name, tokens, repeats in subjects(options):
            subject = rounds.Subject.make(model, name, tokens, options.folder)
            rounds.embed(subject, repeats, options, document)
            document.write(options.output)
    print(table.text(document))
    print(options.output)
    return baseline.report(document, earlier) if earlier else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (baseline.Incomparable, chain.ProgramFailed, agreement.Disagreement, workers.PeerFailed) as failure:
        print(f"bench: {failure}", file=sys.stderr)
        sys.exit(2)
