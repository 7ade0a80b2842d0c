"""The whole program beside transformers, against what the device can do."""

import json
from dataclasses import dataclass

import machine
import models
from peer import Peer
from programs import events

# Shares of the GEMM rate and of the time of the run, and times as fast as transformers.
MFU, IDLE, PEER = 0.60, 0.05, 3.0
# Lowest cosine of a mean vector with that of f32.
LEAST = {"f32": 0.999999, "f16": 0.9999, "bf16": 0.999}
WORK = {"gemm_ms": "matrix products", "attention_ms": "attention", "between_ms": "between", "pooling_ms": "pooling"}


@dataclass
class Case:
    """A model, proteins, and what is known of them."""

    name: str
    model: object
    proteins: list
    budget: int
    dtypes: list
    # Of the type in which transformers computes.
    peer: str

    def __post_init__(self):
        self.config = models.config(self.model)
        lengths = [len(sequence) + 2 for _, sequence in self.proteins]
        self.tokens = sum(lengths)
        self.flops = machine.flops_per_token(self.config, sum(length**2 for length in lengths) / self.tokens)
        self.some = self.proteins[: max(1, len(self.proteins) // 8)]


def cases(bench):
    if bench.device != "cuda":
        # Figures of a CPU say nothing of a GPU: that this part works is all that they show.
        model = models.small("8M", bench.folder)
        yield Case("8M", model, models.proteins(6_000, seed=4), 2048, ["f32"], "f32")
        return
    sizes = [("650M", 300_000)] if bench.quick else [("650M", 3_000_000), ("3B", 600_000)]
    for name, tokens in sizes:
        model = models.full(name, bench.folder)
        dtypes = ["f16", "bf16"] if name == "650M" else ["f16"]
        yield Case(name, model, models.proteins(tokens, seed=4), 65536, dtypes, "f16")


def speed(bench):
    rates = machine.Rates(bench.device)
    copies = rates.copies()
    figure = ", ".join(f"{way} {rate / 1e9:,.0f}" for way, rate in copies.items())
    bench.row("speed", "copies, GB/s", figure, None, bytes=copies)
    gemm = {dtype: rates.gemm(dtype) for dtype in (LEAST if bench.device == "cuda" else ["f32"])}
    for dtype, rate in gemm.items():
        bench.row("speed", f"matrix product {dtype}", f"{rate / 1e12:,.2f} TFLOP/s", None, flops=rate)
    rates.forget()
    for case in cases(bench):
        batches = bench.programs.pack(f"speed-{case.name}", case.proteins, case.budget)
        few = bench.programs.pack(f"few-{case.name}", case.some, case.budget)
        exact = bench.path(f"{case.name}-f32.parquet")
        bench.programs.embed(few, case.model, exact, "--dtype", "f32")
        theirs = Peer(case.model, case.peer, bench.device).rate(case.some, case.budget)
        rates.forget()
        bench.row("speed", f"{case.name} {case.peer} transformers, padded", f"{theirs:,.0f} tokens/s", None, rate=theirs)
        for dtype in case.dtypes:
            floor = rates.floor(case.config, dtype, case.budget)
            rates.forget()
            known = {"gemm": gemm[dtype], "floor": floor, "theirs": theirs}
            # The larger the model, the longer it takes to load, and the less lies between its matrix products.
            ways = bench.kernels() if case.name != "3B" else {"": []}
            for way, options in ways.items():
                options = ["--dtype", dtype, *options]
                cosine = near(bench, case, f"{dtype}{way}", (few, exact), options)
                ours(bench, case, f"{dtype}{way}", batches, options, known | {"cosine": cosine, "dtype": dtype})
        everyone(bench, case, batches)


def near(bench, case, way, files, options):
    """The lowest cosine with f32 of some proteins; and what the device's time for them went into."""
    few, exact = files
    out, log = bench.path("few.parquet"), bench.path("few.jsonl")
    log.unlink(missing_ok=True)
    bench.programs.embed(few, case.model, out, *options, "--profile", "--events", log)
    found = events(log)[0]
    kernels = [batch["kernels"] for batch in found if "kernels" in batch]
    if kernels:
        sums = {name: sum(batch[key] for batch in kernels) for key, name in WORK.items()}
        copies = {way: sum(batch[key] for batch in found) for key, way in (("h2d_ms", "in"), ("d2h_ms", "out"))}
        whole = sum(sums.values()) or 1
        figure = ", ".join(f"{name} {taken / whole:.0%}" for name, taken in sums.items())
        figure += "; beside it copies " + ", ".join(f"{way} {taken / whole:.1%}" for way, taken in copies.items())
        bench.row("speed", f"{case.name} {way}: its time", figure, None, kernels_ms=sums, copies_ms=copies)
    return bench.programs.cosine(out, exact)


def ours(bench, case, way, batches, options, known):
    """One run, with the figures that are asked of it."""
    out, log, samples = bench.path("speed.parquet"), bench.path("speed.jsonl"), bench.path("speed.csv")
    report = bench.path("speed.json")
    for old in (log, samples):
        old.unlink(missing_ok=True)
    command = bench.programs.embed_command(batches, case.model, out, "--events", log, *options)
    bench.programs.run("monitor-log", "record", "--out", samples, "--interval", "200ms", "--", *command)
    bench.programs.run("monitor-log", "report", "--gpu", samples, "--events", log, "--out", report)
    found = json.loads(report.read_text(encoding="utf-8"))
    run = found["events"]["runs"][-1]
    rate, residues = run["throughput"]["tokens_per_s"], run["throughput"]["residues_per_s"]
    taken = {name: stage["total_ms"] / 1e3 for name, stage in run["stages"].items() if isinstance(stage, dict)}
    idle = 1 - taken["compute"] / run["elapsed_s"]
    beside = sum(taken.get(stage, 0) for stage in ("h2d", "d2h", "write"))
    # Of copies and writing, what lies beside computing: all else than computing took no longer than the run was idle.
    overlap = max(0.0, 1 - (run["elapsed_s"] - taken["compute"]) / beside) if beside else 1.0
    busy = [gpu["mean_utilization"] for gpu in found["samples"]["gpus"] if gpu["in_run"]] if found["samples"] else []
    mfu = rate * case.flops / known["gemm"]
    figure = (
        f"{rate:,.0f} tokens/s, {residues:,.0f} residues/s, {mfu:.0%} of GEMM, {rate / known['floor']:.0%} of floor, "
        f"{rate / known['theirs']:.2f} x transformers, idle {idle:.1%}, {overlap:.0%} overlapped, cosine {known['cosine']:.6f}"
    )
    met = mfu >= MFU and rate >= PEER * known["theirs"] and idle < IDLE and known["cosine"] >= LEAST[known["dtype"]]
    # The ways that are only there to compare with have nothing to meet, nor has a CPU.
    met = met if bench.device == "cuda" and "--kernels" not in options else None
    figures = {"rate": rate, "residues": residues, "mfu": mfu, "idle": idle, "overlap": overlap, "nvml_utilization": busy}
    bench.row("speed", f"{case.name} {way}", figure, met, **figures, **known, stages_s=taken)


def everyone(bench, case, batches):
    """All GPUs beside one; on a CPU two workers beside one process."""
    count = machine.torch.cuda.device_count() if bench.device == "cuda" else 2
    if count < 2:
        bench.row("speed", f"{case.name} all GPUs", "not tried: there is one", None)
        return
    device, options = ("all", []) if bench.device == "cuda" else ("cpu", ["--workers", "2"])
    rates, outs = [], []
    for name, device, options in (("one", bench.device, []), ("all", device, options)):
        log = bench.path(f"{name}.jsonl")
        outs.append(bench.path(f"{name}.parquet"))
        log.unlink(missing_ok=True)
        common = ["--dtype", case.dtypes[0], "--events", log, *options]
        bench.programs.embed(batches, case.model, outs[-1], *common, device=device)
        done = events(log)[1]
        rates.append(done["tokens"] / done["elapsed_s"])
    same = outs[0].read_bytes() == outs[1].read_bytes()
    figure = f"{rates[1]:,.0f} tokens/s, {rates[1] / rates[0]:.2f} x one of {count}, {'same' if same else 'other'} bytes"
    bench.row("speed", f"{case.name} {case.dtypes[0]} all GPUs", figure, same, one=rates[0], all=rates[1], count=count)
