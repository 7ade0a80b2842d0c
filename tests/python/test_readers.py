"""Every file opens in pyarrow, polars, DuckDB and pandas, and all of them read the same values."""

import subprocess

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest
from conftest import MODEL, PROGRAMS, run

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


def test_texts_of_embeddings_are_plain(chain):
    """The only encoding of texts that fastparquet reads."""
    metadata = pq.read_metadata(chain.embeddings)
    for name in ("id", "sequence_digest"):
        column = metadata.row_group(0).column(metadata.schema.names.index(name))
        assert set(column.encodings) <= {"PLAIN", "RLE"}, name


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


def test_a_matrix_has_the_vectors_of_the_file(chain, tmp_path):
    """In the order of the input, whatever the order of the batches files was."""
    table = pq.read_table(chain.embeddings).sort_by([("ordinal", "ascending"), ("start", "ascending")])
    matrix = ["--format", "npy", "--column", "mean_4", "--out", tmp_path / "mean.npy"]
    run("query-embeddings", "combine", chain.embeddings, *matrix)
    assert np.array_equal(np.load(tmp_path / "mean.npy"), np.stack(table["mean_4"].to_numpy()))
    assert (tmp_path / "mean.ids.txt").read_text(encoding="utf-8").splitlines() == table["id"].to_pylist()


@pytest.mark.parametrize("kept", [False, True])
def test_what_another_program_rewrote_is_named_so(chain, tmp_path, kept):
    """With or without the metadata of plmkit: it has no checksums, and no reader of plmkit takes it for its own."""
    new = tmp_path / "new.parquet"
    embed = ("query-embeddings", chain.embeddings, ["lookup", new, "P1"])
    pack = ("pack-batches", chain.shards[0], [new, "--out", tmp_path / "b.arrow"])
    for program, path, words in (embed, pack):
        table = pq.read_table(path)
        if kept:
            metadata = {key: value for key, value in pq.read_metadata(path).metadata.items() if key.startswith(b"plmkit.")}
            pq.write_table(table.replace_schema_metadata(metadata), new)
            what = "damaged, or rewritten by another program"
        else:
            pd.read_parquet(path).to_parquet(new)
            what = "not written by plmkit"
        done = subprocess.run([PROGRAMS / program, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 65, done.stderr
        assert done.stderr == f"{program}: {new}: {what}: it lacks the checksums that plmkit puts before a footer\n"
