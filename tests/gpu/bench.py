"""What a case is given: programs, folders, options, and rows to write."""

import json
import math
import os
import shutil
import time
import traceback
from pathlib import Path

import cases
from programs import Failed, Programs
from report import ABSENT, FAILED, MET, MISSED, NOT_JUDGED, earlier

# What comes back of a stage beside its report and its log.
FILES, FILE_BYTES = 6, 16 << 20


def finite(value):
    """JSON has no NaN and no infinity: they are null."""
    if isinstance(value, dict):
        return {str(key): finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Bench:
    def __init__(self, options, case, rows):
        self.case, self.rows, self.options = case, rows, options
        self.device, self.quick = options.device, options.quick
        self.work, self.out = options.work, options.out
        self.programs = Programs(os.environ["PROGRAMS"], options.device, self.work / "cases" / case, options.values_unchecked)
        self.folder = self.programs.work
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.last = time.monotonic()

    @property
    def on_gpu(self):
        return self.device == "cuda"

    @property
    def types(self):
        if not self.on_gpu:
            return ["f32"]
        import torch

        return ["f32", "f16", "bf16"] if torch.cuda.get_device_capability() >= (8, 0) else ["f32", "f16"]

    @property
    def has_fp8(self):
        import torch

        return self.on_gpu and torch.cuda.get_device_capability() >= (8, 9)

    def path(self, name):
        return self.folder / name

    def row(self, what, text, met=None, figures=None, **more):
        """`met` is none for a figure that nothing is asked of. A row's time is that since the row before."""
        now = time.monotonic()
        verdict = met if isinstance(met, str) else {True: MET, False: MISSED, None: NOT_JUDGED}[met]
        taken, self.last = now - self.last, now
        found = cases.row(self.case, what, verdict, taken, text, figures, **more)
        os.write(self.rows, json.dumps(finite(found), default=str).encode() + b"\n")

    def values(self, what, text, met, figures=None, **more):
        """A row about the values of vectors, which mean nothing on a device that computes none."""
        if self.options.values_unchecked:
            text, met = f"{text} (values are not looked at)", None
        self.row(what, text, met, figures, **more)

    def speed(self, what, text, met, figures=None, **more):
        """A row about speed, of which only that of a GPU that computes is judged."""
        judged = self.on_gpu and not self.quick and not self.options.values_unchecked
        self.row(what, text, met if judged else None, figures, **more)

    def absent(self, what, text):
        self.row(what, text, ABSENT)

    def each(self, tries):
        """Runs each of (name, function): a failure is a row and the next one is run."""
        for what, work in tries:
            try:
                work()
            except Exception as error:
                self.failure(what, error)

    def failure(self, what, error):
        said = error.stderr if isinstance(error, Failed) else ""
        text = " ".join(f"{type(error).__name__}: {error}".split())
        self.row(what, text[:400], FAILED, traceback=traceback.format_exc()[-4000:], stderr=said)

    def earlier(self, case, what):
        return earlier(self.out / "report.json", case, what)

    def keep(self, path, name):
        """Brings a file back, unless that is too much."""
        if len(list(self.out.glob("*"))) < FILES + 2 and Path(path).stat().st_size <= FILE_BYTES:
            shutil.copyfile(path, self.out / name)
