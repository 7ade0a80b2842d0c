"""Memory that runs out, kills, two runs at once, a larger model, what monitor-log sees of a card, and changes to be judged."""

import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import models
from cases import Case
from programs import Failed, command_name, events
from stage_b import LEAST, narrow, run, spread

# Column of monitor-log: nvidia-smi's name for it, and how far both may be apart at a time: a share, or units.
COLUMNS = {
    "gpu_util": ("utilization.gpu", 0.1, 10),
    "mem_util": ("utilization.memory", 0.2, 10),
    "mem_used_mib": ("memory.used", 0.1, 600),
    "mem_total_mib": ("memory.total", 0.02, 0),
    "temperature_c": ("temperature.gpu", 0, 4),
    "power_w": ("power.draw", 0.15, 20),
    "power_limit_w": ("enforced.power.limit", 0.01, 1),
    "sm_clock_mhz": ("clocks.sm", 0.1, 60),
    "mem_clock_mhz": ("clocks.mem", 0.02, 10),
    "ecc_corrected": ("ecc.errors.corrected.volatile.total", 0, 0),
    "ecc_uncorrected": ("ecc.errors.uncorrected.volatile.total", 0, 0),
}
SAME = {"name": "name", "uuid": "uuid", "index": "index"}


def model_of(bench):
    return models.folder(bench, "8M-3" if bench.quick else "650M-33")


def make_models(bench):
    models.make(bench, ["8M", "8M-3"] if bench.quick else ["650M-33", "3B"])


def larger_model(bench):
    """Beside the others: it takes as long as they do."""
    models.make(bench, ["8M-3"] if bench.quick else ["3B-12"])


class Hog:
    """Another program that leaves so many bytes of the GPU's memory."""

    CODE = (
        "import sys, torch; free, _ = torch.cuda.mem_get_info(); "
        "held = torch.empty(max(0, free - int(sys.argv[1])), dtype=torch.uint8, device='cuda'); "
        "print('held', flush=True); sys.stdin.read()"
    )

    def __init__(self, bench, leave):
        self.needed, self.leave = bench.on_gpu, leave
        self.process = None

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


def memory(bench):
    """Batches that do not fit beside another program are halved, and the vectors are the same."""
    model = models.folder(bench, "8M" if bench.quick else "3B")
    proteins = models.proteins(20_000 if bench.quick else 200_000, seed=2)
    batches = bench.programs.pack("memory", proteins, 8192 if bench.quick else 65536)
    roomy, tight, log = bench.path("roomy.parquet"), bench.path("tight.parquet"), bench.path("tight.jsonl")
    bench.programs.embed(batches, model, roomy)
    # What is small, or on a CPU, runs out of no memory: the failure is made.
    squeeze = [] if bench.on_gpu and not bench.quick else ["--inject", "out-of-memory-above=3000"]
    with Hog(bench, leave=2 << 30):
        bench.programs.embed(batches, model, tight, "--events", log, *squeeze)
    splits = sum(batch["oom_splits"] for batch in events(log)[1])
    bench.row("batches that do not fit", f"{splits} halved", splits > 0, {"splits": splits})
    cosine = min(bench.programs.cosines(tight, roomy).values(), default=float("nan"))
    bench.values("their vectors", f"lowest cosine {cosine:.7f}, {same_bytes(tight, roomy)}", cosine > 0.9999, {"cosine": cosine})


def probe(bench):
    """The number of tokens that fit, and a run with as many."""
    model, log = model_of(bench), bench.path("probe.jsonl")
    squeeze = [] if bench.on_gpu else ["--inject", "out-of-memory-above=5000"]
    found, _ = bench.programs.run("gpu-embed", "--probe", "--model", model, "--device", bench.device, "--events", log, *squeeze)
    tokens = int(found)
    said = json.loads(log.read_text(encoding="utf-8").splitlines()[-1])
    bench.row("probe", f"{tokens} tokens recommended, {said['largest_tokens']} fit, {said['tries']} tries", tokens > 0, said)
    batches = bench.programs.pack("probed", models.proteins(int(2.2 * tokens), seed=7), tokens)
    bench.programs.embed(batches, model, bench.path("out.parquet"), "--events", log, *squeeze)
    _, done_batches, done = events(log)
    splits, rate = sum(batch["oom_splits"] for batch in done_batches), done["tokens"] / done["elapsed_s"]
    bench.row("run with as many", f"{rate:,.0f} tokens/s, {splits} halved", splits == 0, {"splits": splits, "tokens_per_s": rate})


def same_bytes(one, other):
    return "same bytes" if one.read_bytes() == other.read_bytes() else "other bytes"


def compared(bench, what, out, whole, met=True, said=""):
    """The same work done otherwise gives the same file. Where it does not, how far its vectors are is told."""
    same = same_bytes(out, whole)
    if same == "other bytes":
        same += f", lowest cosine {min(bench.programs.cosines(out, whole).values(), default=float('nan')):.8f}"
    bench.row(what, f"{said}{same}", met and same == "same bytes")


def many_batches(bench):
    """Small ones, so that a run lasts until it is killed."""
    small = 400_000 if bench.on_gpu else 25_000
    proteins = models.proteins(small if bench.quick else 1_500_000, seed=3)
    return bench.programs.pack("many", proteins, 1024 if bench.quick else 4096)


def kills(bench):
    """A run that is killed twice goes on, to the same bytes."""
    model, batches = model_of(bench), many_batches(bench)
    whole, killed = bench.path("whole.parquet"), bench.path("killed.parquet")
    bench.programs.embed(batches, model, whole)
    again = bench.path("again.parquet")
    bench.programs.embed(batches, model, again)
    compared(bench, "the same run twice", again, whole)
    command, parts, saved = bench.programs.embed_command(batches, model, killed), bench.folder / ".killed.parquet.plmkit-run", 0
    for _ in range(2):
        process = subprocess.Popen([*command, "--checkpoint-interval", "10ms"], stderr=subprocess.DEVNULL)
        while process.poll() is None and len(list(parts.glob("part-*"))) < saved + 2:
            time.sleep(0.002)
        process.kill()
        process.wait()
        saved = len(list(parts.glob("part-*")))
    said = bench.programs.run(*command_name(command), codes=(0, 1) if bench.programs.rejects else (0,))[1]
    goes_on = "saved by an earlier run" in said
    compared(bench, "killed twice, then run", killed, whole, goes_on, f"{saved} parts saved, {'' if goes_on else 'not '}taken over, ")


def two_runs(bench):
    """Two runs on one device at the same time: the bytes of one, and how fast."""
    model, batches = model_of(bench), many_batches(bench)
    whole, outs = bench.path("whole.parquet"), [bench.path(f"run-{run}.parquet") for run in (0, 1)]

    def command(out):
        log = out.with_suffix(".jsonl")
        log.unlink(missing_ok=True)
        return bench.programs.embed_command(batches, model, out, "--force", "--events", log)

    def rate(outs):
        ends = [events(out.with_suffix(".jsonl"))[2] for out in outs]
        return sum(end["tokens"] for end in ends) / max(end["elapsed_s"] for end in ends)

    accepted = (0, 1) if bench.programs.rejects else (0,)
    bench.programs.run(*command_name(command(whole)), codes=accepted)
    processes = [subprocess.Popen(command(out), stderr=subprocess.DEVNULL) for out in outs]
    codes = [process.wait() for process in processes]
    if any(code not in accepted for code in codes):
        raise Failed(f"two runs at once: exit codes {codes}")
    for out in outs:
        compared(bench, out.stem, out, whole, said=f"{rate(outs):,.0f} tokens/s, {rate(outs) / rate([whole]):.2f} x one run, ")


def large(bench):
    """A model of 3B's width: loading, values against the CPU in f32, and speed."""
    model = models.folder(bench, "8M-3" if bench.quick else "3B-12")
    proteins, dtype = models.proteins(10_000 if bench.quick else 400_000, seed=8), "f16" if bench.on_gpu else "f32"
    start = time.monotonic()
    first = bench.programs.pack("first", proteins[:1], 65536)
    bench.programs.embed(first, model, bench.path("first.parquet"), "--dtype", dtype)
    bench.row("one protein", f"{time.monotonic() - start:.1f} s with loading", None, {"seconds": time.monotonic() - start})
    log = bench.path("large.jsonl")
    bench.programs.embed(bench.programs.pack("all", proteins, 65536), model, bench.path("all.parquet"), "--dtype", dtype, "--events", log)
    begin, _, done = events(log)
    rate = done["tokens"] / done["elapsed_s"]
    bench.row("speed", f"{rate:,.0f} tokens/s in {dtype}", None, {"tokens_per_s": rate, "load_ms": begin.get("load_ms")})
    few, exact, out = bench.programs.pack("few", proteins[:5], 65536), bench.path("exact.parquet"), bench.path("out.parquet")
    bench.programs.embed(few, model, exact, "--dtype", "f32", device="cpu")
    bench.programs.embed(few, model, out, "--dtype", dtype)
    cosine = min(bench.programs.cosines(out, exact).values(), default=float("nan"))
    bench.values("values", f"lowest cosine with the CPU in f32 {cosine:.7f}", cosine >= 0.9999, {"cosine": cosine})


def devices(bench):
    """plmkit over all GPUs: two tasks on one device at once give the files of one run, and so does a run whose child is killed."""
    model, fasta = model_of(bench), bench.path("many.fasta")
    count, shard = (30_000, 5_000) if bench.quick else (1_500_000, 200_000)
    sequences = models.proteins(count, seed=3)
    fasta.write_text("".join(f">{one}\n{sequence}\n" for one, sequence in sequences), encoding="utf-8")

    def command(out, *options):
        common = ["--out", bench.path(out), "--model", model, "--max-shard-tokens", shard]
        return bench.programs.command("plmkit", fasta, *common, *options)

    def run(out, *options):
        # 1: values that mean nothing fail the validation.
        bench.programs.run(*command_name(command(out, *options)), codes=(0, 1) if bench.programs.rejects else (0,))

    def files(out):
        found = {path.name: path.read_bytes() for path in bench.path(out).glob("many/embeddings/*.parquet")}
        if len(found) < 2:
            raise Failed(f"{out}: expected embeddings of several shards, found {len(found)}")
        return found

    def same(what, out, said=""):
        is_same = files(out) == files("whole")
        bench.row(what, f"{said}{len(files('whole'))} shards, {'same' if is_same else 'other'} bytes", is_same)

    run("whole", "--device", bench.device)
    every = ["--device", "all" if bench.on_gpu else bench.device]
    run("every", *every)
    same("all devices", "every")
    one = ["--device", bench.device]
    run("tasks", *one, "--stage", "prepare")
    start = time.monotonic()
    tasks = [subprocess.Popen(command("tasks", *one, "--stage", "embed", "--task", f"{task}/2")) for task in (1, 2)]
    codes = [task.wait() for task in tasks]
    took = time.monotonic() - start
    if any(codes):
        raise Failed(f"two tasks at once: exit codes {codes}")
    same("two tasks at once", "tasks", f"{took:.1f} s, ")
    process = subprocess.Popen(command("killed", *every), stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(bench.path("killed").glob("many/embeddings/*.parquet")):
        time.sleep(0.01)
    with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="utf-8") as listed:
        children = listed.read().split()
    # On a CPU plmkit may have none: it is killed itself.
    os.kill(int(children[0]) if children else process.pid, 9)
    code = process.wait()
    run("killed", *every)
    same("one killed", "killed", f"exit code {code}, then ")


def monitor(bench):
    """monitor-log beside a run, and nvidia-smi at the same time."""
    model, samples = model_of(bench), bench.path("samples.csv")
    batches = bench.programs.pack("monitored", models.proteins(12_000 if bench.quick else 3_000_000, seed=9), 2048 if bench.quick else 65536)
    smi, theirs = shutil.which("nvidia-smi"), bench.path("nvidia-smi.csv")
    fields = ["timestamp", *SAME.values(), *(name for name, _, _ in COLUMNS.values())]
    beside = None
    if smi:
        query = [smi, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", "-lms", "500"]
        beside = subprocess.Popen(query, stdout=theirs.open("w"), env=os.environ | {"TZ": "UTC"})
    command = bench.programs.embed_command(batches, model, bench.path("out.parquet"), "--events", bench.path("events.jsonl"))
    try:
        record = ["record", "--out", samples, "--interval", "500ms", "--", *command]
        said = bench.programs.run("monitor-log", *record, codes=(0, 1) if bench.programs.rejects else (0,))[1]
    finally:
        if beside:
            beside.kill()
            beside.wait()
    bench.keep(samples, "samples.csv")
    bench.row("recorded", f"{len(samples.read_text(encoding='utf-8').splitlines()) - 1} samples", None, {}, stderr=said[-2000:])
    with samples.open(encoding="utf-8", newline="") as file:
        ours = list(csv.DictReader(file))
    if not ours:
        # As where there is no NVML.
        return bench.speed("samples", "none", False)
    filled = [column for column in ours[0] if any(row[column] for row in ours)]
    empty = [column for column in ours[0] if column not in filled]
    bench.row("columns", f"{len(filled)} have values; empty: {', '.join(empty) or 'none'}", None, {"filled": filled, "empty": empty})
    if not smi:
        return bench.absent("nvidia-smi", "not on the PATH")
    bench.keep(theirs, "nvidia-smi.csv")
    rows = [dict(zip(fields, map(str.strip, line.split(",")), strict=False)) for line in theirs.read_text(encoding="utf-8").splitlines()]
    compare_columns(bench, [row for row in ours if row["index"] == "0"], [row for row in rows if row.get("index") == "0"])
    report = bench.path("report.json")
    bench.programs.run("monitor-log", "report", "--gpu", samples, "--events", bench.path("events.jsonl"), "--out", report)
    bench.row("report", "monitor-log report reads both logs", True, json.loads(report.read_text(encoding="utf-8")))


def compare_columns(bench, ours, theirs):
    """Values of the same moments, near enough, and what the medians of their differences are."""
    for column, name in SAME.items():
        mine, other = {row[column] for row in ours}, {row[name] for row in theirs}
        bench.row(column, f"{', '.join(sorted(mine))} | nvidia-smi {', '.join(sorted(other))}", bool(mine) and mine <= other)
    pairs = at_the_same_time(ours, theirs)
    for column, (name, share, units) in COLUMNS.items():
        both = [(number(mine[column]), number(other.get(name))) for mine, other in pairs]
        gives = [any(values[side] is not None for values in both) for side in (0, 1)]
        both = [values for values in both if None not in values]
        if not both:
            told = " | ".join(f"{who} {'a value' if found else 'none'}" for who, found in zip(("ours", "nvidia-smi"), gives, strict=True))
            # What neither gives, the card does not have.
            bench.row(column, told, False if any(gives) else None)
            continue
        apart, found, expected = (
            statistics.median(values) for values in ([abs(a - b) for a, b in both], [a for a, _ in both], [b for _, b in both])
        )
        tolerance = max(units, share * abs(expected))
        figures = {"ours": found, "nvidia_smi": expected, "apart": apart, "tolerance": tolerance, "pairs": len(both)}
        text = f"medians {found:g} | nvidia-smi {expected:g}, apart {apart:g} of {tolerance:g} at most"
        bench.row(column, text, apart <= tolerance, figures)


def at_the_same_time(ours, theirs):
    """Each of our samples with the one of nvidia-smi that is nearest, where that is within half a second."""
    seen = []
    for row in theirs:
        try:
            seen.append((datetime.strptime(row["timestamp"], "%Y/%m/%d %H:%M:%S.%f").replace(tzinfo=UTC), row))
        except ValueError:
            pass  # a line that was cut
    if not seen:
        raise Failed("nvidia-smi gave no sample")
    pairs = []
    for row in ours:
        moment = datetime.fromisoformat(row["timestamp"])
        at, nearest = min(seen, key=lambda one: abs(one[0] - moment))
        if abs(at - moment) <= timedelta(seconds=0.5):
            pairs.append((row, nearest))
    return pairs


def number(value):
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def switches(bench):
    """Changes that wait for a GPU's word (`switches/`), each in turns with the library as it is: speed and values."""
    libraries = sorted((bench.programs.folder.parent / "switches").glob("*.so"))
    if not libraries:
        return bench.absent("switches", "none was built: make gpu-switches")
    model, budget = model_of(bench), 2048 if bench.quick else 65536
    proteins = models.proteins(12_000 if bench.quick else 1_200_000, seed=4)
    few, batches = bench.programs.pack("few", proteins[:200], budget), bench.programs.pack("all", proteins, budget)
    exact, out = bench.path("exact.parquet"), bench.path("out.parquet")
    bench.programs.embed(few, model, exact, "--dtype", "f32")

    def one(dtype):
        environments = {"as it is": {}} | {library.stem: {"PLMKIT_CUDA": str(library)} for library in libraries}
        rates, seconds = [{name: [] for name in environments} for _ in range(2)]
        for _ in range(2):
            for name, environment in environments.items():
                figures = run(bench, batches, model, ["--dtype", dtype], **environment)
                rates[name].append(figures.get("steady_tokens_per_s", figures["tokens_per_s"]))
                seconds[name].append(figures["elapsed_s"] + (figures["load_ms"] or 0) / 1e3)
        for name, environment in environments.items():
            bench.programs.embed(few, model, out, "--dtype", dtype, **environment)
            cosine = min(bench.programs.cosines(out, exact).values(), default=float("nan"))
            ratio = max(rates[name]) / max(rates["as it is"])
            text = f"{max(rates[name]):,.0f} tokens/s after the first batch, {ratio:.3f} x, {min(seconds[name]):.2f} s with loading, "
            text += f"lowest cosine with f32 {cosine:.7f}"
            figures = {"ratio": ratio, "seconds": seconds[name], "cosine": cosine, **spread(rates[name])}
            bench.values(f"{name}, {dtype}", text, cosine >= LEAST[dtype], figures)

    bench.each([(dtype, lambda dtype=dtype: one(dtype)) for dtype in narrow(bench)])


CASES = [
    Case(make_models, limit=90, name="models"),
    Case(memory, limit=90, least=20),
    Case(probe, limit=90, least=20),
    Case(kills, limit=120, least=30),
    Case(two_runs, limit=120, least=30),
    Case(monitor, limit=90, least=20),
    Case(larger_model, limit=90, least=20, name="larger-model"),
    Case(large, limit=120, least=30),
    Case(devices, limit=120, least=30),
    Case(switches, limit=150, least=30),
]
