"""Every file opens in pyarrow, polars, DuckDB and pandas, and all of them read the same values."""

import json

import duckdb
import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest
from conftest import MODEL, run

KEY = {
    "ordinal": pa.int64(),
    "id": pa.string(),
    "start": pa.uint32(),
    "length": pa.uint32(),
    "truncated": pa.bool_(),
    "sequence_digest": pa.string(),
}
SHARD = {
    "ordinal": pa.int64(),
    "id": pa.string(),
    "description": pa.string(),
    "sequence": pa.string(),
    "length": pa.uint32(),
    "start": pa.uint32(),
    "truncated": pa.bool_(),
    "sequence_digest": pa.string(),
}


def columns(schema):
    return {field.name: field.type for field in schema}


def rows(table):
    """The rows of a pyarrow table as tuples, in order of the key."""
    lists = [column.to_pylist() for column in table.columns]
    names = table.column_names
    key = [names.index("ordinal"), names.index("start")]
    return sorted(zip(*lists, strict=True), key=lambda row: [row[i] for i in key])


def same(found, expected):
    """Compares rows of any reader with those of pyarrow; some give vectors as arrays or tuples."""

    def plain(value):
        return list(value) if isinstance(value, (list, tuple, np.ndarray)) else value

    assert len(found) == len(expected) > 0
    for left, right in zip(found, expected, strict=True):
        assert [plain(value) for value in left] == [plain(value) for value in right]


def read_parquet(paths):
    """The same files, as one table, in every reader but pyarrow."""
    paths = [str(path) for path in paths]
    yield "polars", pl.read_parquet(paths).sort("ordinal", "start").rows()
    yield "duckdb", duckdb.read_parquet(paths).order("ordinal, start").fetchall()
    frame = pd.concat(pd.read_parquet(path) for path in paths).sort_values(["ordinal", "start"])
    frame = frame.astype(object).where(frame.notna(), None)
    yield "pandas", list(frame.itertuples(index=False, name=None))


def test_shards(chain):
    table = pa.concat_tables(pq.read_table(path) for path in chain.shards)
    assert columns(table.schema) == SHARD
    assert [field.name for field in table.schema if field.nullable] == ["description"]
    for _reader, found in read_parquet(chain.shards):
        same(found, rows(table))


def test_embeddings(chain):
    table = pq.read_table(chain.embeddings)
    vector = pa.list_(pa.field("item", pa.float32(), nullable=False), 64)
    windows = {"n_windows": pa.uint32()}
    assert columns(table.schema) == KEY | windows | {"mean_4": vector, "bos_4": vector}
    assert not any(field.nullable for field in table.schema)
    for _reader, found in read_parquet([chain.embeddings]):
        same(found, rows(table))
    shards = pa.concat_tables(pq.read_table(path) for path in chain.shards)
    assert sum(table["n_windows"].to_pylist()) == shards.num_rows > table.num_rows


def test_embeddings_of_separate_windows(chain, tmp_path):
    out = tmp_path / "separate.parquet"
    run("gpu-embed", *chain.batches, "--model", MODEL, "--device", "cpu", "--windows", "separate", "--out", out)
    table = pq.read_table(out)
    vector = pa.list_(pa.field("item", pa.float32(), nullable=False), 64)
    assert columns(table.schema) == KEY | {"mean_4": vector}
    for _reader, found in read_parquet([out]):
        same(found, rows(table))


def test_half_precision_embeddings(chain, tmp_path):
    out = tmp_path / "half.parquet"
    run("gpu-embed", chain.batches[0], "--model", MODEL, "--device", "cpu", "--store-dtype", "f16", "--out", out)
    table = pq.read_table(out)
    assert table.schema.field("mean_4").type.value_type == pa.float16()
    for _reader, found in read_parquet([out]):
        same(found, rows(table))


def test_batches(chain):
    for path in chain.batches:
        with ipc.open_file(path) as file:
            table = file.read_all()
        tokens = pa.list_(pa.field("item", pa.uint8(), nullable=False))
        assert columns(table.schema) == KEY | {"tokens": tokens}
        assert not any(field.nullable for field in table.schema)
        same(pl.read_ipc(path).sort("ordinal", "start").rows(), rows(table))
        # DuckDB has no reader of its own for Arrow files and takes them through pyarrow.
        same(duckdb.from_arrow(table).order("ordinal, start").fetchall(), rows(table))
        same(list(table.to_pandas().sort_values(["ordinal", "start"]).itertuples(index=False, name=None)), rows(table))


@pytest.mark.parametrize("tool", ["pyarrow", "polars", "duckdb"])
def test_parts_read_as_one_table(chain, tool):
    pattern = str(chain.shards[0].parent / "shard-*.parquet")
    expected = sum(pq.read_metadata(path).num_rows for path in chain.shards)
    count = {
        "pyarrow": lambda: pq.ParquetDataset([str(path) for path in chain.shards]).read().num_rows,
        "polars": lambda: pl.scan_parquet(pattern).select(pl.len()).collect().item(),
        "duckdb": lambda: duckdb.sql(f"SELECT count(*) FROM '{pattern}'").fetchall()[0][0],
    }
    assert count[tool]() == expected


def test_an_id_is_looked_up_without_its_file(chain):
    """Row groups that do not hold an id are passed over by a filter, and others by the range of their ordinals."""
    probe = "SELECT bloom_filter_excludes FROM parquet_bloom_probe(?, 'id', ?)"
    names = pq.read_table(chain.embeddings, columns=["id"])["id"].to_pylist()

    def excluded(name):
        return [row[0] for row in duckdb.execute(probe, [str(chain.embeddings), name]).fetchall()]

    for name in names:
        assert not all(excluded(name)), name
    strangers = [excluded(f"{name}-none") for name in names]
    assert sum(all(row) for row in strangers) > 0.9 * len(strangers)
    metadata = pq.read_metadata(chain.embeddings)
    for group in range(metadata.num_row_groups):
        assert metadata.row_group(group).column(0).statistics.has_min_max


def test_exports_have_the_vectors_of_the_file(chain, tmp_path):
    """In the order of the input, whatever the order of the batches files was."""
    table = pq.read_table(chain.embeddings).sort_by([("ordinal", "ascending"), ("start", "ascending")])
    ids = table["id"].to_pylist()
    [mean, bos] = [np.stack(table[name].to_numpy()) for name in ("mean_4", "bos_4")]
    for out, *options in (
        ("mean.npy", "--format", "npy", "--columns", "mean_4"),
        ("half.npy", "--format", "npy", "--columns", "mean_4", "--dtype", "f16"),
        ("all.h5", "--format", "hdf5"),
        ("each.h5", "--format", "hdf5", "--per-protein", "--columns", "bos_4"),
        ("table.h5ad", "--format", "h5ad", "--columns", "bos_4"),
    ):
        run("validate-embeddings", "export", chain.embeddings, *options, "--out", tmp_path / out)
    assert np.array_equal(np.load(tmp_path / "mean.npy"), mean)
    assert np.array_equal(np.load(tmp_path / "half.npy"), mean.astype(np.float16))
    assert (tmp_path / "mean.ids.txt").read_text(encoding="utf-8").splitlines() == ids
    with h5py.File(tmp_path / "all.h5") as file:
        assert sorted(file) == ["bos_4", "ids", "mean_4"]
        assert np.array_equal(file["mean_4"][:], mean)
        assert np.array_equal(file["bos_4"][:], bos)
        assert file["ids"].asstr()[:].tolist() == ids
    with h5py.File(tmp_path / "each.h5") as file:
        assert sorted(file) == sorted(ids)
        assert all(np.array_equal(file[name][:], vector) for name, vector in zip(ids, bos, strict=True))
    with h5py.File(tmp_path / "table.h5ad") as file:
        assert np.array_equal(file["X"][:], bos)
        for name in file["obs"].attrs["column-order"]:
            column = file["obs"][name]
            values = column.asstr()[:] if h5py.check_string_dtype(column.dtype) else column[:]
            assert values.tolist() == table[name].to_pylist(), name
        metadata = pq.read_metadata(chain.embeddings).metadata
        options = json.loads(file["uns"]["plmkit.options"].asstr()[()])
        assert options.items() <= json.loads(metadata[b"plmkit.options"]).items()
        assert "model" in options
        assert dict(file["uns"]["plmkit.model"].attrs) == {"encoding-type": "string", "encoding-version": "0.2.0"}


def test_a_group_of_many_proteins_is_searched_by_h5py(tmp_path):
    """More than a node of its tree holds."""
    fasta = tmp_path / "many.fasta"
    fasta.write_text("".join(f">p{number}\nMKV\n" for number in range(20_000)), encoding="utf-8")
    run("fasta-shard", fasta, "--out", tmp_path, "--shards", 1)
    [shard] = tmp_path.glob("shard-*.parquet")
    run("pack-batches", shard, "--out", tmp_path / "b.arrow", "--max-batch-tokens", 4096)
    run("gpu-embed", tmp_path / "b.arrow", "--model", MODEL, "--device", "cpu", "--out", tmp_path / "e.parquet")
    export = ["--format", "hdf5", "--per-protein", "--out", tmp_path / "e.h5"]
    run("validate-embeddings", "export", tmp_path / "e.parquet", *export)
    with h5py.File(tmp_path / "e.h5") as file:
        assert len(file) == 20_000
        assert list(file) == sorted(f"p{number}" for number in range(20_000))
        assert all(f"p{number}" in file for number in range(0, 20_000, 97))
        assert "q" not in file
