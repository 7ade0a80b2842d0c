"""gpu-embed against what transformers and fair-esm make of the same weights: see test-data/README.md."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import MODEL, PROTEINS, ROOT, run
from safetensors.numpy import load_file

LAYERS = range(5)
# Relative to the median over channels of a layer's largest value: outlier channels would hide errors in all others.
TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    """accession -> column -> vector, for every layer and pooling, packed with other proteins."""
    folder = tmp_path_factory.mktemp("parity")
    run("fasta-shard", PROTEINS, "--out", folder, "--shards", 1)
    run("pack-batches", folder / "shard-00000.parquet", "--out", folder / "packed.arrow")
    layers = ",".join(map(str, LAYERS))
    out = folder / "embeddings.parquet"
    choice = ["--pool", "mean,max,std,bos", "--layers", layers]
    run("gpu-embed", folder / "packed.arrow", "--model", MODEL, "--device", "cpu", *choice, "--out", out)
    return {row["id"].split("|")[1]: row for row in pq.read_table(out).to_pylist()}


POOLS = {
    "mean": lambda layer: layer[1:-1].mean(0),
    "max": lambda layer: layer[1:-1].max(0),
    "std": lambda layer: layer[1:-1].std(0),
    "bos": lambda layer: layer[0],
}


@pytest.mark.parametrize("library", ["transformers", "fair-esm"])
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer(embedded, library, pool, layer):
    golden = load_file(ROOT / f"test-data/golden/{library}.safetensors")
    names = [name for name in golden if name.endswith(f"/layer_{layer}")]
    assert names
    for name in names:
        reference = golden[name].astype(np.float64)  # (tokens, d)
        expected = POOLS[pool](reference)
        found = np.array(embedded[name.split("/")[0]][f"{pool}_{layer}"])
        scale = np.median(np.abs(reference).max(0))
        assert np.abs(found - expected).max() <= TOLERANCE * scale
        cosine = found @ expected / np.linalg.norm(found) / np.linalg.norm(expected)
        assert cosine >= 0.999999
