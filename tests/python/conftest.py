"""One run of the chain on the test data, shared by all tests."""

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(os.environ.get("PLMKIT_PROGRAMS", ROOT / "target/release"))
PROTEINS = ROOT / "test-data/proteins.fasta"
MODEL = ROOT / "test-data/model-tiny"


def pytest_configure(config):
    # A shell has its background jobs ignore SIGINT, and Python and its children leave it so.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "elsewhere: needs the packages of an environment beside that of the readers")


def run(program, *arguments):
    """Runs one of the programs; a failure shows what it said."""
    done = subprocess.run([PROGRAMS / program, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


@dataclass
class Chain:
    shards: list[Path]
    rejects: Path
    batches: list[Path]
    embeddings: Path


@pytest.fixture(scope="session")
def chain(tmp_path_factory):
    """Two shards with windows of long proteins, packed, and embedded into one file with two columns of vectors."""
    folder = tmp_path_factory.mktemp("chain")
    run("fasta-shard", PROTEINS, "--out", folder, "--shards", 2, "--long-policy", "window")
    shards = sorted(folder.glob("shard-*.parquet"))
    batches = [shard.with_suffix(".arrow") for shard in shards]
    for shard, packed in zip(shards, batches, strict=True):
        run("pack-batches", shard, "--out", packed, "--max-batch-tokens", 4096)
    embeddings = folder / "embeddings.parquet"
    embed = ["--model", MODEL, "--device", "cpu", "--pool", "mean,bos", "--layers", "last"]
    run("gpu-embed", *batches, *embed, "--out", embeddings)
    return Chain(shards, folder / "rejects.csv", batches, embeddings)
