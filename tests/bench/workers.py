"""The peers, and the driver of one: a process that stays alive and does a repeat whenever it is asked to.

So the programs of a comparison can take turns, and whatever else the machine does hits them all alike. What is said to
it and what it answers are JSON objects, one a line; see peers/serve.py.
"""

import contextlib
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import machine
import parity
from results import FLOOR, Result

FOLDER = Path(__file__).parent / "peers"


@dataclass(frozen=True)
class Peer:
    """`FOLDER/name.py`, run by the Python of an environment."""

    name: str
    environment: str
    dtypes: tuple
    needs: frozenset = frozenset()  # one of these instructions
    families: tuple = ("esm2",)  # of models

    def lacks(self, dtype, family):
        """Why it does not run here, or none."""
        if family not in self.families:
            return f"it computes no {family}"
        return machine.lacks(self.needs) or machine.lacks(machine.FAST.get(dtype))


PEERS = [
    Peer("hugging-face", "reference", ("f32", "bf16", "int8"), families=("esm2", "esmc")),
    Peer("fair-esm", "reference", ("f32",)),
    # It has AVX-512 kernels, and beside them only the reference that they are tested with.
    Peer("esm-cpp", "esm-cpp", ("f32", "int8"), frozenset({"avx512f"})),
]
GEMM = Peer(FLOOR, "reference", ("f32", "bf16", "int8"), families=("esm2", "esmc"))


class PeerFailed(Exception):
    """A peer ended or computes something else; the message says which and why."""


class Worker:
    """A peer in one type, with a model loaded."""

    def __init__(self, peer, dtype, subject, options):
        """`subject` is the model and the proteins: see rounds.Subject."""
        self.name = f"{peer.name} {dtype}"
        self.log = options.folder / "logs" / f"{peer.name}-{dtype}-{subject.model}-{subject.input}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        threads = str(options.threads)
        environment = {"PYTHONPATH": str(parity.FOLDER), "OMP_NUM_THREADS": threads, "ESM_NUM_THREADS": threads}
        with self.log.open("w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [options.environments / peer.environment / "bin/python", FOLDER / f"{peer.name}.py"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | environment,
            )
        pairs = [[protein.accession, protein.sequence] for protein in subject.proteins]
        job = {"model": str(subject.checkpoint), "dtype": dtype, "threads": options.threads, "proteins": pairs}
        self.versions = self.ask(job)
        prepared = self.ask("prepare")
        self.vectors = prepared["vectors"]
        self.result = Result(
            "embed", peer.name, 0, dtype, subject.model, subject.input, batch_tokens=prepared["batch_tokens"]
        )
        self.results = [self.result]

    def ask(self, request):
        try:
            print(json.dumps(request), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            *_, last = self.log.read_text(encoding="utf-8").splitlines() or ["it said nothing"]
            raise PeerFailed(f"{self.name} ended with {self.process.wait()}: {last} ({self.log})")
        return json.loads(line)

    def once(self):
        done = self.ask("run")
        self.result.tokens = done["tokens"]
        self.result.seconds.append(done["seconds"])

    def close(self):
        with contextlib.suppress(BrokenPipeError):  # of one that has failed
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
