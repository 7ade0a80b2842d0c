"""A model in a child: what it returns beside the programs, and how it ends."""

import ast
import gc
import inspect
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from conftest import MODEL, PROGRAMS, PROTEINS
from test_module import SOURCE, TWO, plmkit, programs  # noqa: F401

RESIDUES = list(TWO.values())


def make(**options):
    return plmkit.Model(MODEL, device="cpu", **options)


@pytest.fixture(scope="module")
def model():
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{PROGRAMS}:{before}"
    with make() as model:
        yield model
    os.environ["PATH"] = before


def pid_of(model):
    return model._process.pid


def is_gone(pid, seconds=20):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def of_shared():
    return {path for path in Path("/dev/shm").glob("plmkit-*")} if Path("/dev/shm").is_dir() else set()


def test_rows_are_those_of_the_programs(model, chain):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = plmkit.embed(PROTEINS, MODEL, device="cpu")
        embedded = model.embed(PROTEINS)
        assert embedded.to_arrow().select(["id", "length", "mean_4"]).equals(given.select(["id", "length", "mean_4"]))
        several = model.embed([PROTEINS])
    assert several.ids == embedded.ids == given["id"].to_pylist()
    assert embedded.vectors.shape == (100, 64) and embedded.vectors.dtype == np.float32 and embedded.vectors.flags.writeable
    assert np.array_equal(embedded["mean_4"], np.stack(given["mean_4"].to_pylist()).astype(np.float32))
    assert list(embedded.to_pandas()["id"]) == embedded.ids and len(embedded) == 100


def test_what_is_given_has_its_ids_and_rows(model):
    embedded = model.embed(RESIDUES)
    assert (embedded.ids, embedded.lengths.tolist()) == (["0", "1"], [20, 22])
    assert [id for id, _ in embedded] == ["0", "1"] and np.array_equal(list(embedded)[1][1], embedded.vectors[1])
    for same in (TWO, list(TWO.items()), iter(TWO.items()), (residues for residues in RESIDUES)):
        assert np.array_equal(model.embed(same).vectors, embedded.vectors)
    twice = model.embed([RESIDUES[1], RESIDUES[0], RESIDUES[1]])
    assert np.array_equal(twice.vectors, embedded.vectors[[1, 0, 1]]), "equal sequences have rows of their own"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for none in ([], {}, iter(())):
            assert (len(model.embed(none)), model.embed(none).vectors.shape) == (0, (0, 64))


def test_rejected_records_are_named_and_truncated_ones_warned_of(model):
    with pytest.warns(UserWarning, match=r"1 rejected record has no row: 'b' \(empty\)"):
        embedded = model.embed({"a": "MK", "b": "", "c": "MKV"})
    assert (embedded.ids, embedded.rejected) == (["a", "c"], [("b", "empty")])
    with pytest.warns(UserWarning, match='1 protein truncated to 1022 residues; long_policy="window" keeps every residue'):
        assert model.embed(["MK" * 600])["truncated"].tolist() == [True]
    with make(invalid="reject", threads=1) as other, pytest.warns(UserWarning, match="invalid_residue"):
        assert other.embed(["MK1"]).rejected == [("0", "invalid_residue")]


def test_columns_windows_and_residues():
    with make(long_policy="window", residues=True, pool=["mean", "max"], store_dtype="f16", max_residues=30, overlap=10, threads=1) as model:
        embedded = model.embed([*RESIDUES, "MKV" * 20])
        assert embedded.columns == ["mean_4", "max_4", "residues_4"] and embedded["mean_4"].dtype == np.float32
        assert [one.shape for one in embedded["residues_4"]] == [(20, 64), (22, 64), (60, 64)]
        assert embedded["n_windows"].tolist()[:2] == [1, 1] and embedded["n_windows"][2] > 1
        assert np.allclose(embedded["residues_4"][0].astype(np.float64).mean(axis=0), embedded["mean_4"][0], atol=0.05)
        with pytest.raises(plmkit.PlmkitError, match="vectors: expected one column, found mean_4, max_4, residues_4"):
            embedded.vectors
        with pytest.raises(KeyError, match="mean_33: expected a column, one of .*max_4"):
            embedded["mean_33"]
        assert model.embed([])["residues_4"] == []
    with make(long_policy="separate", max_residues=21) as model:
        assert model.embed([RESIDUES[1], RESIDUES[0]]).ids == ["0", "1"], "in the order given, if in several shards"


def test_anndata(model):
    if pytest.importorskip("pandas") and not __import__("importlib").util.find_spec("anndata"):
        with pytest.raises(plmkit.PlmkitError, match=r"anndata: not installed \(pip install anndata\)") as raised:
            model.embed(TWO).to_anndata()
        assert raised.value.code == 69
        return
    data = model.embed(TWO).to_anndata()
    assert data.X.shape == (2, 64) and list(data.obs_names) == ["P1", "P2"] and data.obs["length"].tolist() == [20, 22]


@pytest.mark.parametrize(
    ("sequences", "code", "words"),
    [
        (["MK1"], 65, 'record 1 \'0\': expected residues, found \'1\' at position 3; invalid="x"'),
        ([("a", "MK"), ("a", "ML")], 65, 'record 2 \'a\': expected a new id, .* duplicate_ids="drop-identical"'),
        ("MKV", 66, "MKV: no such file; residues are given in a list, or by id"),
        (Path("none.fasta"), 66, "none.fasta: cannot open"),
        (["a/b.fasta"], 65, "a/b.fasta: expected residues, or files as pathlib.Path"),
        ({"a b": "MK"}, 65, "expected an id without blanks"),
    ],
)
def test_an_error_is_one_line_and_the_model_stays(model, sequences, code, words):
    child = pid_of(model)
    with pytest.raises(plmkit.PlmkitError, match=words) as raised:
        model.embed(sequences)
    assert raised.value.code == code and "\n" not in str(raised.value) and "/plmkit-" not in str(raised.value)
    assert len(model.embed(TWO)) == 2 and pid_of(model) == child
    with pytest.raises(TypeError, match="expected FASTA files, or residues by id"):
        model.embed(None)


@pytest.mark.parametrize(
    ("path", "options", "code", "words"),
    [
        ("/none", {}, 66, "gpu-embed: /none: cannot open"),
        (PROTEINS, {}, 66, "expected a folder, or a file"),
        (MODEL, {"dtype": "f64"}, 2, "invalid value 'f64'"),
        (MODEL, {"invalid": "yes"}, 2, "fasta-shard: invalid value 'yes'"),
        (MODEL, {"no_option": 1}, 2, "unexpected argument '--no-option'"),
        (MODEL, {"out": "x"}, 2, "out: no option of a model"),
        (MODEL, {"device": "all"}, 2, "expected one device"),
        (MODEL, {"help": True}, 2, "--help: expected options that decide rows"),
    ],
)
def test_a_model_that_cannot_be_is_refused_when_it_is_made(path, options, code, words):
    with pytest.raises(plmkit.PlmkitError, match=words) as raised:
        plmkit.Model(path, **{"device": "cpu", **options})
    assert raised.value.code == code and "\n" not in str(raised.value)


def test_a_damaged_model_is_refused_when_it_is_made(tmp_path):
    for file in MODEL.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(plmkit.PlmkitError, match="model.safetensors") as raised:
        plmkit.Model(tmp_path, device="cpu")
    assert raised.value.code == 65


def test_models_are_ended_by_with_close_and_collection():
    with make() as model:
        first = pid_of(model)
        with make(pool="max") as other:
            assert not np.array_equal(model.embed(TWO).vectors, other.embed(TWO).vectors)
            second = pid_of(other)
        assert is_gone(second) and not is_gone(first, 0.1)
    assert is_gone(first)
    assert len(model.embed(TWO)) == 2, "a closed model loads again"
    third = pid_of(model)
    model.close()
    assert is_gone(third)
    model.close()
    model.embed([])
    fourth = pid_of(model)
    del model
    gc.collect()
    assert is_gone(fourth)


def test_a_child_that_dies_is_an_error_and_the_next_call_loads_again(model):
    os.kill(pid_of(model), signal.SIGKILL)
    with pytest.raises(plmkit.PlmkitError, match="gpu-embed: ended by signal 9, perhaps for lack of memory; the next call") as raised:
        model.embed(TWO)
    assert raised.value.code == 75
    assert len(model.embed(TWO)) == 2


def test_threads_share_a_model_that_one_of_them_made():
    made, found = [], []
    thread = threading.Thread(target=lambda: made.append(make()))
    thread.start()
    thread.join()
    time.sleep(0.1)
    child = pid_of(made[0])
    given = [["MKV" * (1 + one)] for one in range(6)]
    threads = [threading.Thread(target=lambda one=one: found.append((one, made[0].embed(given[one]).lengths[0]))) for one in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [(one, 3 + 3 * one) for one in range(6)] and pid_of(made[0]) == child
    made[0].close()


def refused(model, queue):
    try:
        model.embed(TWO)
    except plmkit.PlmkitError as error:
        queue.put((error.code, str(error)))
    queue.put(len(make().embed(TWO)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_is_refused_and_may_make_its_own(model):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=refused, args=(model, queue))
    process.start()
    code, said = queue.get(timeout=30)
    assert code == 2 and "expected a Model of this process" in said
    assert queue.get(timeout=30) == 2
    process.join(30)
    assert process.exitcode == 0 and len(model.embed(TWO)) == 2
    # One that sleeps has no end of the pipe: the child ends with its own process.
    sleeping = context.Process(target=time.sleep, args=(60,))
    other = make()
    sleeping.start()
    child = pid_of(other)
    other._process.stdin.close()
    assert is_gone(child)
    sleeping.kill()


LONG = "import plmkit, sys; m = plmkit.Model({model!r}, device='cpu', threads=1); print(m._process.pid, flush=True); {then}"


@pytest.mark.parametrize("then", ["sys.stdin.read()", "m.embed(['MKVLAAGG' * 100] * 4000)", "1"])
@pytest.mark.filterwarnings("ignore")
def test_the_child_ends_with_its_parent(then):
    before = of_shared()
    code = LONG.format(model=str(MODEL), then=then)
    with subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(SOURCE)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        child = int(process.stdout.readline())
        time.sleep(0.5)
        if then != "1":
            assert not is_gone(child, 0)
            process.kill()
        assert is_gone(child)
        deadline = time.monotonic() + 5
        while of_shared() - before and time.monotonic() < deadline:
            time.sleep(0.05)
    assert of_shared() <= before


def test_an_interrupt_is_one_at_once_and_the_model_goes_on():
    with make(threads=1) as model:
        child = pid_of(model)
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        before, begun = of_shared(), time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            model.embed(["MKVLAAGG" * 100] * 4000)
        assert time.monotonic() - begun < 2 and is_gone(child, 1) and of_shared() <= before
        assert len(model.embed(TWO)) == 2


def test_a_model_that_is_loaded_again_is_the_same(tmp_path, monkeypatch):
    shutil.copytree(MODEL, tmp_path / "m")
    shutil.copytree(MODEL.with_name("model-tiny-1v"), tmp_path / "sub/m")
    monkeypatch.chdir(tmp_path)
    with plmkit.Model("m", device="cpu", contacts=True) as model:
        first = model.embed(TWO)
        assert [one.shape for one in first["contacts"]] == [(len(one), len(one)) for one in TWO.values()]
        os.chdir("sub")
        model.close()
        assert (model.embed(TWO)["mean_4"] == first["mean_4"]).all()
        model.close()
        shutil.rmtree(tmp_path / "m")
        shutil.copytree(tmp_path / "sub/m", tmp_path / "m")
        with pytest.raises(plmkit.PlmkitError, match="changed since it was loaded first"):
            model.embed(TWO)
        shutil.rmtree(tmp_path / "m")
        with pytest.raises(plmkit.PlmkitError, match="m: cannot open"):
            model.embed(TWO)
        shutil.copytree(MODEL, tmp_path / "m")
        assert (model.embed(TWO)["mean_4"] == first["mean_4"]).all()


def test_the_module_has_public_names_and_a_stub_of_them():
    assert dir(plmkit) == sorted(plmkit.__all__) and plmkit.__version__[0].isdigit()
    tree = ast.parse((SOURCE / "plmkit/__init__.pyi").read_text(encoding="utf-8"))

    def compare(nodes, owner):
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                compare(node.body, getattr(owner, node.name))
            elif isinstance(node, ast.FunctionDef):
                found = inspect.getattr_static(owner, node.name)
                found = found.fget if isinstance(found, property) else found
                names = [one.arg for one in (*node.args.args, node.args.vararg, *node.args.kwonlyargs, node.args.kwarg) if one]
                assert names == list(inspect.signature(found).parameters), node.name
        named = {node.name for node in nodes if hasattr(node, "name")}
        of_own = {name for name, one in vars(owner).items() if not name.startswith("_") and (callable(one) or isinstance(one, property))}
        assert of_own - named <= {"Sequences"}, owner

    compare(tree.body, plmkit)
