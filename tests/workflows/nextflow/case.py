"""A folder in which the workflow is run, with the real engine and the real programs."""

import csv
import os
import signal
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
WORKFLOW = ROOT / "workflows/nextflow"
RELEASE = ROOT / "target/release"
MODEL = ROOT / "test-data/model-tiny"
PROTEINS = ROOT / "test-data/proteins.fasta"


def check(what, holds, told=""):
    """Prints a check, and ends the tests with what was told where it does not hold."""
    print(f"  {'ok' if holds else 'FAILED'}: {what}", flush=True)
    if not holds:
        sys.exit(f"{told}\nFAILED: {what}")


class Run:
    """How the workflow ended, what it said, and what its tasks did."""

    def __init__(self, code, said, trace):
        self.code, self.said = code, said
        self.tasks = list(csv.DictReader(trace.open(), delimiter="\t")) if trace.exists() else []

    def of(self, process, status=None):
        """Tasks of a process, with a status where one is given."""
        tasks = [task for task in self.tasks if task["process"].split(":")[-1] == process]
        return [task for task in tasks if status in (None, task["status"])]

    def computed(self):
        """Tasks that were not taken from an earlier run."""
        return [task for task in self.tasks if task["status"] != "CACHED"]


class Case:
    """A launch folder with its own results, work folder and cache."""

    def __init__(self, parent, name):
        self.folder = Path(parent) / name
        self.programs = self.folder / "programs"
        self.programs.mkdir(parents=True)
        engine = HERE / "engine"
        self.env = dict(os.environ, PATH=f"{self.programs}:{engine}:{RELEASE}:{os.environ['PATH']}")
        # The engine's own configuration, below that of any workflow.
        home = self.path("home")
        home.mkdir()
        shutil.copy(HERE / "machine.config", home / "config")
        # The parser that this engine takes by itself.
        self.env.update(NXF_SYNTAX_PARSER="v1", NXF_ANSI_LOG="false", NXF_HOME=str(home))

    def strict(self):
        """From now on with the strict parser, which is that of later engines."""
        self.env["NXF_SYNTAX_PARSER"] = "v2"

    def path(self, name):
        return self.folder / name

    def wrapper(self, program, script):
        """A program that goes before the real one, which its script knows as $real."""
        path = self.programs / program
        path.write_text(f"#!/usr/bin/env bash\nreal={RELEASE}/{program}\nonce={self.folder}/{program}.once\n{script}")
        path.chmod(0o755)

    def start(self, *options, workflow=WORKFLOW):
        """A workflow, ours unless another is named, in a process group of its own."""
        trace = self.path("trace.txt")
        trace.unlink(missing_ok=True)
        command = ["nextflow", "run", workflow, "-with-trace", "trace.txt", "--outdir", "out", *options]
        out = self.path("said.txt").open("w")
        return subprocess.Popen(command, cwd=self.folder, env=self.env, stdout=out, stderr=out, start_new_session=True)

    def run(self, *options, **which):
        engine = self.start(*options, **which)
        try:
            code = engine.wait(timeout=300)
        except subprocess.TimeoutExpired:
            os.killpg(engine.pid, signal.SIGKILL)
            sys.exit(f"{self.path('said.txt').read_text()}\nFAILED: the engine has not ended after 300 s")
        return Run(code, self.path("said.txt").read_text(), self.path("trace.txt"))

    def saved(self):
        """Parts that interrupted tasks have left."""
        return sorted(self.path("saved").glob(".*.plmkit-run/part-*[0-9].parquet"))

    def kill(self, engine, parts, tasks=signal.SIGKILL):
        """kill -9 of the engine, and this signal to its tasks, as soon as so many parts are saved."""
        self.wait(engine, "something is saved", lambda: len(self.saved()) >= parts)
        self.signal(tasks)
        engine.send_signal(signal.SIGKILL)
        engine.wait()

    def wait(self, engine, what, holds):
        """Waits for something that comes while the engine runs."""
        deadline = time.monotonic() + 120
        while not holds():
            if engine.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{self.path('said.txt').read_text()}\nFAILED: waited in vain: {what}")
            time.sleep(0.01)

    def signal(self, number):
        """To all processes of tasks: each task leads a group of its own, and all have their folder here."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if (process / "cwd").resolve().is_relative_to(self.path("work")):
                    os.kill(int(process.name), number)
            except (OSError, RuntimeError):
                pass

    def plmkit(self, samples, options, out="plmkit"):
        """The same by plmkit."""
        command = ["plmkit", samples, "--out", out, "--model", MODEL, *options]
        done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True)
        check("plmkit runs", done.returncode == 0, done.stderr)

    def compare(self, left, right):
        """Checks that two folders of results are those of one dataset."""
        left, right = self.path(left), self.path(right)
        layout = names(left), names(right)
        check(f"{left.name} and {right.name} have one layout, {len(layout[0])} files", layout[0] == layout[1], layout)
        data = [name for name in layout[0] if name.endswith((".parquet", "rejects.csv", "manifest.json")) or "/rejects/" in name]
        differing = [name for name in data if (left / name).read_bytes() != (right / name).read_bytes()]
        rows = [name for name in data if "/embeddings/" in name and name.endswith(".parquet")]
        check(f"equal byte for byte: {len(rows)} embeddings, {len(data)} files", rows and not differing, differing)


def names(folder):
    """Files of the results of samples."""
    found = [path.relative_to(folder) for path in folder.glob("*/**/*") if path.is_file()]
    return sorted(str(path) for path in found if path.parts[0] not in ("multiqc", "pipeline_info"))


def many(path, copies):
    """The test proteins several times over, for runs that take long enough to be killed."""
    with path.open("wb") as out:
        for _ in range(copies):
            with PROTEINS.open("rb") as proteins:
                shutil.copyfileobj(proteins, out)
