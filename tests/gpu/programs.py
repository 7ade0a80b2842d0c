"""The programs, run as a user runs them, and what they say."""

import json
import re
import subprocess
from pathlib import Path


SMALLEST = re.compile(r"smallest cosine (-?[\d.]+)")


class Failed(Exception):
    """A program ended otherwise than it should have."""


class Programs:
    def __init__(self, folder, device, work):
        self.folder, self.device, self.work = Path(folder), device, work

    def command(self, name, *arguments):
        return [str(self.folder / name), *map(str, arguments)]

    def run(self, name, *arguments, codes=(0,)):
        """Standard output and standard error of a program that must end with one of `codes`."""
        command = self.command(name, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in codes:
            raise Failed(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()[-600:]}")
        return done.stdout, done.stderr

    def pack(self, name, proteins, budget):
        """The batches file of some (id, sequence), whole."""
        fasta, batches = self.work / f"{name}.fasta", self.work / f"{name}.arrow"
        fasta.write_text("".join(f">{one}\n{sequence}\n" for one, sequence in proteins), encoding="utf-8")
        shards = self.work / f"{name}-shards"
        self.run("fasta-shard", fasta, "--out-dir", shards, "--shards", 1, "--max-residues", 100_000)
        shard = shards / "shard-00000.parquet"
        self.run("pack-batches", shard, "--out", batches, "--max-batch-tokens", budget, "--force")
        return batches

    def embed_command(self, batches, model, out, *options, device=None):
        device = device or self.device
        common = ["--model", model, "--out", out, "--device", device, "--progress", "none", "--force"]
        return self.command("gpu-embed", batches, *common, *options)

    def embed(self, batches, model, out, *options, device=None, codes=(0,)):
        command = self.embed_command(batches, model, out, *options, device=device)
        return self.run("gpu-embed", *command[1:], codes=codes)[1]

    def cosine(self, embeddings, reference):
        """The smallest cosine of any vector with that of a reference."""
        options = ["--reference", reference, "--min-cosine", -1, "--report", "-"]
        report, said = self.run("validate-embeddings", embeddings, *options)
        check = next(check for check in json.loads(report)["checks"] if check["name"] == "reference")
        if check["outcome"] != "pass" or not check["counts"]["compared"]:
            raise Failed(f"{embeddings} and {reference} cannot be compared: {said.strip()}")
        return float(SMALLEST.search(check["summary"])[1])


def events(path):
    """The batches and the end of the last run in a log."""
    lines = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    starts = [i for i, line in enumerate(lines) if line["type"] == "run"]
    lines = lines[starts[-1] :]
    return [line for line in lines if line["type"] == "batch"], next(line for line in lines if line["type"] == "done")
