"""The Nextflow workflow with the real engine: `python3 tests/workflows/nextflow [CHECK…]`, all but `multiqc` where none is named."""

import concurrent.futures
import subprocess
import sys
import tempfile
import time

import basics
import failures
import interface
import modules
import slurm
from case import HERE, Case

CHECKS = {
    "samples": basics.two_samples,
    "batch_size": basics.batch_size,
    "estimate": basics.estimate,
    "wrong": interface.wrong,
    "unknown": interface.unknown,
    "repository": interface.repository,
    "told": interface.told,
    "hub": interface.hub,
    "empty": interface.empty,
    "profiles": interface.profiles,
    "lint": interface.lint,
    "schema": interface.schema,
    "container": interface.container,
    "stub": basics.stub,
    "test": basics.profile_test,
    "turns": basics.turns,
    "transient": failures.transient,
    "final": failures.final,
    "verdict": failures.verdict,
    "cohort": failures.cohort,
    "ignored": failures.ignored,
    "page": failures.pageless,
    "weights": basics.weights,
    "term": lambda case: failures.killed(case, "TERM", keeps=True),
    "kill": lambda case: failures.killed(case, "KILL", keeps=False),
    "engine": failures.engine,
    "outlived": failures.outlived,
    "modules": modules.modules,
    "slurm": slurm.slurm,
}
# Needs MultiQC: where it is named.
NAMED = {"multiqc": basics.multiqc}

unknown = [name for name in sys.argv[1:] if name not in CHECKS | NAMED]
if unknown:
    sys.exit(f"no check {', '.join(unknown)}: there are {', '.join(CHECKS | NAMED)}")


def alone(name):
    """One check, in a process of its own."""
    start = time.monotonic()
    done = subprocess.run([sys.executable, HERE, name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(f"{name}: {time.monotonic() - start:.0f} s\n{done.stdout}", end="", flush=True)
    return name if done.returncode else None


if len(sys.argv) == 2:
    with tempfile.TemporaryDirectory() as folder:
        (CHECKS | NAMED)[sys.argv[1]](Case(folder, sys.argv[1]))
else:
    # Gets the engine, once for all.
    subprocess.run([HERE / "engine/nextflow", "-version"], check=True, stdout=subprocess.DEVNULL)
    names = sys.argv[1:] or CHECKS
    # The start of an engine keeps one core busy.
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        failed = [name for name in pool.map(alone, names) if name]
    if failed:
        sys.exit(f"FAILED: {', '.join(failed)}")
