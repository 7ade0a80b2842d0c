"""plmkit as it is used: each program a command of its own, timed from outside."""

import json
import shutil
import subprocess
import time

import pyarrow.parquet as pq

import inputs
from parity import proteins
from results import Result

USAGE = 2  # exit code


class ProgramFailed(Exception):
    """A program did not end with 0; the message is what it said."""


class Refused(ProgramFailed):
    """A program does not know what it was asked for."""


def timed(program, *arguments):
    """The seconds that a command took."""
    start = time.perf_counter()
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        said = done.stderr.strip()
        if done.returncode == USAGE:
            raise Refused(f"{program.name} says {said.splitlines()[0]}")
        raise ProgramFailed(f"{program.name} ended with {done.returncode}: {said}")
    return seconds


class Chain:
    """The four programs on one FASTA file, in a folder of their own; each step starts without its output."""

    def __init__(self, chosen, folder, options, threads=None):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder, self.programs, self.kernels = folder, options.programs, options.kernels
        self.threads = threads or options.threads
        self.fasta, self.shards, self.shard = folder / "proteins.fasta", folder / "shards", "shard-00000.parquet"
        self.batches, self.embeddings = folder / "batches.arrow", folder / "embeddings.parquet"
        self.events = folder / "events.jsonl"
        proteins.write_fasta(chosen, self.fasta)

    def run(self, program, *arguments):
        return timed(self.programs / program, *arguments)

    def fasta_shard(self):
        shutil.rmtree(self.shards, ignore_errors=True)
        return self.run("fasta-shard", self.fasta, "--out", self.shards, "--shards", 1, "--threads", self.threads)

    def pack_batches(self):
        self.batches.unlink(missing_ok=True)
        return self.run("pack-batches", self.shards / self.shard, "--out", self.batches)

    def gpu_embed(self, model, *arguments):
        for old in self.embeddings, self.events:
            old.unlink(missing_ok=True)
        given = [self.batches, "--model", model, "--out", self.embeddings, "--events", self.events]
        on = ["--device", "cpu", "--threads", self.threads, "--kernels", self.kernels]
        return self.run("gpu-embed", *given, *on, *arguments)

    def validate_embeddings(self):
        given = ["--shards", self.shards / self.shard, "--rejects", self.shards / "rejects.csv"]
        return self.run("validate-embeddings", self.embeddings, *given, "--manifest", self.shards / "manifest.json")

    def done(self):
        """What gpu-embed says of its run: the event at its end."""
        event = json.loads(self.events.read_text(encoding="utf-8").splitlines()[-1])
        assert event["type"] == "done", event
        return event | event["total"]

    def vectors(self):
        """Accession -> mean vector."""
        table = pq.read_table(self.embeddings)
        (column,) = (name for name in table.column_names if name.startswith("mean_"))
        return dict(zip(table["id"].to_pylist(), table[column].to_pylist(), strict=True))


class Ours:
    """The chain in one type, with one unmeasured run behind it."""

    def __init__(self, dtype, subject, options):
        self.dtype, self.model = dtype, subject.checkpoint
        self.chain = Chain(subject.proteins, options.folder / "work" / dtype, options)
        cases = ["embed", "command", "chain"]
        self.results = [Result(case, "plmkit", 0, dtype, subject.model, subject.input) for case in cases]
        self.versions = {}
        self.steps()
        self.vectors = self.chain.vectors()

    def steps(self):
        """Seconds of the four programs."""
        embed = self.chain.gpu_embed
        first = [self.chain.fasta_shard(), self.chain.pack_batches()]
        return [*first, embed(self.model, "--dtype", self.dtype), self.chain.validate_embeddings()]

    def once(self):
        steps = self.steps()
        done = self.chain.done()
        for result, seconds in zip(self.results, [done["elapsed_s"], steps[2], sum(steps)], strict=True):
            result.tokens = done["tokens"]
            result.seconds.append(seconds)

    def close(self):
        shutil.rmtree(self.chain.folder)


class Files:
    """The programs that compute nothing, on files like those of real runs."""

    RECORDS = 20000
    # Many short sequences and the vectors of a tiny model, five layers and four poolings: 1,280 values in a row, as the
    # mean of 650M has, and soon computed. On one thread, because there is too little in it for two.
    RESIDUES = 10
    COLUMNS = "--layers", "all", "--pool", "mean,max,std,bos"

    def __init__(self, model, options):
        work = options.folder / "work"
        long, short = inputs.natural(self.RECORDS), inputs.pieces(inputs.every(), self.RESIDUES)
        self.long = Chain(long, work / "long", options)
        self.short = Chain(short, work / "short", options, threads=1)
        self.short.fasta_shard()
        self.short.pack_batches()
        self.short.gpu_embed(model, *self.COLUMNS)
        self.steps = [
            (Result("shard", "plmkit", inputs.tokens(long)), self.long.fasta_shard),
            (Result("pack", "plmkit", inputs.tokens(long)), self.long.pack_batches),
            (Result("validate", "plmkit", inputs.tokens(short)), self.short.validate_embeddings),
        ]
        self.versions = {}
        self.results = [result for result, _ in self.steps]
        for _, step in self.steps:
            step()

    def once(self):
        for result, step in self.steps:
            result.seconds.append(step())

    def close(self):
        shutil.rmtree(self.long.folder)
        shutil.rmtree(self.short.folder)
