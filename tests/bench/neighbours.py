"""Measures `query-embeddings neighbours` beside faiss' IndexFlatIP and numpy, in turns, from embeddings files to a table of hits.

Each reads the same files, compares each query with each target by cosine, and writes the ten nearest. The product alone is
that of plmkit's kernels. Ends with 1 if a hit of plmkit is not among those of float64.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import machine
from sharding import measured

ROOT = Path(__file__).parents[2]
TOP = 10
# Queries whose hits are compared with those of float64.
JUDGED = 300
# What is asked of the medians of the ratios of each round.
GOALS = {"wall": 1.0, "peak MiB": 0.3}


def batches(folder):
    """The ids of some rows, and their vectors with norm 1, in float32."""
    for batch in ds.dataset(folder / "embeddings").to_batches(columns=["id", "mean_33"], batch_size=8192):
        if len(batch):
            vectors = batch["mean_33"].flatten().to_numpy().reshape(len(batch), -1)
            yield batch["id"], vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def read(folder):
    rows = ds.dataset(folder / "embeddings").count_rows()
    ids, matrix, at = [], None, 0
    for some, vectors in batches(folder):
        if matrix is None:
            matrix = np.empty((rows, vectors.shape[1]), np.float32)
        matrix[at : at + len(some)] = vectors
        ids.append(some)
        at += len(some)
    return pa.chunked_array(ids), matrix


def write(queries, targets, scores, places, out):
    found = {"query": queries.take(np.repeat(np.arange(len(queries)), TOP)), "target": targets.take(places.ravel())}
    pq.write_table(pa.table(found | {"rank": np.tile(np.arange(1, TOP + 1), len(queries)), "score": scores.ravel()}), out)


def by_faiss(queries, targets, threads):
    import faiss

    faiss.omp_set_num_threads(threads)
    ids, vectors = read(queries)
    others, index = [], faiss.IndexFlatIP(vectors.shape[1])
    for some, block in batches(targets):
        index.add(block)
        others.append(some)
    start = time.perf_counter()
    scores, places = index.search(vectors, TOP)
    print(f"search alone {time.perf_counter() - start:.2f}")
    return ids, pa.chunked_array(others), scores, places


def by_numpy(queries, targets, threads):
    (ids, vectors), (others, matrix) = read(queries), read(targets)
    start, found = time.perf_counter(), []
    for at in range(0, len(vectors), 256):
        scores = vectors[at : at + 256] @ matrix.T
        places = np.argpartition(scores, -TOP, axis=1)[:, -TOP:]
        best = np.take_along_axis(scores, places, axis=1)
        order = np.argsort(-best, axis=1)
        found.append((np.take_along_axis(best, order, axis=1), np.take_along_axis(places, order, axis=1)))
    print(f"search alone {time.perf_counter() - start:.2f}")
    return ids, others, *(np.concatenate(parts) for parts in zip(*found, strict=True))


PEERS = {"faiss": by_faiss, "numpy": by_numpy}


def recall(hits, queries, targets):
    """The share of the nearest of float64 that are among the hits, of every n-th query. Equally near ones count alike."""
    names = {name: row for row, name in enumerate(read(targets)[0].to_pylist())}
    ids, vectors = exact(queries)
    step = max(1, len(ids) // JUDGED)
    table = pq.read_table(hits, columns=["query", "target"]).to_pandas().groupby("query", sort=False)["target"].agg(list)
    scores = vectors[::step] @ exact(targets)[1].T
    least = np.sort(scores, axis=1)[:, -TOP]
    right = 0
    for row, name in enumerate(ids[::step]):
        found = {names[target] for target in table[name]}
        right += sum(scores[row, place] >= least[row] for place in found)
    return right / (TOP * len(scores))


def exact(folder):
    table = ds.dataset(folder / "embeddings").to_table(columns=["id", "mean_33"])
    vectors = table["mean_33"].combine_chunks().flatten().to_numpy().reshape(len(table), -1).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return table["id"].to_pylist(), vectors


def make(options):
    """The two datasets, unless they are there."""
    made = []
    for rows, first in [(options.queries, 0), (options.targets, 100_000_000)]:
        folder = options.folder / f"{rows}-{options.dim}-{first}"
        if not folder.exists():
            subprocess.run([options.programs / "examples/synthetic", *map(str, [rows, options.dim, first, 4]), folder], check=True)
        made.append(folder)
    return made


def main():
    parser = argparse.ArgumentParser(prog="neighbours", description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--targets", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=1280)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="of all [default: 2]")
    parser.add_argument("--peers", default=",".join(PEERS), metavar="NAMES", help="[default: %(default)s]")
    parser.add_argument("--programs", type=Path, default=ROOT / "target/release")
    parser.add_argument("--folder", type=Path, default=ROOT / "target/bench/neighbours", help="for vectors and hits")
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    queries, targets = make(options)
    if options.peer:
        found = PEERS[options.peer](queries, targets, options.threads)
        out = options.folder / "out"
        out.mkdir(exist_ok=True)
        write(*found, out / f"{options.peer}.parquet")
        return
    out = options.folder / "out"
    contestants = {
        "plmkit": [options.programs / "query-embeddings", "neighbours", queries, targets, "--threads", options.threads],
    }
    contestants["plmkit"] += ["--top", TOP, "--out", options.folder / "hits.parquet", "--force"]
    limits = ["env", *(f"{name}_NUM_THREADS={options.threads}" for name in ("OMP", "OPENBLAS"))]
    for peer in filter(None, options.peers.split(",")):
        contestants[peer] = [*limits, sys.executable, *sys.argv, "--peer", peer]
    product = [options.programs / "examples/product", options.queries, options.targets, options.dim, options.threads]
    runs = {name: [] for name in [*contestants, "product alone"]}
    for _ in range(options.repeats):
        for name, command in contestants.items():
            runs[name].append(measured(command, out))
        runs["product alone"].append(measured(product, out))
    described = machine.describe(options.threads)
    print(f"{described['cpu']}, {described['cores']} cores; {options.queries:,} against {options.targets:,} of {options.dim}")
    for name, found in runs.items():
        print(f"{name:16}", *(f"{what} {median(run[what] for run in found):8.2f}" for what in found[0]), sep="  ")
    for name in [*contestants][1:]:
        for what, goal in GOALS.items():
            ratios = [mine[what] / its[what] for mine, its in zip(runs["plmkit"], runs[name], strict=True)]
            print(f"{what:9} / {name:14} {median(ratios):5.2f} ({min(ratios):.2f} to {max(ratios):.2f}), goal beside faiss {goal:.2f}")
    share = recall(options.folder / "hits.parquet", queries, targets)
    print(f"recall {share:.6f}")
    if share < 1:
        sys.exit("neighbours: plmkit misses neighbours")


if __name__ == "__main__":
    main()
