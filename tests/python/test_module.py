"""The module of the wheel: the table of what it is given, errors with their code, resuming."""

import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time

import pyarrow.parquet
import pytest

from conftest import MODEL, PROGRAMS, PROTEINS, ROOT

SOURCE = ROOT / "scripts/wheel/plmkit"
sys.path.insert(0, str(SOURCE))
import plmkit  # noqa: E402

TWO = {"P1": "MKVLAAGGWYTREDSSKLMN", "P2": "MSTNPKPQRKTKRNTNRRPQDV"}


@pytest.fixture(autouse=True)
def programs(monkeypatch):
    monkeypatch.setenv("PATH", f"{PROGRAMS}:{os.environ['PATH']}")


def embed(sequences, **options):
    return plmkit.embed(sequences, MODEL, device="cpu", **options)


def test_residues_by_id_are_rows():
    table = embed(TWO, pool=["mean", "max"], threads=1)
    assert table["id"].to_pylist() == ["P1", "P2"]
    assert table["length"].to_pylist() == [20, 22]
    assert {"mean_4", "max_4"} <= set(table.column_names)
    assert embed(list(TWO.items()), quiet=True)["mean_4"].equals(table["mean_4"])
    assert embed({7: TWO["P1"]})["id"].to_pylist() == ["7"]
    assert embed(iter([["P1", TWO["P1"]]]))["id"].to_pylist() == ["P1"]


def test_files_are_samples_in_their_order(tmp_path):
    for name, (id, residues) in zip("ba", TWO.items()):
        (tmp_path / f"{name}.fasta").write_text(f">{id}\n{residues}\n", encoding="utf-8")
    files = [tmp_path / "b.fasta", str(tmp_path / "a.fasta")]
    assert embed(files, out=tmp_path / "out")["id"].to_pylist() == ["P1", "P2"]
    assert plmkit.read(tmp_path / "out")["id"].to_pylist() == ["P1", "P2"]
    assert embed(files[1:], out=tmp_path / "out")["id"].to_pylist() == ["P2"]
    assert plmkit.read(tmp_path / "out")["id"].to_pylist() == ["P2", "P1"]


def test_a_file_gives_the_files_that_stay(tmp_path):
    out = tmp_path / "results"
    table = embed(PROTEINS, out=out, max_shard_tokens=20000)
    files = sorted((out / "proteins/embeddings").iterdir())
    assert len(files) == 3 and table.num_rows == 100
    pyarrow.parquet.write_table(table.slice(0, 1), out / "proteins/own.parquet")
    for folder in (out, out / "proteins", out / "proteins/embeddings"):
        assert plmkit.read(folder).equals(table)
        assert plmkit.read(folder, columns=["id", "mean_4"]).equals(table.select(["id", "mean_4"]))
    times = [path.stat().st_mtime_ns for path in files]
    assert embed(PROTEINS, out=out, max_shard_tokens=20000).equals(table)
    assert [path.stat().st_mtime_ns for path in files] == times, "finished results are kept"
    assert pyarrow.parquet.read_table(files[0]).num_rows < 100


@pytest.mark.parametrize(
    ("sequences", "options", "code", "words"),
    [
        ([("a", "MK"), ("a", "ML")], {}, 65, "record 2 'a': expected a new id"),
        ("none.fasta", {}, 66, "none.fasta: cannot open"),
        (TWO, {"dtype": "f64"}, 2, "invalid value 'f64'"),
    ],
)
def test_an_error_has_the_code_and_the_words_of_the_program(sequences, options, code, words):
    with pytest.raises(plmkit.PlmkitError, match=words) as raised:
        embed(sequences, **options)
    assert raised.value.code == code


@pytest.mark.parametrize("id", [None, float("nan"), b"a", True, 7.5, ("a",)])
def test_an_id_of_another_type_is_refused(id):
    with pytest.raises(plmkit.PlmkitError, match="as text or a whole number") as raised:
        embed({id: "MK"})
    assert raised.value.code == 65


@pytest.mark.parametrize(
    "sequences",
    [[("a", "MK"), "b.fasta"], ["ab", ("c", "MK")], [("a", "MK", "x")], [("a",)], [b"a.fasta"], [5], [{"id": "a", "sequence": "MK"}], {"a": b"MK"}],
)
def test_what_is_no_pair_of_id_and_residues_is_refused(sequences):
    with pytest.raises(plmkit.PlmkitError, match="expected an id without blanks, as text or a whole number, and residues as text; or files") as raised:
        embed(sequences)
    assert raised.value.code == 65


@pytest.mark.parametrize("sequences", [None, 5, b"a.fasta"])
def test_what_is_no_sequences_is_a_type_error(sequences):
    with pytest.raises(TypeError, match="expected FASTA files, or residues by id"):
        embed(sequences)


@pytest.mark.parametrize("value", ["a\0b", "\ud800", "x" * 200000])
def test_an_argument_that_no_program_can_take_is_an_error_of_plmkit(value):
    with pytest.raises(plmkit.PlmkitError, match="plmkit: cannot start: ") as raised:
        embed(TWO, pool=value)
    assert raised.value.code == 2


def test_a_folder_may_begin_with_a_hyphen_and_has_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert embed(TWO, out="-x").equals(plmkit.read("./-x"))
    with pytest.raises(plmkit.PlmkitError, match="out: expected a folder") as raised:
        embed(TWO, out="")
    assert raised.value.code == 2 and os.listdir() == ["-x"]


@pytest.mark.parametrize(("name", "residues"), [("", "MK"), ("a b", "MK"), ("a\n", "MK"), ("a", None), ("a", "M\n>b"), ("a", "MK\rV")])
def test_an_id_with_blanks_and_what_is_no_text_is_refused(name, residues):
    with pytest.raises(plmkit.PlmkitError, match="expected an id without blanks") as raised:
        embed({name: residues})
    assert raised.value.code == 65


def test_other_sequences_of_a_folder_are_refused_and_nothing_changes(tmp_path):
    table = embed(TWO, out=tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    other = TWO | {"P3": "MKV"}
    with pytest.raises(plmkit.PlmkitError, match="other sequences: expected") as raised:
        embed(other, out=tmp_path)
    assert raised.value.code == 73
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert embed(TWO, out=tmp_path).equals(table)
    with pytest.raises(plmkit.PlmkitError) as raised:
        embed({"P1": "MK1"}, out=tmp_path, force=True)
    assert raised.value.code == 65
    with pytest.raises(plmkit.PlmkitError) as raised:
        embed({"P1": "MK1"}, out=tmp_path / "new")
    assert raised.value.code == 65
    assert embed(TWO, out=tmp_path / "new").num_rows == 2, "a refused call leaves no sequences"
    with pytest.raises(plmkit.PlmkitError) as raised:
        embed(TWO, out=tmp_path / "new", pool="min")
    assert raised.value.code == 2
    assert embed(TWO, out=tmp_path / "new").num_rows == 2, "nor takes those of another"
    shutil.rmtree(tmp_path / "new")
    assert embed(TWO, out=tmp_path).equals(table)
    assert embed(other, out=tmp_path, force=True)["id"].to_pylist() == ["P1", "P2", "P3"]
    assert len(list(tmp_path.glob("pipeline_info/*/sequences.fasta"))) == 1
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    with pytest.raises(plmkit.PlmkitError, match="Not a directory"):
        embed(TWO, out=file)


def test_columns_are_names_of_columns(tmp_path):
    table = embed(TWO, out=tmp_path)
    assert plmkit.read(tmp_path, columns=("mean_4", "id")).equals(table.select(["mean_4", "id"]))
    for columns in [[], "id", b"id", [0], [None]]:
        with pytest.raises(TypeError, match=r"expected names, such as \['id', 'mean_33'\], or None"):
            plmkit.read(tmp_path, columns=columns)
    with pytest.raises(plmkit.PlmkitError, match="expected a column 'mean_33', found ordinal, id, .*mean_4") as raised:
        plmkit.read(tmp_path, columns=["id", "mean_33"])
    assert raised.value.code == 65


def test_records_that_share_a_sequence_have_rows_of_their_own(tmp_path):
    earlier = embed(TWO, out=tmp_path / "earlier")
    given = {"P4": "MKKVVL", "P3": TWO["P2"]} | TWO | {"P5": "MKKVVL"}
    each = embed(given).select(["ordinal", "id", "length", "mean_4"])
    rows = each.to_pylist()
    known = tmp_path / "earlier/sequences"
    for options, left_out in [
        ({"dedup": True}, 2),
        ({"known": known}, 3),
        ({"known": [str(known)], "dedup": True}, 4),
    ]:
        out = tmp_path / f"{options}".replace("/", "_")
        table = embed(given, out=out, **options)
        assert table.select(each.column_names).to_pylist() == rows, options
        assert table.column_names == earlier.column_names
        with pytest.warns(UserWarning, match=f"sequences: {left_out} records have no row, since others have their residues"):
            assert plmkit.read(out).num_rows == 5 - left_out


def test_a_folder_is_what_lies_in_it_by_any_path(tmp_path, monkeypatch):
    out = tmp_path / "results"
    file = tmp_path / "b.fasta"
    file.write_text(f">P1\n{TWO['P1']}\n", encoding="utf-8")
    table = embed([PROTEINS, file], out=out, max_shard_tokens=20000)
    sample, part = out / "proteins", out / "proteins/embeddings/shard-00001.parquet"
    for link, target in [("all", out), ("one", sample), ("of-one", sample / "embeddings")]:
        (tmp_path / link).symlink_to(target)
    shutil.copytree(sample, tmp_path / "renamed")
    (out / "embeddings").mkdir()
    shutil.copy(out / "b/embeddings/shard-00000.parquet", out / "embeddings")
    of_all = [(out, "."), (tmp_path, "results/."), (tmp_path, "results/proteins/.."), (sample, ".."), (tmp_path, "all")]
    of_one = [(sample, "."), (sample / "embeddings", "."), (sample / "embeddings", "../embeddings"), (tmp_path, "one"), (tmp_path, "of-one")]
    paths = [*((*path, 101) for path in of_all), *((*path, 100) for path in of_one), (tmp_path, "renamed", 100)]

    def read(folder, path):
        monkeypatch.chdir(folder)
        return plmkit.read(path)

    for folder, path, rows in paths:
        assert read(folder, path).equals(table.slice(0, rows)), path
    whole = part.read_bytes()
    (tmp_path / "renamed" / part.relative_to(sample)).unlink()
    part.unlink()
    for folder, path, _ in paths:
        with pytest.raises(plmkit.PlmkitError, match="shard-00001.parquet: missing") as raised:
            read(folder, path)
        assert raised.value.code == 66
    for at in range(0, len(whole), len(whole) // 5):
        part.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        for folder, path, _ in paths[:-1]:
            with pytest.raises(plmkit.PlmkitError, match="shard-00001.parquet: ") as raised:
                read(folder, path)
            assert raised.value.code == 65


def test_files_without_their_dataset_are_read_with_a_warning_and_other_kinds_are_refused(tmp_path):
    table = embed(PROTEINS, out=tmp_path / "out", max_shard_tokens=20000)
    flat, sample = tmp_path / "flat", tmp_path / "out/proteins"
    shutil.copytree(sample / "embeddings", flat)
    link = tmp_path / "link.parquet"
    link.symlink_to(sample / "embeddings/shard-00000.parquet")
    of_file = pyarrow.parquet.read_table(link).num_rows
    for path, rows in [(flat, 100), (link, of_file), (sample / "embeddings/shard-00000.parquet", of_file)]:
        with pytest.warns(UserWarning, match=f"{path}: not validated, so rows may be missing"):
            assert plmkit.read(path).equals(table.slice(0, rows))
    other = tmp_path / "other.parquet"
    pyarrow.parquet.write_table(table, other)
    for kind, words in [
        (sample / "shards/shard-00000.parquet", "expected an embeddings file, found a shard"),
        (other, "not a readable Parquet file|not written by plmkit"),
        (flat / "shard-00001.parquet", "rows may be in several folders"),
    ]:
        added = shutil.copy(kind, flat / "z.parquet")
        with pytest.raises(plmkit.PlmkitError, match=f"flat/z.parquet: ({words})") as raised:
            plmkit.read(flat)
        assert raised.value.code == 65
        os.remove(added)
    with pytest.raises(plmkit.PlmkitError, match="expected an embeddings file, found a shard"):
        plmkit.read(sample / "shards")
    file = flat / "shard-00000.parquet"
    whole = file.read_bytes()
    for at in range(0, len(whole), len(whole) // 20):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(plmkit.PlmkitError, match="flat/shard-00000.parquet: "):
            plmkit.read(flat)


def test_warnings_of_the_programs_are_pythons(tmp_path):
    with pytest.warns(UserWarning, match="1 protein truncated to 1022 residues"):
        embed({"long": "MK" * 600}, out=tmp_path)
    (tmp_path / "sequences/dataset.json").unlink()
    with pytest.warns(UserWarning, match="not validated, so rows may be missing"):
        plmkit.read(tmp_path)


def test_an_error_comes_from_another_process_as_it_is():
    error = pickle.loads(pickle.dumps(plmkit.PlmkitError(65, "bad residue")))
    assert (type(error), error.code, str(error)) == (plmkit.PlmkitError, 65, "bad residue")


def test_a_damaged_file_is_an_error_of_plmkit(tmp_path):
    embed({"P1": TWO["P1"]}, out=tmp_path)
    assert plmkit.read(tmp_path, columns=["mean_4"]).num_columns == 1
    file = tmp_path / "sequences/embeddings/shard-00000.parquet"
    whole = file.read_bytes()
    for at in range(0, len(whole), len(whole) // 50):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(plmkit.PlmkitError, match="sequences/embeddings/shard-00000.parquet") as raised:
            plmkit.read(tmp_path)
        assert raised.value.code == 65
    file.write_bytes(b"PAR1")
    with pytest.raises(plmkit.PlmkitError, match="sequences/embeddings") as raised:
        plmkit.read(tmp_path)
    assert raised.value.code == 65


def test_a_sample_that_failed_or_lacks_a_part_is_an_error(tmp_path):
    table = embed(PROTEINS, out=tmp_path, max_shard_tokens=20000)
    sample = tmp_path / "proteins"
    part = sample / "embeddings/shard-00001.parquet"
    whole = part.read_bytes()
    part.unlink()
    with pytest.raises(plmkit.PlmkitError, match="shard-00001.parquet: missing") as raised:
        plmkit.read(tmp_path)
    assert raised.value.code == 66
    assert plmkit.read(tmp_path, verify=False).num_rows < 100
    part.write_bytes(whole)
    other = pyarrow.table({"id": table["id"].combine_chunks()[::-1], "mean_4": table["mean_4"]})
    pyarrow.parquet.write_table(other, tmp_path / "other.parquet")
    with pytest.raises(plmkit.PlmkitError) as raised:
        plmkit.run("validate-embeddings", "--dataset", str(sample), "--reference", str(tmp_path / "other.parquet"))
    assert raised.value.code == 1
    with pytest.raises(plmkit.PlmkitError, match="its validation failed") as raised:
        plmkit.read(tmp_path)
    assert raised.value.code == 65


def test_embeddings_that_were_not_judged_are_an_error(tmp_path):
    name = "sequences/embeddings/shard-00000.parquet"
    for folder, sequences in [("two", TWO), ("one", {"P1": TWO["P1"]})]:
        embed(sequences, out=tmp_path / folder)
    (tmp_path / "two" / name).write_bytes((tmp_path / "one" / name).read_bytes())
    with pytest.raises(plmkit.PlmkitError, match="not what dataset.json is the verdict of") as raised:
        plmkit.read(tmp_path / "two")
    assert raised.value.code == 65


def test_samples_of_several_models_are_no_table(tmp_path):
    for name, model in [("a", "model-tiny"), ("b", "model-tiny-bin")]:
        plmkit.embed(TWO, MODEL.with_name(model), out=tmp_path / name, device="cpu")
        (tmp_path / name / "sequences").rename(tmp_path / f"both-{name}")
    with pytest.raises(plmkit.PlmkitError, match="different models") as raised:
        plmkit.read(tmp_path)
    assert raised.value.code == 65


def test_what_the_last_run_did_not_validate_is_left_out(tmp_path):
    files = [tmp_path / "a.fasta", tmp_path / "b.fasta"]
    for file, (id, residues) in zip(files, TWO.items(), strict=True):
        file.write_text(f">{id}\n{residues}\n", encoding="utf-8")
    embed(files, out=tmp_path / "out")
    files[1].write_text(">P2\nMK1\n", encoding="utf-8")
    with pytest.raises(plmkit.PlmkitError):
        embed(files, out=tmp_path / "out", force=True, pool="max")
    with pytest.warns(UserWarning, match="b: not validated by the last run"):
        assert plmkit.read(tmp_path / "out")["id"].to_pylist() == ["P1"]


@pytest.mark.parametrize(
    "change, code, message",
    [
        (lambda out: shutil.rmtree(out / "b"), 66, "b: no such file or folder"),
        (lambda out: shutil.rmtree(out / "b/embeddings"), 66, "b/embeddings/shard-00000.parquet: missing"),
        (lambda out: shutil.copytree(out / "b", out / "c"), 65, "rows may be in several folders"),
        (lambda out: plmkit.run("query-embeddings", "combine", str(out / "b"), "--out", str(out / "c")), 65, "rows may be in several folders"),
        (lambda out: (out / "summary.tsv").write_bytes(b"sample\xff"), 65, "summary.tsv: expected the table of samples"),
        (lambda out: (out / "summary.tsv").write_text("".join((out / "summary.tsv").open()).replace("pass", "past")), 65, "summary.tsv: expected"),
        (lambda out: (out / "b/dataset.json").write_text("{}"), 65, "b/dataset.json: not a dataset.json of validate-embeddings"),
        (lambda out: (out / "b/dataset.json").write_text("[]"), 65, "b/dataset.json: not a dataset.json of validate-embeddings"),
    ],
)
def test_samples_that_are_lost_doubled_or_damaged_are_errors(tmp_path, change, code, message):
    files = [tmp_path / "a.fasta", tmp_path / "b.fasta"]
    for file, (id, residues) in zip(files, TWO.items(), strict=True):
        file.write_text(f">{id}\n{residues}\n", encoding="utf-8")
    embed(files, out=tmp_path / "out")
    change(tmp_path / "out")
    with pytest.raises(plmkit.PlmkitError, match=message) as raised:
        plmkit.read(tmp_path / "out")
    assert raised.value.code == code


def test_an_accepted_sample_without_rows_is_an_empty_table(tmp_path):
    files = [tmp_path / "none.fasta", tmp_path / "some.fasta"]
    for file, residues in zip(files, ["MK1", "MKV"], strict=True):
        file.write_text(f">a\n{residues}\n", encoding="utf-8")
    with pytest.warns(UserWarning):
        embed(files, out=tmp_path / "out", allow_empty=True, invalid="reject")
    assert plmkit.read(tmp_path / "out").num_rows == 1


def test_blanks_divide_blocks_or_are_those_of_text(tmp_path):
    assert embed({"P1": "MKVLAAGIVG LCAK", "P2": "M K V"})["length"].to_pylist() == [14, 3]
    with pytest.raises(plmkit.PlmkitError, match=r"record 2 'P2': found 'Too Many Requests' .* \(line 4\)") as raised:
        embed({"P1": "MKV", "P2": "Too Many Requests"})
    assert raised.value.code == 65
    file = tmp_path / "a.pir"
    file.write_text(">P1;A\na title\nMKVLAAGIVG LCAK*\n", encoding="utf-8")
    with pytest.raises(plmkit.PlmkitError, match="found a header of PIR"):
        embed(file)
    assert embed(file, pir=True).to_pylist()[0].items() >= {"id": "A", "length": 14}.items()


def test_rejected_records_are_a_warning():
    with pytest.warns(UserWarning, match="sequences: 1 rejected record has no row"):
        assert embed(TWO | {"P3": ""}, max_rejected="50%").num_rows == 2


def test_a_home_folder_is_one_place(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    assert embed(TWO, out="~/results").num_rows == plmkit.read("~/results").num_rows == 2
    assert (tmp_path / "home/results/summary.tsv").is_file() and not (tmp_path / "~").exists()
    assert embed(TWO, out="s3:x").num_rows == 2


def test_an_option_that_decides_no_rows_is_refused_before_anything_changes(tmp_path):
    embed(TWO, out=tmp_path)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file()}
    for options in [
        {"version": True},
        {"help": True},
        {"generate": "man"},
        {"check-options": True},
        {"log_format": "json"},
        {"stage": "prepare", "force": True},
        {"stage": "finish"},
        {"stage": "embed", "task": "1/1"},
    ]:
        with pytest.raises(plmkit.PlmkitError, match="expected options that decide rows") as raised:
            plmkit.embed(TWO, MODEL.with_name("model-tiny-bin"), out=tmp_path, device="cpu", **options)
        assert raised.value.code == 2, options
    with pytest.raises(plmkit.PlmkitError, match="'--out <DIR>' cannot be used multiple times"):
        embed(TWO, out=tmp_path, **{"out=other": True})
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file()} == before
    assert embed(TWO, out=tmp_path, help=False, stage=None).num_rows == 2
    # Each option is one that decides rows, or is refused.
    decide = "allow-empty alphabet checkpoint-dir checkpoint-interval contacts dedup description device download drop-blanks dtype"
    decide += " duplicate-ids force genetic-code html invalid kernels known layers logits long-policy max-batch-tokens max-rejected"
    decide += " max-residues max-shard-tokens min-cosine min-residues model model-name orf-between out overlap pir pool prefetch progress"
    decide += " quiet reference report residues scores scores-positions skip spot-check spot-check-seed stops store-dtype threads translate"
    decide += " verify windows"
    said = set(re.findall(r"^ +(?:-., )?(--[a-z-]+)", plmkit.run("plmkit", "--help"), re.MULTILINE))
    assert said == set(plmkit._tables.NO_OPTIONS) - {"--check-options"} | {f"--{name}" for name in decide.split()}


def test_a_folder_without_embeddings_is_no_table(tmp_path):
    with pytest.raises(plmkit.PlmkitError, match="no embeddings") as raised:
        plmkit.read(tmp_path)
    assert raised.value.code == 66


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_ends_the_program_and_the_same_call_resumes(how, tmp_path):
    many = tmp_path / "many.fasta"
    many.write_text(PROTEINS.read_text(encoding="utf-8") * 5, encoding="utf-8")
    call = f"plmkit.embed({str(many)!r}, {str(MODEL)!r}, out={str(tmp_path / 'out')!r}, device='cpu', threads=1, duplicate_ids='suffix')"
    process = subprocess.Popen([sys.executable, "-c", f"import plmkit; {call}"], env=os.environ | {"PYTHONPATH": str(SOURCE)}, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("out/many/embeddings/.*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(how)
    said = process.communicate(timeout=60)[1]
    if how == signal.SIGINT:
        assert "KeyboardInterrupt" in said
        assert not list(tmp_path.glob("out/many/embeddings/*.parquet"))
    # The programs of a killed one save their work, and have the folder until then.
    while (table := again(many, tmp_path / "out")) is None:
        assert how == signal.SIGKILL and time.monotonic() < deadline
        time.sleep(0.05)
    assert table.num_rows == 500


def again(many, out):
    try:
        return embed(many, out=out, threads=1, duplicate_ids="suffix")
    except plmkit.PlmkitError as error:
        if error.code != 75:
            raise
        return None
