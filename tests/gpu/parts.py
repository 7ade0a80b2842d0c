"""The parts of the acceptance, each a function of a bench: what was tried, what came of it, and whether that is as it should be."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import models
import reference_file
from peer import Peer
from programs import Failed, Programs, events
from speed import speed

# Lowest cosine with our own f32 on the CPU: of pooled vectors, and of residues and logits.
FLOORS = {"f32": (0.999999, 0.99999), "f16": (0.9999, 0.999), "bf16": (0.999, 0.99)}


@dataclass
class Bench:
    programs: Programs
    folder: Path
    device: str
    quick: bool
    rows: list = field(default_factory=list)

    def row(self, part, case, figure, met, **more):
        """`met` is None for a figure that nothing is asked of."""
        self.rows.append({"part": part, "case": case, "figure": figure, "met": met, **more})
        verdict = {True: "ok", False: "NOT MET", None: ""}[met]
        print(f"{part:12} {case:44} {figure:44} {verdict}", flush=True)

    def path(self, name):
        return self.folder / name

    def kernels(self):
        """Options of the ways to compute, the best first."""
        return {"": [], " --kernels libtorch": ["--kernels", "libtorch"]}


def correctness(bench):
    """All sizes of heads, types and ways to compute, against the CPU in f32 and transformers on the same device."""
    proteins = models.proteins(3_000, seed=1) + [("short", "M"), ("odd", "MXBZUO")]
    batches = bench.programs.pack("correct", proteins, 2048)
    outputs = {"pooled": ["--pool", "mean,max,std,bos", "--layers", "all"], "residues": ["--residues", "--logits"]}
    for name in models.HEADS[:2] if bench.quick else models.HEADS:
        model = models.small(name, bench.folder)
        own = {}
        for kind, options in outputs.items():
            own[kind] = bench.path(f"cpu-{name}-{kind}.parquet")
            bench.programs.embed(batches, model, own[kind], "--dtype", "f32", *options, device="cpu")
        theirs = bench.path(f"transformers-{name}.parquet")
        last = f"mean_{models.LAYERS}"
        reference_file.write(theirs, last, Peer(model, "f32", bench.device).vectors(proteins))
        for dtype, floors in FLOORS.items():
            for way, options in bench.kernels().items():
                out = bench.path("tried.parquet")
                wanted = [option for options in outputs.values() for option in options]
                bench.programs.embed(batches, model, out, "--dtype", dtype, *options, *wanted)
                # Of the columns, those that the reference has.
                found = {kind: bench.programs.cosine(out, reference) for kind, reference in own.items()}
                found["transformers"] = bench.programs.cosine(out, theirs)
                met = all(found[kind] >= floor for kind, floor in zip(outputs, floors, strict=True))
                met = met and found["transformers"] >= floors[0]
                figure = ", ".join(f"{kind} {cosine:.7f}" for kind, cosine in found.items())
                bench.row("correctness", f"{name} {dtype}{way}", figure, met, **found)


def memory(bench):
    """Packs that do not fit are halved, and the vectors are the same."""
    proteins = models.proteins(200_000 if bench.device == "cuda" else 20_000, seed=2)
    model = models.small("3B" if bench.device == "cuda" else "8M", bench.folder)
    batches = bench.programs.pack("memory", proteins, 65536 if bench.device == "cuda" else 8192)
    roomy, tight, log = bench.path("roomy.parquet"), bench.path("tight.parquet"), bench.path("tight.jsonl")
    log.unlink(missing_ok=True)
    bench.programs.embed(batches, model, roomy)
    # On a CPU memory is not what runs out: the failure is made.
    squeeze = [] if bench.device == "cuda" else ["--inject", "out-of-memory-above=3000"]
    with Hog(bench.device, leave=2 << 30):
        bench.programs.embed(batches, model, tight, "--events", log, *squeeze)
    splits = sum(batch["oom_splits"] for batch in events(log)[0])
    cosine = bench.programs.cosine(tight, roomy)
    bench.row("memory", "packs that do not fit", f"{splits} halved, lowest cosine {cosine:.7f}", splits > 0 and cosine > 0.9999)


class Hog:
    """Another program that leaves so many bytes of the GPU's memory."""

    CODE = (
        "import sys, torch; free, _ = torch.cuda.mem_get_info(); "
        "held = torch.empty(max(0, free - int(sys.argv[1])), dtype=torch.uint8, device='cuda'); "
        "print('held', flush=True); sys.stdin.read()"
    )

    def __init__(self, device, leave):
        self.needed, self.leave = device == "cuda", leave

    def __enter__(self):
        if self.needed:
            python = [sys.executable, "-c", self.CODE, str(self.leave)]
            self.process = subprocess.Popen(python, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            if self.process.stdout.readline() != "held\n":
                raise Failed("the memory of the GPU could not be filled")

    def __exit__(self, *_):
        if self.needed:
            self.process.stdin.close()
            self.process.wait()


def probe(bench):
    """The number of tokens that fit, and that a run with as many does."""
    model = models.small("650M", bench.folder)
    squeeze = [] if bench.device == "cuda" else ["--inject", "out-of-memory-above=5000"]
    found, said = bench.programs.run("gpu-embed", "--probe", "--model", model, "--device", bench.device, *squeeze)
    bench.row("probe", "650M, two layers", f"{found.strip()} tokens recommended", int(found) > 0, said=said.strip())


def kills(bench):
    """A run that is killed goes on, to the same bytes; so does one whose workers are killed."""
    proteins = models.proteins(1_000_000 if bench.device == "cuda" else 60_000, seed=3)
    model = models.small("650M" if bench.device == "cuda" else "8M", bench.folder)
    # Many small batches: the run must last until it was killed twice.
    batches = bench.programs.pack("kills", proteins, 2048 if bench.device == "cuda" else 1024)
    whole, killed = bench.path("whole.parquet"), bench.path("killed.parquet")
    bench.programs.embed(batches, model, whole)
    options = [option for option in bench.programs.embed_command(batches, model, killed) if option != "--force"]
    killed.unlink(missing_ok=True)
    for _ in range(2):
        process = subprocess.Popen([*options, "--save-every", "10ms"], stderr=subprocess.DEVNULL)
        parts = bench.folder / ".killed.parquet.plmkit-run"
        before = len(list(parts.glob("part-*")))
        while process.poll() is None and len(list(parts.glob("part-*"))) < before + 2:
            time.sleep(0.002)
        process.kill()
        process.wait()
    said = bench.programs.run("gpu-embed", *options[1:])[1]
    same = killed.read_bytes() == whole.read_bytes()
    bench.row("kills", "killed twice, then run", "same bytes" if same else "other bytes", same and "saved by an earlier run" in said)

    out = bench.path("workers.parquet")
    several = ["all", []] if bench.device == "cuda" else ["cpu", ["--workers", "2"]]
    command = bench.programs.embed_command(batches, model, out, *several[1], device=several[0])
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    hit = False
    while process.poll() is None and not hit:
        time.sleep(0.5)
        for child in children.read_text(encoding="utf-8").split()[:1]:
            os.kill(int(child), signal.SIGKILL)
            hit = True
    said = process.communicate()[1]
    same = process.returncode == 0 and out.read_bytes() == whole.read_bytes()
    figure = "same bytes" if same else f"exit code {process.returncode}: {said.strip()[-200:]}"
    bench.row("kills", "a worker killed, replaced", figure, same and "another takes its place" in said)


PARTS = {part.__name__: part for part in (correctness, memory, probe, kills, speed)}


def write(bench, about, path):
    path.write_text(json.dumps({**about, "rows": bench.rows}, indent=1) + "\n", encoding="utf-8")
