"""Folders of results: made by the programs, read into memory, and written again with other values under seals that fit."""

import os
import random
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[2]


def read_fasta(path):
    """Sequences."""
    blocks = Path(path).read_text(encoding="utf-8").split(">")[1:]
    return ["".join(block.split("\n")[1:]).replace(" ", "").upper() for block in blocks]


def pieces(records, lengths):
    """A piece of each length: each record gives one before any gives its second; no piece is of residues that another has."""
    used, queue, found = [0] * len(records), list(range(len(records))), []
    for length in lengths:
        record = next((record for record in queue if used[record] + length <= len(records[record])), None)
        if record is None:
            raise SystemExit("the FASTA has too few residues")
        queue.remove(record)
        queue.append(record)
        found.append(records[record][used[record] : used[record] + length])
        used[record] += length
    return found


def lengths(count, shortest, longest):
    rng = random.Random(count)
    return [rng.randrange(shortest, longest) for _ in range(count)]


@dataclass
class Programs:
    folder: Path
    reseal: Path
    threads: int

    def run(self, program, *arguments, codes=(0,)):
        done = subprocess.run([self.folder / program, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode not in codes:
            raise RuntimeError(f"{program}: {done.stderr.strip()}")

    def chain(self, folder, proteins, shard, embed, model):
        """A folder of results of `proteins`, (id, residues), as the workflows leave it, unless it is there."""
        if (folder / "complete").exists():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        for name in ["batches", "embeddings", "rejects"]:
            (folder / name).mkdir(parents=True)
        fasta = folder / "proteins.fasta"
        fasta.write_text("".join(f">{name}\n{residues}\n" for name, residues in proteins), encoding="utf-8")
        self.run("fasta-shard", fasta, "--out", folder / "shards", "--quiet", *shard.split())
        for path in sorted((folder / "shards").glob("shard-*.parquet")):
            batches = folder / "batches" / f"{path.stem}.arrow"
            self.run("pack-batches", path, "--out", batches, "--max-batch-tokens", 4096, "--quiet")
            files = ["--out", folder / "embeddings" / path.name, "--rejects", folder / "rejects" / f"{path.stem}.csv"]
            options = ["--model", model, "--device", "cpu", "--threads", self.threads, "--progress", "none", *embed.split()]
            self.run("gpu-embed", batches, *files, *options, codes=(0, 1))
        shutil.rmtree(folder / "batches")
        (folder / "complete").touch()
        return folder


class Set:
    """A folder of results in memory. `values` has for each computed column a list of arrays: (values) or (residues, values)."""

    def __init__(self, folder):
        self.folder = folder
        self.paths = sorted((folder / "embeddings").glob("*.parquet"))
        tables = [pq.read_table(path) for path in self.paths]
        names = tables[0].column_names
        self.columns = [name for name in names if name.split("_")[0] in ("mean", "max", "std", "bos", "residues", "logits", "contacts")]
        self.values = {column: [] for column in self.columns}
        self.keys, self.lengths, self.files = [], [], []
        for file, table in enumerate(tables):
            self.keys += zip(table["id"].to_pylist(), table["start"].to_pylist())
            self.lengths += table["length"].to_pylist()
            self.files += [file] * len(table)
            for column in self.columns:
                self.values[column] += arrays(table[column].combine_chunks())
        self.files = np.array(self.files)
        self.rows = {key: row for row, key in enumerate(self.keys)}

    def __len__(self):
        return len(self.keys)

    def column(self, name):
        return next(column for column in self.columns if column.split("_")[0] == name)

    def stacked(self, column, rows):
        return np.stack([self.values[column][row] for row in rows])

    def pooled(self):
        return [column for column in self.columns if column.split("_")[0] in ("mean", "max", "std", "bos")]

    def plant(self, programs, to, changed):
        """Writes the folder anew, with `changed`, {row: {column: values}}."""
        shutil.rmtree(to, ignore_errors=True)
        for name in ["shards", "rejects", "embeddings"]:
            (to / name).mkdir(parents=True)
            for path in (self.folder / name).iterdir():
                os.link(path, to / name / path.name)
        commands = []
        for file in sorted({self.files[row] for row in changed}):
            rows = np.flatnonzero(self.files == file)
            flat = [
                np.asarray(changed.get(row, {}).get(column, self.values[column][row]), "<f4").ravel() for column in self.columns for row in rows
            ]
            target = to / "embeddings" / self.paths[file].name
            target.unlink()
            np.concatenate(flat).tofile(to / f"{file}.f32")
            commands += [self.paths[file], to / f"{file}.f32", target]
        subprocess.run([programs.reseal, *commands], check=True)


def arrays(column):
    """The values of each row; lists of vectors, of a fixed width, have a row for each vector."""
    if hasattr(column.type, "list_size"):
        return list(column.flatten().to_numpy().reshape(len(column), -1))
    offsets = column.offsets.to_numpy() - column.offsets[0].as_py()
    values = column.flatten()
    if hasattr(column.type.value_type, "list_size"):
        values = values.flatten().to_numpy().reshape(len(values), -1)
        return [values[begin:end] for begin, end in zip(offsets, offsets[1:])]
    maps = [values.to_numpy()[begin:end] for begin, end in zip(offsets, offsets[1:])]
    return [flat.reshape(round(len(flat) ** 0.5), -1) for flat in maps]
