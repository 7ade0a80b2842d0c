"""The Nextflow workflow with the real engine: `python3 tests/workflows/nextflow [CHECK…]`, all but `slurm` where none is named."""

import sys
import tempfile
import time

import basics
import failures
import interface
import slurm
from case import Case

CHECKS = {
    "lint": interface.lint,
    "schema": interface.schema,
    "profiles": interface.profiles,
    "wrong": interface.wrong,
    "stub": basics.stub,
    "test": basics.profile_test,
    "samples": basics.two_samples,
    "transient": failures.transient,
    "final": failures.final,
    "rejected": failures.rejected,
    "verdict": failures.verdict,
    "term": lambda case: failures.killed(case, "TERM"),
    "kill": lambda case: failures.killed(case, "KILL"),
    "engine": failures.engine,
    "slurm": slurm.slurm,
}

unknown = [name for name in sys.argv[1:] if name not in CHECKS]
if unknown:
    sys.exit(f"no check {', '.join(unknown)}: there are {', '.join(CHECKS)}")
with tempfile.TemporaryDirectory() as folder:
    for name in sys.argv[1:] or [name for name in CHECKS if name != "slurm"]:
        start = time.monotonic()
        print(name, flush=True)
        CHECKS[name](Case(folder, name))
        print(f"  {time.monotonic() - start:.0f} s", flush=True)
