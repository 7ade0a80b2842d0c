"""A model that stays in memory, in a child: the memory of the programs is not that of this process, and its end is not either."""

from __future__ import annotations

import contextlib
import csv
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plmkit._programs import PlmkitError, arguments, lines, started
from plmkit._tables import NO_OPTIONS, Sequences, fasta, listed

# Options of fasta-shard and pack-batches; all others are of gpu-embed.
CUT = "alphabet drop_blanks duplicate_ids genetic_code invalid long_policy max_residues min_residues orf_between overlap pir stops translate".split()
PACK = ["description", "max_batch_tokens"]
NOT_OF_MODELS = "allow_empty batches checkpoint_dir dedup events force html known max_rejected max_shard_tokens min_cosine out probe".split()
NOT_OF_MODELS += "progress reference rejects report sample serve shards skip spot_check spot_check_seed verify".split()
BUGS = (signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGBUS, signal.SIGFPE)

models: weakref.WeakSet[Model] = weakref.WeakSet()


class Model:
    """A model in memory, which embeds a protein in milliseconds: `Model("facebook/esm2_t6_8M_UR50D").embed(["MKV"]).vectors`.

    `model` is a folder or an id of the Hugging Face Hub. `options` are those of `plmkit.embed` that decide rows, and those of
    `fasta-shard`, `pack-batches` and `gpu-embed` by their names: `download=True`, `pool=["mean", "max"]`,
    `long_policy="window"`, `invalid="reject"`. A model that is missing or damaged raises PlmkitError here.

    Threads may share a model; a forked process has to make one of its own. `with` and `close` free its memory.
    """

    _end: Any = staticmethod(lambda: None)
    _process: Any = None
    _made_by: Any = None

    def __init__(self, model: str | os.PathLike[str], *, dtype: str | None = None, device: str | None = None, **options: object) -> None:
        _needs("numpy")  # before anything is loaded
        if refused := [name for name in options if name.replace("-", "_") in NOT_OF_MODELS]:
            raise PlmkitError(2, f"{refused[0]}: no option of a model; plmkit.embed or a program has it")
        options.pop("quiet", None)
        model = os.path.expanduser(model)
        self._name, self._pid, self._lock = os.path.abspath(model) if os.path.exists(model) else model, os.getpid(), threading.Lock()
        own = {program: {name: options.pop(name) for name in names if name in options} for program, names in (("fasta_shard", CUT), ("pack_batches", PACK))}
        own["fasta_shard"]["threads"] = options.get("threads")
        own["gpu_embed"] = {"model": self._name, "serve": device or "auto", "dtype": dtype, "quiet": True, **options}
        self._words = {program: list(arguments(named)) for program, named in own.items()}
        if asked := [word for word in sum(self._words.values(), []) if word.partition("=")[0] in NO_OPTIONS]:
            raise PlmkitError(2, f"{asked[0]}: expected options that decide rows")
        models.add(self)
        self.embed([])  # loads it

    def embed(self, sequences: Sequences) -> Embeddings:
        """Embeds sequences: residues in a list, whose positions are the ids; residues by id; or a FASTA file, or several as Path.

        Every record has its row, in the order given. Warns of records that are rejected, which have none, and of truncated ones.
        """
        if os.getpid() != self._pid:
            raise PlmkitError(2, f"{self._name}: loaded by process {self._pid}; expected a Model of this process, which was forked from it")
        if isinstance(sequences, str):
            sequences = os.path.expanduser(sequences)
        if isinstance(sequences, str) and not os.path.exists(sequences):
            raise PlmkitError(66, f"{sequences}: no such file; residues are given in a list, or by id")
        files, text = listed(sequences), None
        if not isinstance(sequences, str) and not (files and all(isinstance(one, os.PathLike) for one in files)):
            are_residues = all(isinstance(one, str) for one in files)
            if are_residues and (paths := [one for one in files if "/" in one]):
                raise PlmkitError(65, f"{paths[0]}: expected residues, or files as pathlib.Path")
            text = fasta(enumerate(files) if are_residues else files).encode()
        size = sum(os.path.getsize(file) for file in files if os.path.isfile(file)) if text is None else len(text)
        shared = "/dev/shm"  # as fast as memory; a container may have little of it
        fits = os.access(shared, os.W_OK) and size << 16 <= shutil.disk_usage(shared).free
        with self._lock, tempfile.TemporaryDirectory(prefix="plmkit-", dir=shared if fits else None, ignore_cleanup_errors=True) as made:
            if text is not None:
                files = [Path(made, "sequences")]
                files[0].write_bytes(text)
            said, table, rejected = self._ask(made, [os.path.abspath(os.path.expanduser(file)) for file in files], size < 1 << 20)
        for line in said if text != b"" else ():
            warnings.warn(line, stacklevel=2)
        if rejected:
            named = ", ".join(f"{id!r} ({reason})" for id, reason in rejected[:5]) + ", …" * (len(rejected) > 5)
            warnings.warn(f"{len(rejected)} rejected record{' has' if len(rejected) == 1 else 's have'} no row: {named}", stacklevel=2)
        return Embeddings(table, rejected)

    def close(self) -> None:
        """Frees the memory. A later call loads the model again."""
        with self._lock:
            self._drop()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, folder: str, files: list[str], is_small: bool) -> tuple[list[str], Any, list[tuple[str, str]]]:
        """Has the child embed FASTA files in a folder. Returns its warnings, the rows, and the ids and reasons of rejects."""
        import pyarrow.parquet

        cut = self._words["fasta_shard"]
        threads = ["--threads=1"] if is_small and not any(word.startswith("--threads") for word in cut) else []
        cut = [f"--out={folder}/shards", "--shards=1", *threads, *cut, "--", *files]
        request = {"cut": cut, "pack": ["x", "--out=x", *self._words["pack_batches"]], "folder": folder}
        try:
            said = self._answer(json.dumps({"Fasta": request}).encode() + b"\n", folder)
        except BaseException as error:
            if getattr(error, "code", 70) not in (1, 2, 65, 66):  # those are of the input
                self._drop()
            raise
        with pyarrow.parquet.ParquetFile(f"{folder}/embeddings.parquet") as file:
            table = file.read()
        options = json.loads(table.schema.metadata[b"plmkit.options"])
        made_by = [options.get(name) for name in ("model", "lm_head", "contact_head")]
        if self._made_by not in (None, made_by):
            self._drop()
            raise PlmkitError(65, f"{self._name}: changed since it was loaded first")
        self._made_by = made_by
        if len(list(Path(folder, "shards").glob("*.arrow"))) > 1:  # long proteins have a shard of their own
            table = table.sort_by([("ordinal", "ascending"), ("start", "ascending")])
        rejected = []
        for path in Path(folder).glob("**/*rejects.csv"):
            with path.open(encoding="utf-8", newline="") as rows:
                rejected += [(int(row["ordinal"]), row["id"], row["reason"]) for row in csv.DictReader(rows)]
        return said, table, [(id, reason) for _, id, reason in sorted(rejected)]

    def _answer(self, request: bytes, folder: str) -> list[str]:
        """Has the child answer. Returns its warnings."""
        if self._process is None:  # The kernel ends a child with the thread that started it: this one lives as long.
            failed: list[BaseException] = []
            words = (weakref.ref(self), self._words["gpu_embed"], is_started := threading.Event(), failed)
            threading.Thread(target=_keep, args=words, name="plmkit", daemon=True).start()
            is_started.wait()
            if failed:
                raise failed[0]
        process, said = self._process, list[str]()
        with contextlib.suppress(BrokenPipeError):  # its last words say why
            process.stdin.write(request)
            process.stdin.flush()
        for line in lines(process.stdout):
            if not line.startswith("{"):
                said.append(line)
            elif ended := json.loads(line).get("Ended"):
                if ended["message"]:
                    raise PlmkitError(ended["exit"], _spelled(ended["message"], folder))
                told = [line.replace(": warning: ", ": ", 1) for line in said if ": warning: " in line and "see rejects.csv" not in line]
                return [_spelled(line, folder) for line in told]
        status = process.wait()
        self._drop()  # whatever the code, there is no child
        if status < 0:
            why = ", perhaps for lack of memory" if status == -signal.SIGKILL else ""
            what = f"gpu-embed: ended by signal {-status}{why}; the next call loads the model again"
            raise PlmkitError(70 if -status in BUGS else 75, what)
        errors = [line for line in said if ": warning: " not in line] or [f"gpu-embed: ended with exit code {status}"]
        raise PlmkitError(status or 75, _spelled(errors[-1], folder))

    def _drop(self) -> None:
        self._end()
        self._process = None


def _keep(model: weakref.ref[Model], words: list[str], is_started: threading.Event, failed: list[BaseException]) -> None:
    try:
        process = started("gpu-embed", words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if (owner := model()) is None:
            return _end(process, os.getpid())
        owner._process, owner._end = process, weakref.finalize(owner, _end, process, os.getpid())
        del owner  # which may end before its child does
    except BaseException as error:  # noqa: BLE001  raised where the model is asked for
        return failed.append(error)
    finally:
        is_started.set()
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def _end(process: Any, pid: int) -> None:
    """Ends a child, which has nothing to save, unless it is that of another process."""
    if os.getpid() == pid:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()


def _forked() -> None:
    """A forked process has no child: with its end of the pipe, the child would outlive the process that it is of."""
    for model in models:
        model._lock = threading.Lock()
        if (process := model._process) is not None:
            model._process, process.returncode = None, 0
            process.stdin.raw.close()
            process.stdout.raw.close()


os.register_at_fork(after_in_child=_forked)


class Embeddings:
    """Rows of proteins, in the order given: `ids`, `lengths`, and a column for each pooling and layer, such as `embeddings["mean_33"]`.

    `vectors` is the only such column: (rows, channels), of residues a list of (residues, channels). `rejected` has ids and reasons.
    """

    def __init__(self, table: Any, rejected: list[tuple[str, str]]) -> None:
        self._made: dict[str, Any] = {}
        self._table, self.rejected, self.ids = table, rejected, table["id"].to_pylist()
        self.lengths = self["length"]
        self.columns = [field.name for field in table.schema if hasattr(field.type, "value_type")]

    @property
    def vectors(self) -> Any:
        if len(self.columns) != 1:
            raise PlmkitError(2, f"vectors: expected one column, found {', '.join(self.columns)}; embeddings['NAME'] is that of a name")
        return self[self.columns[0]]

    def __getitem__(self, name: str) -> Any:
        if name not in self._table.column_names:
            raise KeyError(f"{name}: expected a column, one of {', '.join(self._table.column_names)}")
        if name not in self._made:
            made = _numpy(self._table[name].combine_chunks())
            self._made[name] = [one.reshape(round(len(one) ** 0.5), -1) for one in made] if name == "contacts" else made
        return self._made[name]

    def __len__(self) -> int:
        return self._table.num_rows

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(zip(self.ids, self.vectors))

    def __repr__(self) -> str:
        return f"<plmkit.Embeddings of {len(self)} rows: {', '.join(self.columns)}>"

    def to_arrow(self) -> Any:
        """The table of pyarrow."""
        return self._table

    def to_pandas(self) -> Any:
        """A DataFrame with all columns."""
        _needs("pandas")
        return self._table.to_pandas()

    def to_anndata(self) -> Any:
        """The first column of poolings is X, others are in obsm; obs has the ids and lengths."""
        anndata, pandas = _needs("anndata"), _needs("pandas")
        pooled = {name: self[name] for name in self.columns if not isinstance(self[name], list)}
        if not pooled:
            raise PlmkitError(2, f"to_anndata: expected a column of poolings, found {', '.join(self.columns)}")
        first, *others = pooled
        obs = pandas.DataFrame({"length": self.lengths, "truncated": self["truncated"]}, index=pandas.Index(self.ids, dtype=str))
        return anndata.AnnData(pooled[first], obs=obs, obsm={name: pooled[name] for name in others})


def _numpy(array: Any) -> Any:
    import numpy

    if hasattr(array.type, "list_size"):
        flat = array.flatten().to_numpy(zero_copy_only=False)
        return numpy.array(flat, numpy.float32 if flat.dtype == numpy.float16 else None).reshape(-1, array.type.list_size)
    if not hasattr(array.type, "value_type"):
        return array.to_numpy(zero_copy_only=False)
    ends = numpy.cumsum(array.value_lengths().to_numpy(zero_copy_only=False))
    return numpy.split(_numpy(array.flatten()), ends[:-1]) if len(ends) else []


def _spelled(message: str, folder: str) -> str:
    """A message with its hints as they are typed here, and without the folder of a call."""
    message = message.replace(f"{folder}/", "").replace("--download ", "download=True ")
    return re.sub(r"--(alphabet|duplicate-ids|invalid|long-policy) ([a-z-]+)", lambda hint: f'{hint[1].replace("-", "_")}="{hint[2]}"', message)


def _needs(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise PlmkitError(69, f"{package}: not installed (pip install {package})") from error
