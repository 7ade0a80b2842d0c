"""The neighbours that query-embeddings finds are those of float64, by an implementation of its own."""

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from conftest import run


@pytest.mark.parametrize("column", ["mean_4", "bos_4"])
@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
def test_neighbours_are_those_of_float64(chain, tmp_path, metric, column):
    table = pq.read_table(chain.embeddings).to_pandas().sort_values(["ordinal", "start"])
    vectors = np.stack(table[column]).astype(np.float64)
    products = vectors @ vectors.T
    squares = np.diag(products)
    scores = {
        "cosine": products / np.sqrt(np.outer(squares, squares)),
        "dot": products,
        "euclidean": np.linalg.norm(vectors[:, None] - vectors, axis=2),
    }[metric]
    options = ["--metric", metric, "--column", column, "--top", 7]
    outputs = {}
    for name in "parquet", "tsv", "csv":
        outputs[name] = tmp_path / f"hits.{name}"
        written = ["--format", name, "--out", outputs[name]]
        run("query-embeddings", "neighbours", chain.embeddings, chain.embeddings, *options, *written)
    hits = pd.read_parquet(outputs["parquet"])
    texts = [pd.read_csv(outputs["tsv"], sep="\t"), pd.read_csv(outputs["csv"])]
    assert all(text.astype(hits.dtypes).equals(hits) for text in texts)

    # Windows of one record are one record.
    nearness = -scores if metric == "euclidean" else scores.copy()
    ordinals = table["ordinal"].to_numpy()
    nearness[np.equal.outer(ordinals, ordinals)] = -np.inf
    order = np.argsort(-nearness, axis=1, kind="stable")[:, :7]
    rows = np.repeat(np.arange(len(table)), 7)
    places = order.ravel()
    assert np.allclose(hits["score"], scores[rows, places], rtol=1e-12, atol=1e-12)
    for side, at in ("query", rows), ("target", places):
        assert hits[side].tolist() == table["id"].iloc[at].tolist()
        for key in "ordinal", "start":
            assert hits[f"{side}_{key}"].tolist() == table[key].iloc[at].tolist()
    assert hits["rank"].tolist() == list(range(1, 8)) * len(table)
