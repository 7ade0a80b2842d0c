"""What is planted.

A fault changes values only. `change(set, rows, rng)` gives the new values of `rows`, {row: {column: values}}; a row that it leaves
out cannot be changed so.
"""

import random
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import Callable

import numpy as np

from models import Model, mistakes, to_bf16
from sets import Set, lengths, pieces

# Residues of the set `mean` are cut here.
CUT = 120


@dataclass
class Fault:
    group: str
    name: str
    set: Set
    change: Callable
    # Rows that it takes at least.
    least: int = 1


def vectors(change):
    """Changes all pooled vectors: `change` takes (rows, channels) and a generator of random numbers."""

    def apply(found, rows, rng):
        new = {column: change(found.stacked(column, rows).copy(), rng) for column in found.pooled()}
        return {row: {column: new[column][place] for column in new} for place, row in enumerate(rows)}

    return apply


def one_value(change):
    def apply(found, _):
        found[:, 7] = change(found[:, 7])
        return found

    return vectors(apply)


def column(name, change):
    """Changes one column: `change` takes the set and a row."""

    def apply(found, rows, _):
        new = {row: change(found, row) for row in rows}
        return {row: {found.column(name): values} for row, values in new.items() if values is not None}

    return apply


def rows_of(source):
    """Takes the vectors of other rows: `source` takes the set and a row."""

    def apply(found, rows, _):
        new = {row: source(found, row) for row in rows}
        return {row: {name: found.values[name][other] for name in found.columns} for row, other in new.items() if other is not None}

    return apply


def permuted(order):
    """Takes the vectors of others of the changed rows, in the order of `order`, which takes their numbers."""

    def apply(found, rows, _):
        others = np.array(rows)[order(np.arange(len(rows)))]
        return {row: {name: found.values[name][other] for name in found.columns} for row, other in zip(rows, others)}

    return apply


def of_set(make):
    """Takes the vectors of the same row of another set, which is made when it is needed."""

    def source(found, row):
        other = make()
        return other.values[other.column("mean")][other.rows[found.keys[row]]]

    return column("mean", source)


class Bench:
    """The sets of a model. They are kept in `folder`."""

    def __init__(self, programs, records, model, folder):
        self.programs, self.records, self.model, self.folder = programs, records, model, folder
        self.sets = {}

    def recipe(self, name):
        """Proteins, and the options of fasta-shard and of gpu-embed."""
        if name == "full":
            rng = random.Random(1)
            few = pieces(self.records, [rng.choice([24, 36, 48]) for _ in range(36)])
            return numbered(few), "--shards 3", "--residues --logits --contacts"
        if name == "windows":
            long = pieces(self.records, lengths(120, 60, 260))
            return numbered(long), "--shards 3 --long-policy window --max-residues 100 --overlap 40", "--pool mean"
        if name == "copies":
            once = numbered(pieces(self.records, lengths(60, 30, 120)))
            return [(f"{id}{copy}", residues) for id, residues in once for copy in "ab"], "--shards 3", "--pool mean"
        pools = {"mean": "--pool mean", "pools": "--pool mean,max,std,bos"}[name]
        return numbered(pieces(self.records, lengths(360, 30, 200))), f"--shards 3 --max-residues {CUT}", pools

    def embedded(self, set, name="honest", change=lambda residues: residues, shard=None, embed=None, model=None):
        """The proteins of a set, changed, cut or embedded in another way."""
        folder = self.folder / f"{set}, {name}"
        if folder in self.sets:
            return self.sets[folder]
        proteins, own_shard, own_embed = self.recipe(set)
        proteins = [(id, change(residues)) for id, residues in proteins]
        self.programs.chain(folder, proteins, shard or own_shard, embed or own_embed, model or self.model)
        return self.sets.setdefault(folder, Set(folder))

    def other(self, name, **options):
        """The vectors of the set `mean` computed in another way."""
        return of_set(lambda: self.embedded("mean", name, **({"shard": f"--shards 1 --max-residues {CUT}"} | options)))


def numbered(sequences):
    return [(f"p{number}", residues) for number, residues in enumerate(sequences)]


def all_faults(bench, other_model, only):
    found = []

    def add(group, set, changes, least=1):
        found.extend(Fault(group, name, set, change, least) for name, change in changes.items() if re.search(only, f"{group}: {name}"))

    mean = bench.embedded("mean")
    add("values", mean, VALUES)
    add("order", mean, ROW_ORDERS, least=2)
    add("order", mean, CHANNEL_ORDERS)
    add("computing", mean, computing(bench, mean, other_model))
    add("types", mean, types(bench))
    add("keys", mean, keys(bench))
    add("truncation", mean, truncation(bench))

    def residues():
        return bench.embedded("mean", "residues", shard=f"--shards 1 --max-residues {CUT}", embed="--residues --pool bos")

    add("pooling, mean alone", mean, {name: pooled("mean", residues, POOLS[name]) for name in POOLS})
    add("pooling, four columns", bench.embedded("pools"), {
        name: pooled(target, residues, pool) for name, (target, pool) in (FOUR | {name: ("mean", pool) for name, pool in POOLS.items()}).items()
    })
    full = bench.embedded("full")
    add("residues", full, RESIDUES)
    add("logits", full, LOGITS)
    add("contacts", full, CONTACTS)
    windows(bench, add)
    add("equal sequences", bench.embedded("copies"), COPIES)
    return found


def noise(share):
    def apply(found, rng):
        size = np.linalg.norm(found, axis=1, keepdims=True) / np.sqrt(found.shape[1])
        return found + np.float32(share) * size * rng.standard_normal(found.shape, np.float32)

    return vectors(apply)


VALUES = {
    "times 10": vectors(lambda found, _: found * 10),
    "times 1.01": vectors(lambda found, _: found * np.float32(1.01)),
    "sign": vectors(lambda found, _: -found),
    "one channel zero": one_value(lambda values: values * 0),
    "one channel's sign": one_value(lambda values: -values),
    "one channel's lowest bit of the exponent": one_value(lambda values: (values.view(np.uint32) ^ (1 << 23)).view(np.float32)),
    "noise of 0.01 of the norm": noise(1e-2),
    "noise of 0.001 of the norm": noise(1e-3),
    "one NaN": one_value(lambda _: np.nan),
    "one infinity": one_value(lambda _: np.inf),
    "one 3e38": one_value(lambda _: 3e38),
    "all zero": vectors(lambda found, _: found * 0),
    "last half zero": vectors(lambda found, _: found * (np.arange(found.shape[1]) < found.shape[1] // 2)),
    "norm 1": vectors(lambda found, _: found / np.linalg.norm(found, axis=1, keepdims=True)),
    "rounded to f16": vectors(lambda found, _: found.astype(np.float16).astype(np.float32)),
    "rounded to bf16": vectors(lambda found, _: to_bf16(found)),
    "bytes swapped": vectors(lambda found, _: found.byteswap()),
}
ROW_ORDERS = {
    "rows exchanged": permuted(lambda rows: np.minimum(rows ^ 1, len(rows) - 1)),
    "rows shifted by one": permuted(lambda rows: np.roll(rows, 1)),
    "rows reversed": permuted(lambda rows: rows[::-1]),
}
CHANNEL_ORDERS = {
    "channels permuted": vectors(lambda found, _: found[:, np.random.default_rng(1).permutation(found.shape[1])]),
    "channels rotated by one": vectors(lambda found, _: np.roll(found, 1, axis=1)),
    "halves of channels exchanged": vectors(lambda found, _: np.roll(found, found.shape[1] // 2, axis=1)),
    "two channels exchanged": vectors(lambda found, _: found[:, [*range(8), 9, 8, *range(10, found.shape[1])]]),
}


def computing(bench, mean, other_model):
    """Vectors of wrong models: of numpy, and of gpu-embed with another checkpoint or layer."""
    model = Model(bench.model)
    sequences = {id: residues[:CUT] for id, residues in bench.recipe("mean")[0]}

    def computed(name, options):
        @cache
        def means():
            file = bench.folder / f"{name}.npz"
            if not file.exists():
                np.savez(file, **{id: model.mean(residues, **options) for id, residues in sequences.items()})
            return dict(np.load(file))

        return column("mean", lambda found, row: means()[found.keys[row][0]])

    changes = {name: computed(name, options) for name, options in mistakes(model.layers, model.width // model.heads).items()}
    wrong = {"checkpoint of another seed": {"model": other_model, "embed": f"--layers {model.layers} --pool mean"}}
    wrong |= {f"layer {layer}": {"embed": f"--layers {layer} --pool mean"} for layer in (0, model.layers - 1)}
    return changes | {name: bench.other(name, **options) for name, options in wrong.items()}


def honest_numpy(bench):
    """How far numpy's right model is from gpu-embed, as a share of the norm."""
    mean, model = bench.embedded("mean"), Model(bench.model)
    sequences = dict(bench.recipe("mean")[0])
    found = mean.stacked(mean.column("mean"), range(20))
    again = np.stack([model.mean(sequences[id][:CUT]) for id, _ in mean.keys[:20]])
    return float(np.median(np.linalg.norm(found - again, axis=1) / np.linalg.norm(found, axis=1)))


def types(bench):
    options = {"int8": "--dtype int8", "bf16": "--dtype bf16 --kernels libtorch"}
    return {f"{name} under the name of f32": bench.other(name, embed=f"--pool mean {option}") for name, option in options.items()}


def keys(bench):
    def replaced(by):
        return lambda residues: (cut := residues[:CUT])[: len(cut) // 2] + by + cut[len(cut) // 2 + 1 :]

    changed = {
        "reversed sequence": lambda residues: residues[:CUT][::-1],
        "sequence with X for a residue": replaced("X"),
        "sequence with A for a residue": replaced("A"),
        "sequence without its first ten residues": lambda residues: residues[10:][:CUT],
        "sequence with its first residue changed to M": lambda residues: "M" + residues[1:CUT],
    }
    changes = {name: bench.other(name, change=change, shard="--shards 1") for name, change in changed.items()}
    return {"another protein": rows_of(lambda found, row: (row + len(found) // 2 + 3) % len(found))} | changes


def truncation(bench):
    changed = {
        "nine tenths of the sequence": lambda residues: residues[: len(residues[:CUT]) * 9 // 10],
        "all residues, for the first 120": lambda residues: residues,
        "the last 120 residues, for the first": lambda residues: residues[-CUT:],
        "without the last residue": lambda residues: residues[: len(residues[:CUT]) - 1],
    }
    return {name: bench.other(name, change=change, shard="--shards 1") for name, change in changed.items()}


def pooled(target, make, pool):
    """`pool` takes <cls>, (channels), and the residues, (residues, channels)."""

    def value(found, row):
        source = make()
        row = source.rows[found.keys[row]]
        cls, residues = (source.values[source.column(name)][row].astype(np.float64) for name in ("bos", "residues"))
        return pool(cls, residues).astype(np.float32)

    return column(target, value)


POOLS = {
    "mean with <cls>": lambda cls, residues: np.vstack([cls, residues]).mean(axis=0),
    "mean without the last residue": lambda _, residues: residues[:-1].mean(axis=0),
    "mean without the first residue": lambda _, residues: residues[1:].mean(axis=0),
    "sum for mean": lambda _, residues: residues.sum(axis=0),
    "sum over the number of tokens": lambda _, residues: residues.sum(axis=0) / (len(residues) + 2),
    "bos for mean": lambda cls, _: cls,
    "max for mean": lambda _, residues: residues.max(axis=0),
    "median for mean": lambda _, residues: np.median(residues, axis=0),
}
FOUR = {
    "mean for max": ("max", lambda _, residues: residues.mean(axis=0)),
    "max over <cls>, too": ("max", lambda cls, residues: np.vstack([cls, residues]).max(axis=0)),
    "max without the last residue": ("max", lambda _, residues: residues[:-1].max(axis=0)),
    "variance for std": ("std", lambda _, residues: residues.var(axis=0)),
    "std of a sample": ("std", lambda _, residues: residues.std(axis=0, ddof=1)),
    "first residue for bos": ("bos", lambda _, residues: residues[0]),
    "mean for bos": ("bos", lambda _, residues: residues.mean(axis=0)),
}


def each(name, change):
    """Changes the array of a row: (residues, values) of residues and logits, (residues, residues) of contacts."""
    return column(name, lambda found, row: change(found.values[found.column(name)][row].copy()))


def same_length(name):
    def other(found, row):
        rows = [other for other in range(len(found)) if other != row and found.lengths[other] == found.lengths[row]]
        return found.values[found.column(name)][rows[row % len(rows)]] if rows else None

    return column(name, other)


def lost(residues):
    return np.vstack([residues[1:], residues[-1:]])


def with_mean(found, rows, _):
    residues, mean = found.column("residues"), found.column("mean")
    new = {row: lost(found.values[residues][row]) for row in rows}
    return {row: {residues: values, mean: values.mean(axis=0)} for row, values in new.items()}


def sparse(symmetric):
    def change(contacts):
        zero = np.random.default_rng(len(contacts)).random(contacts.shape) < 0.3
        return np.where(np.triu(zero) | np.triu(zero).T if symmetric else zero, 0, contacts)

    return each("contacts", change)


def uneven(contacts):
    return np.clip(contacts + 0.01 * np.random.default_rng(len(contacts)).standard_normal(contacts.shape), 0, 1)


def softmax(logits):
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


RESIDUES = {
    "transposed": each("residues", lambda residues: residues.T.reshape(residues.shape)),
    "the first lost, shifted by one": each("residues", lost),
    "the last lost, shifted by one": each("residues", lambda residues: np.vstack([residues[:1], residues[:-1]])),
    "channels rotated by one": each("residues", lambda residues: np.roll(residues, 1, axis=1)),
    "reversed": each("residues", lambda residues: residues[::-1]),
    "another protein of the same length": same_length("residues"),
    "the first lost, with the mean of these": with_mean,
    "two residues exchanged": each("residues", lambda residues: residues[[1, 0, *range(2, len(residues))]]),
}
LOGITS = {
    "two columns exchanged": each("logits", lambda logits: logits[:, [*range(5), 6, 5, *range(7, 33)]]),
    "plus 1": each("logits", lambda logits: logits + 1),
    "after softmax": each("logits", softmax),
    "the first lost, shifted by one": each("logits", lost),
    "another protein of the same length": same_length("logits"),
    "times 1.01": each("logits", lambda logits: logits * np.float32(1.01)),
}
CONTACTS = {
    "only the upper half": each("contacts", np.triu),
    "30 % zero": sparse(symmetric=False),
    "30 % zero, symmetric": sparse(symmetric=True),
    "noise of 0.01, not symmetric": each("contacts", uneven),
    "all 0.5": each("contacts", lambda contacts: contacts * 0 + np.float32(0.5)),
    "all 0": each("contacts", lambda contacts: contacts * 0),
    "rows shifted by one": each("contacts", lambda contacts: np.roll(contacts, 1, axis=0)),
    "residues shifted by one": each("contacts", lambda contacts: np.roll(contacts, (1, 1), axis=(0, 1))),
    "before the sigmoid": each("contacts", lambda contacts: np.log(contacts / (1 - contacts))),
    "another protein of the same length": same_length("contacts"),
}


def windows(bench, add):
    stitched, separate = bench.embedded("windows"), bench.embedded("windows", "separate", embed="--pool mean --windows separate")
    parts = defaultdict(list)
    for row, (id, _) in sorted(enumerate(separate.keys), key=lambda item: item[1][1]):
        parts[id].append(row)

    def of_parts(combine):
        def value(found, row):
            rows = parts[found.keys[row][0]]
            return combine(separate.stacked(separate.column("mean"), rows)) if len(rows) > 1 else None

        return column("mean", value)

    whole = bench.embedded("windows", "whole", shard="--shards 1")
    at_once = column("mean", lambda found, row: whole.values[whole.column("mean")][whole.rows[found.keys[row]]])
    add("windows", stitched, {
        "unweighted mean of windows": of_parts(lambda found: found.mean(axis=0)),
        "the last window left out": of_parts(lambda found: found[:-1].mean(axis=0)),
        "the first window alone": of_parts(lambda found: found[0]),
        "the whole protein at once": at_once,
    })

    def neighbour(found, row):
        rows = parts[found.keys[row][0]]
        return rows[rows.index(row) - 1] if len(rows) > 1 else None

    add("windows", separate, {"windows of a protein exchanged, separate": rows_of(neighbour)})


def copies(change):
    """Changes the second copy."""
    return column("mean", lambda found, row: change(found, row) if found.keys[row][0].endswith("b") else None)


def lowest_bit(found, row):
    vector = found.values[found.column("mean")][row].copy()
    vector[7] = (vector[7:8].view(np.uint32) ^ 1).view(np.float32)[0]
    return vector


def both_of_a_pair(found, row):
    number = int(found.keys[row][0][1:-1])
    return found.rows[f"p{number // 2 * 2}a", 0]


COPIES = {
    "a copy times 1.01": copies(lambda found, row: found.values[found.column("mean")][row] * np.float32(1.01)),
    "a copy's last bit": copies(lowest_bit),
    "a copy with the vector of another protein": copies(lambda found, row: found.values[found.column("mean")][(row + 5) % len(found)]),
    "two proteins with the same vector": rows_of(both_of_a_pair),
}
