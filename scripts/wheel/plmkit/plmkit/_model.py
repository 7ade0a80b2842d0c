"""A model that stays in memory, in a child: the memory of the programs is not that of this process, and its end is not either."""

from __future__ import annotations

import contextlib
import csv
import importlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from plmkit._programs import PlmkitError, arguments, started
from plmkit._tables import NO_OPTIONS, Sequences, fasta, listed

if TYPE_CHECKING:
    import anndata
    import numpy
    import pandas
    import pyarrow

# Options of fasta-shard and pack-batches; all others are of gpu-embed.
CUT = "alphabet drop_blanks duplicate_ids genetic_code invalid long_policy max_residues min_residues orf_between overlap pir stops translate".split()
PACK = ["description", "max_batch_tokens"]
NOT_OF_MODELS = "batches checkpoint_dir dedup events force known max_shard_tokens out probe rejects sample serve shards validate_embeddings".split()
BUGS = (signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGBUS, signal.SIGFPE)

models: weakref.WeakSet[Model] = weakref.WeakSet()


class Model:
    """A model in memory, which embeds a protein in milliseconds: `Model("facebook/esm2_t6_8M_UR50D").embed(["MKV"]).vectors`.

    `model` is a folder or an id of the Hugging Face Hub. `options` are those of `plmkit.embed` that decide rows, and those of
    `fasta-shard`, `pack-batches` and `gpu-embed` by their names: `download=True`, `pool=["mean", "max"]`, `windows=True`,
    `invalid="reject"`. A model that is missing or damaged raises PlmkitError here.

    Threads may share a model; a process that is forked makes its own. Use `with`, or `close`, to free the memory before the end.
    """

    def __init__(self, model: str | os.PathLike[str], *, dtype: str | None = None, device: str | None = None, **options: object) -> None:
        import numpy  # noqa: F401  before anything is loaded
        import pyarrow.parquet  # noqa: F401

        if refused := [name for name in options if name.replace("-", "_") in NOT_OF_MODELS]:
            raise PlmkitError(2, f"{refused[0]}: no option of a model; plmkit.embed or a program has it")
        if device == "all":
            raise PlmkitError(2, "device: expected one device, such as 'cuda:1', found 'all'; plmkit.embed computes on all")
        options.pop("quiet", None)
        words = {program: shlex.split(str(options.pop(program, None) or "")) for program in ("fasta_shard", "pack_batches", "gpu_embed")}
        if options.pop("windows", None):
            options.setdefault("long_policy", "window")
        for names, program in ((CUT, "fasta_shard"), (PACK, "pack_batches"), (list(options), "gpu_embed")):
            words[program] += arguments({name: options.pop(name) for name in names if name in options})
        for word in sum(words.values(), []):
            if word.partition("=")[0] in NO_OPTIONS:
                raise PlmkitError(2, f"{word}: expected options that decide rows")
        own = [f"--serve={device or 'auto'}", "--quiet", f"--model={os.fspath(model)}", *arguments({"dtype": dtype})]
        self._words = {**words, "gpu_embed": own + words["gpu_embed"]}
        self._name, self._has_threads = os.fspath(model), any(word.startswith("--threads") for word in words["fasta_shard"])
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._end = lambda: None
        models.add(self)
        self.embed([])  # loads it

    def embed(self, sequences: Sequences) -> Embeddings:
        """Embeds sequences: residues in a list, whose positions are the ids; residues by id; or a FASTA file, or several as Path.

        Every record has its row, in the order given. Warns of records that are rejected, which have none, and of truncated ones.
        """
        import pyarrow.parquet

        if os.getpid() != self._pid:
            raise PlmkitError(2, f"{self._name}: loaded by process {self._pid}; expected a Model of this process, which was forked from it")
        given = listed(sequences)
        is_text = not isinstance(sequences, (str, os.PathLike)) and not (given and all(isinstance(one, os.PathLike) for one in given))
        if isinstance(sequences, str) and not os.path.exists(sequences):
            raise PlmkitError(66, f"{sequences}: no such file; residues are given in a list, or by id")
        if is_text and all(isinstance(one, str) for one in given):
            if path := next((one for one in given if "/" in one), None):
                raise PlmkitError(65, f"{path}: expected residues, or files as pathlib.Path")
            given = enumerate(given)
        text = fasta(given).encode() if is_text else b""
        size = len(text) if is_text else sum(os.path.getsize(path) for path in given if os.path.isfile(path))
        shared = "/dev/shm"  # as fast as memory; a container may have little of it
        fits = os.access(shared, os.W_OK) and size << 16 <= shutil.disk_usage(shared).free
        with self._lock, tempfile.TemporaryDirectory(prefix="plmkit-", dir=shared if fits else None, ignore_cleanup_errors=True) as made:
            if is_text:
                given = [Path(made, "sequences")]
                given[0].write_bytes(text)
            said = self._ask(Path(made), [*["--threads=1"] * (size < 1 << 20 and not self._has_threads), *self._words["fasta_shard"], "--", *map(os.path.abspath, given)])
            rejected = [row for name in ("shards/rejects.csv", "embeddings.rejects.csv") for row in _rows(Path(made, name))]
            with pyarrow.parquet.ParquetFile(Path(made, "embeddings.parquet")) as file:
                table = file.read()
            if len(list(Path(made, "shards").glob("*.arrow"))) > 1:  # proteins of any length have a shard of their own
                table = table.sort_by([("ordinal", "ascending"), ("start", "ascending")])
        for line in (line for line in said if (text or not is_text) and "see rejects.csv" not in line):
            warnings.warn(_spelled(line.replace(": warning: ", ": ", 1), made), stacklevel=2)
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

    def __repr__(self) -> str:
        return f"plmkit.Model({self._name!r})"

    def __reduce__(self) -> tuple:
        raise PlmkitError(2, f"{self._name}: a model stays in its process; expected a Model made in the other one")

    def _ask(self, folder: Path, words: list[str]) -> list[str]:
        """Has the child embed FASTA files into a folder. Returns its warnings."""
        said: list[str] = []
        try:
            if self._process is None:
                self._start()
            process = self._process
            request = {"fasta_shard": words, "pack_batches": self._words["pack_batches"], "folder": str(folder)}
            with contextlib.suppress(BrokenPipeError):  # its last words say why
                process.stdin.write(json.dumps({"Fasta": request}).encode() + b"\n")
                process.stdin.flush()
            for line in process.stdout:
                if not line.startswith(b"{"):
                    said.append(line.decode(errors="replace").rstrip("\n"))
                elif ended := json.loads(line).get("Ended"):
                    if ended["exit"] > 1 or ended["message"]:
                        raise PlmkitError(ended["exit"], _spelled(f"{ended['message']}", folder))
                    return [line for line in said if ": warning: " in line]
            raise _death(process.wait(), said)
        except BaseException as error:
            if getattr(error, "code", 70) not in (1, 2, 65, 66):  # those are of the input
                self._drop()
            raise

    def _drop(self) -> None:
        self._end()
        self._process = None

    def _start(self) -> None:
        """Starts the child, from a thread that lives as long: the kernel ends a child with the thread that started it."""
        failed: list[BaseException] = []
        is_started = threading.Event()
        target = (weakref.ref(self), self._words["gpu_embed"], is_started, failed)
        threading.Thread(target=_keep, args=target, name="plmkit", daemon=True).start()
        is_started.wait()
        if failed:
            raise failed[0]


def _keep(model: weakref.ref[Model], words: list[str], is_started: threading.Event, failed: list[BaseException]) -> None:
    try:
        process = started("gpu-embed", words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        owner, pid = model(), os.getpid()
        if owner is None:
            return _end(process, pid)
        owner._process, owner._end = process, weakref.finalize(owner, _end, process, pid)
        del owner  # which may end before its child does
    except BaseException as error:  # noqa: BLE001  raised where the model is asked for
        failed.append(error)
        return None
    finally:
        is_started.set()
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def _spelled(message: str, folder: str | os.PathLike[str]) -> str:
    """A message with its hints as they are typed here, and without the folder of a call."""
    message = message.replace(f"{os.fspath(folder)}/", "").replace("--long-policy window", "windows=True")
    return re.sub(r"--(alphabet|duplicate-ids|invalid|long-policy) ([a-z-]+)", lambda hint: f'{hint[1].replace("-", "_")}="{hint[2]}"', message)


def _rows(path: Path) -> list[tuple[str, str]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [(row["id"], row["reason"]) for row in csv.DictReader(file)]


def _death(status: int, said: list[str]) -> PlmkitError:
    if status < 0:
        why = ", perhaps for lack of memory" if status == -signal.SIGKILL else ""
        return PlmkitError(70 if -status in BUGS else 75, f"gpu-embed: ended by signal {-status}{why}; the next call loads the model again")
    errors = [line for line in said if ": warning: " not in line]
    return PlmkitError(status or 75, errors[-1] if errors else f"gpu-embed: ended with exit code {status}")


def _end(process: subprocess.Popen[bytes], pid: int) -> None:
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
            for pipe in (process.stdin, process.stdout):
                pipe.raw.close()


os.register_at_fork(after_in_child=_forked)


class Embeddings:
    """Rows of proteins, in the order given: `ids`, `lengths`, and a column for each pooling and layer, such as `mean_33`."""

    def __init__(self, table: pyarrow.Table, rejected: list[tuple[str, str]]) -> None:
        self._table, self._made = table, {}
        self.rejected = rejected

    @property
    def ids(self) -> list[str]:
        return self._table["id"].to_pylist()

    @property
    def lengths(self) -> numpy.ndarray:
        return self["length"]

    @property
    def columns(self) -> list[str]:
        """The columns of vectors."""
        return [field.name for field in self._table.schema if hasattr(field.type, "value_type")]

    @property
    def vectors(self) -> numpy.ndarray:
        """The only column of vectors: (rows, channels); of residues, a list of (residues, channels)."""
        if len(self.columns) != 1:
            raise PlmkitError(2, f"vectors: expected one column, found {', '.join(self.columns) or 'none'}; embeddings['NAME'] is that of a name")
        return self[self.columns[0]]

    def __getitem__(self, name: str) -> numpy.ndarray | list[numpy.ndarray]:
        if name not in self._table.column_names:
            raise KeyError(f"{name}: expected a column, one of {', '.join(self._table.column_names)}")
        if name not in self._made:
            self._made[name] = _numpy(self._table[name].combine_chunks())
        return self._made[name]

    def __len__(self) -> int:
        return self._table.num_rows

    def __iter__(self) -> Iterator[tuple[str, numpy.ndarray]]:
        return iter(zip(self.ids, self.vectors))

    def __repr__(self) -> str:
        return f"<plmkit.Embeddings of {len(self)} rows: {', '.join(self.columns)}>"

    def to_arrow(self) -> pyarrow.Table:
        return self._table

    def to_pandas(self) -> pandas.DataFrame:
        _needs("pandas")
        return self._table.to_pandas()

    def to_anndata(self) -> anndata.AnnData:
        """The first column of poolings is X, others are in obsm; obs has the ids and lengths."""
        anndata, pandas = _needs("anndata"), _needs("pandas")
        pooled = {name: array for name in self.columns if getattr(array := self[name], "ndim", 0) == 2}
        if not pooled:
            raise PlmkitError(2, f"to_anndata: expected a column of poolings, found {', '.join(self.columns) or 'none'}")
        first, *others = pooled
        obs = pandas.DataFrame({"length": self.lengths, "truncated": self["truncated"]}, index=pandas.Index(self.ids, dtype=str))
        return anndata.AnnData(pooled[first], obs=obs, obsm={name: pooled[name] for name in others}, uns={"X": first})


def _numpy(array: pyarrow.Array) -> numpy.ndarray | list[numpy.ndarray]:
    import numpy
    import pyarrow

    if pyarrow.types.is_fixed_size_list(array.type):
        flat = array.flatten().to_numpy(zero_copy_only=False)
        return numpy.array(flat, numpy.float32 if flat.dtype == numpy.float16 else None).reshape(-1, array.type.list_size)
    if not pyarrow.types.is_list(array.type):
        return array.to_numpy(zero_copy_only=False)
    ends = numpy.cumsum(array.value_lengths().to_numpy(zero_copy_only=False))
    return numpy.split(_numpy(array.flatten()), ends[:-1]) if len(ends) else []


def _needs(package: str):  # noqa: ANN202
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise PlmkitError(69, f"{package}: not installed (pip install {package})") from error
