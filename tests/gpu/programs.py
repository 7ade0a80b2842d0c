"""The programs, run as a user runs them, and what they say."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

TOLD = 4000


class Failed(Exception):
    """A program ended otherwise than it should have."""

    def __init__(self, what, stderr=""):
        super().__init__(what)
        self.stderr = stderr[-TOLD:]


class Programs:
    def __init__(self, folder, device, work, rejects=False):
        self.folder, self.device, self.work = Path(folder), device, work
        # Whether sequences may be rejected, as those are whose values mean nothing.
        self.rejects = rejects

    def command(self, name, *arguments):
        return [str(self.folder / name), *map(str, arguments)]

    def run(self, name, *arguments, codes=(0,), **environment):
        """Standard output and standard error of a program that must end with one of `codes`."""
        done = execute(self.command(name, *arguments), **environment)
        print(f"-- {name} {' '.join(map(str, arguments))}: {done.returncode}\n{done.stderr}", end="", file=sys.stderr, flush=True)
        if done.returncode not in codes:
            raise Failed(f"{name}: exit code {done.returncode}: {done.stderr.strip()[-300:]}", done.stderr)
        return done.stdout, done.stderr

    def pack(self, name, proteins, budget):
        """The batches file of some (id, sequence), whole."""
        fasta, batches = self.work / f"{name}.fasta", self.work / f"{name}-{budget}.arrow"
        shard = self.work / f"{name}-shards" / "shard-00000.parquet"
        if not shard.is_file():
            fasta.write_text("".join(f">{one}\n{sequence}\n" for one, sequence in proteins), encoding="utf-8")
            self.run("fasta-shard", fasta, "--out", shard.parent, "--shards", 1, "--max-residues", 100_000)
        self.run("pack-batches", shard, "--out", batches, "--max-batch-tokens", budget)
        return batches

    def embed_command(self, batches, model, out, *options, device=None):
        common = ["--model", model, "--out", out, "--device", device or self.device, "--progress", "none"]
        return self.command("gpu-embed", batches, *common, *options)

    def embed(self, batches, model, out, *options, device=None, codes=(0,), **environment):
        """Embeds and replaces an earlier output. Returns standard error."""
        command = self.embed_command(batches, model, out, "--force", *options, device=device)
        codes = (*codes, 1) if self.rejects else codes
        return self.run(*command_name(command), codes=codes, **environment)[1]

    def cosines(self, embeddings, reference):
        """Column -> the smallest cosine of its vectors with those of a reference; NaN where there is none."""
        options = ["--reference", reference, "--min-cosine", -1, "--report", "-"]
        report, said = self.run("validate-embeddings", embeddings, *options, codes=(0, 1))
        report = json.loads(report)
        check = next(check for check in report["checks"] if check["name"] == "reference")
        if (check["outcome"] != "pass" or not check["counts"]["compared"]) and not self.rejects:
            raise Failed(f"{embeddings} and {reference} cannot be compared: {check['summary']}", said)
        return {column["column"]: number(column["min_cosine"]) for column in report["agreement"]}


def number(value):
    return math.nan if value is None else value


def command_name(command):
    return [Path(command[0]).name, *command[1:]]


def execute(command, **environment):
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, errors="replace", check=False, env=os.environ | environment
    )


def events(path):
    """The first event, the batches and the end of the last run in a log."""
    lines = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    starts = [i for i, line in enumerate(lines) if line["type"] == "run"]
    run, *lines = lines[starts[-1] :]
    done = next(line for line in lines if line["type"] == "done")
    return run, [line for line in lines if line["type"] == "batch"], done | done["total"]
