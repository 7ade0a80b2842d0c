"""Measures fasta-shard beside `seqkit split2`, in turns: see docs/internals/performance.md.

Both divide the same proteins into as many files, of plain text and of gzip. fasta-shard also checks every record, digests
every sequence and writes compressed Parquet with checksums. Ends with 1 if the shards depend on the number of threads.
"""

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from statistics import median

import figures
import machine

ROOT = Path(__file__).parents[2]
EXAMPLES = Path("/usr/share/doc/mmseqs2/example-data/DB.fasta.gz")
# What is asked of the medians of the ratios of each round.
GOALS = {"plain / seqkit": 2.5, "gzip / seqkit": 0.4, "plain, 2 threads / 1": 1 / 1.7}


def records(text):
    """Header and sequence of each record of FASTA text."""
    for record in text.split("\n>"):
        header, _, lines = record.removeprefix(">").partition("\n")
        yield header, lines.replace("\n", "")


def copies(found, count):
    """The records so many times, with ids of their own, as FASTA on lines of 60."""
    number = 0
    for _ in range(count):
        for header, sequence in found:
            lines = "\n".join(sequence[at : at + 60] for at in range(0, len(sequence), 60))
            yield f">P{number:08d}|{header}\n{lines}\n"
            number += 1


def write_inputs(source, count, folder):
    """The inputs, plain and gzip, unless they are there."""
    plain, packed = folder / f"proteins-{count}.fasta", folder / f"proteins-{count}.fasta.gz"
    if not packed.exists():
        opened = gzip.open(source, "rt") if source.suffix == ".gz" else source.open(encoding="utf-8")
        with opened as file:
            found = [(header, sequence) for header, sequence in records(file.read()) if sequence]
        text = copies(found, count)
        with plain.open("w", encoding="utf-8") as file:
            while some := "".join(islice(text, 10000)):
                file.write(some)
        with packed.with_suffix(".part").open("wb") as file:
            subprocess.run(["gzip", "-c", plain], stdout=file, check=True)
        packed.with_suffix(".part").rename(packed)
    return {"plain": plain, "gzip": packed}


def measured(command, folder):
    """Wall and CPU seconds, and peak memory in MiB, of a command that writes to an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    os.sync()
    start = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command[0]} ended with {process.returncode}: {said.decode()}")
    return {"wall": wall, "cpu": used.ru_utime + used.ru_stime, "peak MiB": used.ru_maxrss / 1024}


def shards(folder):
    """The digests of the shards."""
    files = sorted(folder.glob("*.parquet"))
    return subprocess.run(["sha256sum", *files], capture_output=True, check=True).stdout


def main():
    parser = argparse.ArgumentParser(prog="sharding", description=__doc__.splitlines()[0])
    parser.add_argument("--fasta", type=Path, default=EXAMPLES, metavar="FILE", help="the proteins [default: %(default)s]")
    parser.add_argument("--copies", type=int, default=60, help="how often they come [default: 60, 1.2 M records]")
    parser.add_argument("--files", type=int, default=8, help="shards [default: 8]")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2, help="of both programs [default: 2]")
    parser.add_argument("--seqkit", default="seqkit", metavar="PROGRAM")
    parser.add_argument("--program", type=Path, default=ROOT / "target/release/fasta-shard")
    parser.add_argument("--folder", type=Path, default=ROOT / "target/bench/sharding", help="for inputs and outputs")
    parser.add_argument("--output", type=Path, metavar="FILE", help="all measurements as JSON")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    inputs = write_inputs(options.fasta, options.copies, options.folder)
    out = options.folder / "out"

    def ours(given, threads):
        known = ["--shards", options.files, "--threads", threads, "--invalid", "x"]
        return [options.program, given, "--out", out, *known]

    def seqkit(given):
        return [options.seqkit, "split2", "--by-part", options.files, "--threads", options.threads, "-O", out, given]

    contestants = {}
    for kind, given in inputs.items():
        contestants |= {
            f"fasta-shard {kind}, {options.threads} threads": ours(given, options.threads),
            f"seqkit {kind}, {options.threads} threads": seqkit(given),
            f"fasta-shard {kind}, 1 thread": ours(given, 1),
        }
    runs, made = {name: [] for name in contestants}, set()
    for _ in range(options.repeats):
        for name, command in contestants.items():
            runs[name].append(measured(command, out))
            if name.startswith("fasta-shard"):
                made.add(shards(out))
    shutil.rmtree(out)

    described = machine.describe(options.threads)
    print(f"{described['cpu']}, {described['cores']} cores; {inputs['plain'].stat().st_size / 1e6:,.0f} MB of plain text")
    for name, found in runs.items():
        cells = [f"{what} {median(run[what] for run in found):8.2f}" for what in found[0]]
        wall = figures.spread([run["wall"] for run in found])
        print(f"{name:32}", *cells, f"(wall {wall['min']:.2f} to {wall['max']:.2f})", sep="  ")
    many, peer, one = (list(runs)[at::3] for at in range(3))
    pairs = {"plain / seqkit": (many[0], peer[0]), "gzip / seqkit": (many[1], peer[1])}
    pairs["plain, 2 threads / 1"] = many[0], one[0]
    for name, (ours, other) in pairs.items():
        ratios = [mine["wall"] / its["wall"] for mine, its in zip(runs[ours], runs[other], strict=True)]
        print(f"{name:32}  {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), goal {GOALS[name]:.2f}")
    if options.output:
        options.output.write_text(json.dumps({"machine": described, "runs": runs}, indent=1) + "\n", encoding="utf-8")
    if len(made) > 1:
        sys.exit("sharding: the shards depend on the number of threads")


if __name__ == "__main__":
    main()
