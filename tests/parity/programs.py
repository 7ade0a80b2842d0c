"""Runs fasta-shard, pack-batches and gpu-embed, and reads what they wrote."""

import subprocess

import numpy as np
import pyarrow.parquet as pq

import affordable
import outputs
import proteins

# All proteins of a configuration in one pack. Where positions ran on from one to the next, the angles of f32 would be
# exact up to 8,192 and show nothing.
TOKENS_OF_A_BATCH = 32768


class ProgramFailed(Exception):
    """A program did not end with 0; the message is what it said."""


def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProgramFailed(f"{program.name} ended with {done.returncode}: {done.stderr.strip()}")


class Embedder:
    """gpu-embed on some proteins, packed together as a user's would be."""

    def __init__(self, options, folder, budget=TOKENS_OF_A_BATCH):
        self.programs, self.gpu_embed, self.threads = options.programs, options.gpu_embed, options.threads
        self.kernels = options.kernels
        self.folder, self.budget = folder, budget

    def embed(self, chosen, checkpoint, layers, dtype, groups):
        """Yields each protein's accession and its outputs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fasta, shards = self.folder / "proteins.fasta", self.folder / f"shards-{dtype}"
        batches, out = self.folder / f"{dtype}.arrow", self.folder / f"{dtype}.parquet"
        proteins.write_fasta(chosen, fasta)
        fasta_shard = [fasta, "--out", shards, "--shards", 1, "--max-residues", 2000, "--force"]
        run(self.programs / "fasta-shard", *fasta_shard)
        pack = [shards / "shard-00000.parquet", "--out", batches, "--max-batch-tokens", self.budget, "--force"]
        run(self.programs / "pack-batches", *pack)
        embed = [batches, "--model", checkpoint, "--out", out, "--device", "cpu", "--threads", self.threads, "--force"]
        numbers = ",".join(map(str, range(layers + 1)))
        embed += ["--kernels", affordable.kernels(self.kernels, dtype), "--dtype", dtype, "--layers", numbers, "--pool", ",".join(outputs.POOLS)]
        embed += [f"--{group}" for group in groups if group != "pooled"]
        run(self.gpu_embed, *embed)
        yield from read(out)
        out.unlink()  # up to 1 GB


def read(path):
    """Yields id and outputs of each row of an embeddings file."""
    for batch in pq.ParquetFile(path).iter_batches(batch_size=1):
        (name,) = batch.column("id").to_pylist()
        named = {}
        for field, column in zip(batch.schema, batch.columns, strict=True):
            kind = field.name.split("_")[0]
            if kind in outputs.POOLS:
                named[field.name] = values(column)[None]
            elif kind in ("residues", "logits"):
                vectors = column.flatten()
                named[field.name] = values(vectors).reshape(len(vectors), -1)
            elif kind == "contacts":
                named[field.name] = values(column)[None]
        yield name, named


def values(column):
    return np.asarray(column.flatten(), np.float64)
