"""Speed: the whole program against what the device can do and against its peers, and what its time goes into."""

import csv
import json
import statistics

import models
import reference_file
from cases import Case
from programs import Failed, events

# Goals: share of the measured GEMM rate, of the time of the run in which the device computes nothing, tokens/s on an H100,
# and times as fast as transformers.
MFU, IDLE, PEER = 0.60, 0.05, 3.0
TOKENS = {"f16": 350_000, "bf16": 350_000, "f32": 350_000, "fp8": 400_000}
# Kernels of ours are to be so many times as fast as libtorch's operations.
WIN = 1.10
# Lowest cosine of a mean vector with that of f32.
LEAST = {"f32": 0.999999, "f16": 0.9999, "bf16": 0.999, "fp8": 0.999}
# A row of `rates`: copies of as many bytes as one launch of each kernel reads and writes.
COPIES = "copies, GB/s"
KERNELS = ["embedding", "layer_norm", "rotary", "gelu", "pooling"]
# What does the same in both ways. libtorch adds GELU's bias and the residual stream in its matrix products.
SAME_WORK = {"embedding": ["embedding"], "rotary": ["rotary"], "pooling": ["pooling"], "dense layers": ["gemm", "layer_norm", "gelu"]}


def sizes(bench):
    """Name of the model; tokens of a long and a short run; tokens in a batch, of which others are parts or multiples."""
    return ("8M-3", 12_000, 6_000, 2048) if bench.quick else ("650M-33", 3_000_000, 600_000, 65536)


def halves(bench):
    return [dtype for dtype in bench.types if dtype != "f32"] or bench.types


def narrow(bench):
    return halves(bench) + ["fp8"] * bench.has_fp8


def make_models(bench):
    models.make(bench, [sizes(bench)[0]])


def the_proteins(bench, long):
    _, many, few, _ = sizes(bench)
    return models.proteins(many if long else few, seed=4)


def traffic(config, tokens, dtype):
    """Bytes that each kernel of ours has to read and write for so many tokens: rows once in, once out."""
    width, inner, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    size = 4 if dtype == "f32" else 2
    # The residual stream is in f32. The first normalisation adds nothing, and the last sum is not followed by one.
    norms = (4 + size) + (2 * layers - 1) * (8 + 2 * size) + (8 + size)
    by_token = {
        "embedding": 4 * width, "layer_norm": norms * width, "rotary": layers * 4 * width * size,
        "gelu": layers * 2 * inner * size, "pooling": 4 * width,
    }  # fmt: skip
    return {name: bytes_ * tokens for name, bytes_ in by_token.items()}


def rates(bench):
    """The rates of copies and of the largest matrix products."""
    from rates import Rates

    device = Rates(bench.device, bench.quick)
    name, _, _, budget = sizes(bench)
    config = models.config(models.folder(bench, name))

    def copies():
        found = {}
        for kernel, moved in traffic(config, budget, halves(bench)[0]).items():
            # Of one launch.
            launches = {"layer_norm": 2, "rotary": 1, "gelu": 1}.get(kernel, 0) * config["num_hidden_layers"] or 1
            found[kernel] = device.copy(moved / launches)
        text = ", ".join(f"{kernel} {rate / 1e9:,.0f}" for kernel, rate in found.items())
        bench.row(COPIES, text, None, {"bytes_per_s": found})

    def transfers():
        to_it, from_it = device.transfers(1 << 20 if bench.quick else 1 << 28)
        figures = {"to_bytes_per_s": to_it, "from_bytes_per_s": from_it}
        bench.row("page-locked memory, GB/s", f"to the device {to_it / 1e9:,.1f}, from it {from_it / 1e9:,.1f}", None, figures)

    def gemm(dtype):
        rate = device.gemm(dtype)
        bench.row(f"matrix product {dtype}", f"{rate / 1e12:,.2f} TFLOP/s", None, {"flops": rate})

    bench.each([("copies", copies), ("transfers", transfers)])
    bench.each([(dtype, lambda dtype=dtype: gemm(dtype)) for dtype in narrow(bench)])


def floor(bench):
    """Tokens/s of the matrix products alone."""
    from rates import Rates

    device = Rates(bench.device, bench.quick)
    name, _, _, budget = sizes(bench)
    config = models.config(models.folder(bench, name))

    def one(dtype, tokens):
        rate = device.floor(config, dtype, tokens)
        flops = models.flops_per_token(config, 0) * rate
        bench.row(f"{dtype} {tokens}", f"{rate:,.0f} tokens/s, {flops / 1e12:,.2f} TFLOP/s", None, {"tokens_per_s": rate, "flops": flops})

    tries = [(dtype, budget) for dtype in narrow(bench)] + [(halves(bench)[0], budget // 4), (halves(bench)[0], 2 * budget)]
    bench.each([(f"{dtype} {tokens}", lambda dtype=dtype, tokens=tokens: one(dtype, tokens)) for dtype, tokens in tries])


def known(bench, dtype, budget):
    """What earlier cases have measured, as far as they have."""
    ask = lambda case, what, key: (bench.earlier(case, what) or {}).get(key)
    return {
        "gemm": ask("rates", f"matrix product {dtype}", "flops"),
        "floor": ask("floor", f"{dtype} {budget}", "tokens_per_s"),
        "transformers": ask("transformers", "best", "tokens_per_s"),
        "varlen": ask("varlen", "best", "tokens_per_s"),
    }


def run(bench, batches, model, options, **environment):
    """One run under monitor-log: what its events say."""
    out, log, samples = bench.path("out.parquet"), bench.path("events.jsonl"), bench.path("samples.csv")
    for old in log, samples, out:
        old.unlink(missing_ok=True)
    command = bench.programs.embed_command(batches, model, out, "--events", log, *options)
    record = ["record", "--out", samples, "--interval", "200ms", "--", *command]
    bench.programs.run("monitor-log", *record, codes=(0, 1) if bench.programs.rejects else (0,), **environment)
    begin, done_batches, done = events(log)
    total = lambda key: sum(batch.get(key) or 0.0 for batch in done_batches) / 1e3
    figures = {"tokens_per_s": done["tokens"] / done["elapsed_s"], "elapsed_s": done["elapsed_s"], "load_ms": begin.get("load_ms")}
    figures["idle"] = 1 - total("compute_ms") / done["elapsed_s"]
    # From the first batch to the last, without what a run begins and ends with.
    steady = done_batches[-1]["elapsed_s"] - done_batches[0]["elapsed_s"]
    if len(done_batches) > 2 and steady > 0:
        figures["steady_tokens_per_s"] = (done["tokens"] - done_batches[0]["tokens"]) / steady
        figures["steady_idle"] = 1 - (total("compute_ms") - done_batches[0]["compute_ms"] / 1e3) / steady
    figures |= {key: total(key) for key in ("wait_ms", "h2d_ms", "compute_ms", "d2h_ms", "write_ms")}
    figures |= {"splits": sum(batch["oom_splits"] for batch in done_batches), "length": weighted_length(done_batches)}
    kernels = [batch["kernels"] for batch in done_batches if "kernels" in batch]
    figures["kernels_ms"] = {key.removesuffix("_ms"): sum(times[key] for times in kernels) for key in (kernels or [{}])[0]}
    figures["tokens"] = done["tokens"]
    figures["gpu"] = gpu_of(samples)
    return figures


def weighted_length(batches):
    pairs, tokens = sum(batch.get("pairs") or 0 for batch in batches), sum(batch["tokens"] for batch in batches)
    return pairs / tokens if tokens else 0


def gpu_of(samples):
    """The mean of what monitor-log saw while the GPU was at work."""
    with samples.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row.get("gpu_util") or "0") != "0"]
    columns = ["gpu_util", "power_w", "sm_clock_mhz", "temperature_c", "mem_used_mib"]
    found = {column: [float(row[column]) for row in rows if row.get(column)] for column in columns}
    return {column: statistics.fmean(values) for column, values in found.items() if values}


def spread(values):
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": statistics.fmean(values), "stddev": deviation, "min": min(values), "max": max(values), "repeats": values}


def share(part, whole):
    return part / whole if whole else None


def percent(value):
    return "unknown" if value is None else f"{value:.0%}"


def end_to_end(dtype):
    """Three runs of 3 M tokens."""

    def case(bench):
        if dtype not in narrow(bench):
            return bench.absent(dtype, f"not on a {'GPU' if bench.on_gpu else 'CPU'}")
        name, _, _, budget = sizes(bench)
        model, proteins = models.folder(bench, name), the_proteins(bench, True)
        batches, config = bench.programs.pack("long", proteins, budget), models.config(model)
        beside, found = known(bench, dtype, budget), []
        for number in range(3):
            figures = run(bench, batches, model, ["--dtype", dtype, "--profile"])
            found.append(figures)
            bench.row(f"repeat {number + 1}", f"{figures['tokens_per_s']:,.0f} tokens/s", None, figures)
        bench.keep(bench.path("events.jsonl"), f"events-{dtype}.jsonl")
        bench.keep(bench.path("samples.csv"), f"samples-{dtype}.csv")
        rate, idle = spread([one["tokens_per_s"] for one in found]), spread([one["idle"] for one in found])
        flops = models.flops_per_token(config, found[0]["length"])
        mfu = share(rate["mean"] * flops, beside["gemm"])
        ratios = {name: share(rate["mean"], beside[name]) for name in ("floor", "transformers", "varlen")}
        text = f"{rate['mean']:,.0f} ± {rate['stddev']:,.0f} tokens/s, idle {idle['mean']:.1%}, MFU {percent(mfu)}, {percent(ratios['floor'])} of floor"
        text += "".join(f", {ratios[peer]:.2f} x {peer}" for peer in ("transformers", "varlen") if ratios[peer])
        # Without what it is to be compared with, nothing is met.
        met = rate["mean"] >= TOKENS[dtype] and (mfu or 0) >= MFU and idle["mean"] < IDLE and (ratios["transformers"] or 0) >= PEER
        bench.speed("all three", text, met, {"tokens_per_s": rate, "idle": idle, "mfu": mfu, "flops_per_token": flops, **ratios, **beside})
        spent = [one["kernels_ms"] for one in found]
        if not spent[0]:
            return bench.absent("shares of the time", "the device has no clock of its own")
        sums = {kernel: sum(one[kernel] for one in spent) for kernel in spent[0]}
        text = ", ".join(f"{kernel} {percent(share(taken, sum(sums.values())))}" for kernel, taken in sums.items())
        bench.row("shares of the time", text, None, {"ms": sums})

    return Case(case, limit=120, least=30, name=f"end-to-end-{dtype}")


def values(bench):
    """Mean vectors in full depth against f32, which is told of each type before its speed means anything."""
    name, _, _, budget = sizes(bench)
    model, proteins = models.folder(bench, name), the_proteins(bench, False)[:200]
    batches, exact = bench.programs.pack("some", proteins, budget), bench.path("exact.parquet")
    bench.programs.embed(batches, model, exact, "--dtype", "f32")
    for dtype in narrow(bench):
        out = bench.path("out.parquet")
        bench.programs.embed(batches, model, out, "--dtype", dtype)
        least = min(bench.programs.cosines(out, exact).values(), default=float("nan"))
        bench.values(dtype, f"lowest cosine with f32 {least:.7f}", least >= LEAST[dtype], {"cosine": least})


def verdict(bench):
    """The verdict of the workflows: a sample computed again on the CPU in f32."""
    name, _, _, budget = sizes(bench)
    model, proteins = models.folder(bench, name), the_proteins(bench, False)[:300]
    batches = bench.programs.pack("verdict", proteins, budget)

    def one(dtype):
        out = bench.path("out.parquet")
        bench.programs.embed(batches, model, out, "--dtype", dtype, "--pool", "mean,max,bos", "--residues")
        options = ["--shards", bench.folder / "verdict-shards", "--model", model, "--spot-check", 40, "--report", "-"]
        report = json.loads(bench.programs.run("validate-embeddings", out, *options, codes=(0, 1))[0])
        check = next(check for check in report["checks"] if check["name"] == "spot-check")
        bench.values(dtype, check["summary"], check["outcome"] == "pass", {"spot_check": report["spot_check"], "counts": check["counts"]})

    bench.each([(dtype, lambda dtype=dtype: one(dtype)) for dtype in dict.fromkeys([*bench.types, *narrow(bench)])])


def peer(kind, budgets):
    """A peer at the best of some sizes of batches."""

    def case(bench):
        import peers

        name = sizes(bench)[0]
        model, proteins, dtype = models.folder(bench, name), the_proteins(bench, False), halves(bench)[0]
        proteins = proteins[: len(proteins) // 2]
        made, found = getattr(peers, kind)(model, dtype, bench.device), {}

        def one(budget):
            found[budget] = peers.rate(made, proteins, list(made.batches(proteins, budget)))
            bench.row(f"batches of {budget}", f"{found[budget]:,.0f} tokens/s", None, {"tokens_per_s": found[budget]})

        chosen = [budget // 32 for budget in budgets] if bench.quick else budgets
        bench.each([(f"batches of {budget}", lambda budget=budget: one(budget)) for budget in chosen])
        if not found:
            raise Failed("no size of batches could be computed")
        budget, rate = max(found.items(), key=lambda pair: pair[1])
        bench.row("best", f"{rate:,.0f} tokens/s in {dtype}, batches of {budget}", None, {"tokens_per_s": rate, "budget": budget})
        # That it computes the same.
        some, theirs, ours = proteins[:100], bench.path("theirs.parquet"), bench.path("ours.parquet")
        column = f"mean_{models.config(model)['num_hidden_layers']}"
        reference_file.write(theirs, {column: peers.vectors(made, made.batches(some, budget))})
        bench.programs.embed(bench.programs.pack("some", some, 4096), model, ours, "--dtype", "f32")
        cosine = bench.programs.cosines(ours, theirs).get(column, float("nan"))
        bench.values("vectors", f"lowest cosine with ours in f32 {cosine:.6f}", cosine >= 0.99, {"cosine": cosine})

    return case


def batch_sizes(bench):
    name, _, _, budget = sizes(bench)
    model, proteins, dtype = models.folder(bench, name), the_proteins(bench, True), halves(bench)[0]
    proteins = proteins[: len(proteins) // 3]

    def one(tokens):
        figures = run(bench, bench.programs.pack("third", proteins, tokens), model, ["--dtype", dtype])
        text = f"{figures['tokens_per_s']:,.0f} tokens/s, idle {figures['idle']:.1%}, {figures['splits']} halved"
        bench.row(f"{dtype} {tokens}", text, None, figures)

    bench.each([(f"{dtype} {tokens}", lambda tokens=tokens: one(tokens)) for tokens in (budget // 4, budget, 2 * budget)])


def kernels(bench):
    """Each kernel of ours against libtorch's operations in its place, and against a copy of as many bytes."""
    name, _, _, budget = sizes(bench)
    model, dtype = models.folder(bench, name), halves(bench)[0]
    batches = bench.programs.pack("short", the_proteins(bench, False), budget)
    ours = run(bench, batches, model, ["--dtype", dtype, "--profile"])
    theirs = run(bench, batches, model, ["--dtype", dtype, "--profile", "--kernels", "libtorch"])
    ratio = ours["tokens_per_s"] / theirs["tokens_per_s"]
    bench.row("whole program", f"{ratio:.2f} x --kernels libtorch", None, {"ours": ours, "libtorch": theirs})
    if not ours["kernels_ms"]:
        return bench.absent("each kernel", "the device has no clock of its own")
    moved = traffic(models.config(model), ours["tokens"], dtype)
    copies = (bench.earlier("rates", COPIES) or {}).get("bytes_per_s", {})
    for kernel in KERNELS:
        taken = ours["kernels_ms"][kernel]
        rate = share(moved[kernel], taken / 1e3)
        of_copy = share(rate, copies.get(kernel)) if rate else None
        text = f"{(rate or 0) / 1e9:,.0f} GB/s, {percent(of_copy)} of a copy"
        bench.row(kernel, text, None, {"bytes": moved[kernel], "ms": taken, "bytes_per_s": rate, "of_copy": of_copy})
    for what, parts in SAME_WORK.items():
        taken, beside = (sum(run["kernels_ms"][part] for part in parts) for run in (ours, theirs))
        won = share(beside, taken)
        keep = won is not None and won >= WIN
        text = f"{won or 0:.2f} x libtorch" + ("" if keep else ": less than 10 %, and is to go")
        bench.speed(f"{what} beside libtorch", text, keep, {"ms": taken, "libtorch_ms": beside, "times_libtorch": won})


def other_models(bench):
    """Other models in full depth: speed, shares of the time, the floor of their products and transformers."""
    import peers
    from rates import Rates

    _, _, _, budget = sizes(bench)
    device, dtype, proteins = Rates(bench.device, bench.quick), halves(bench)[0], the_proteins(bench, False)

    def one(name):
        models.make(bench, [name])
        model = models.folder(bench, name)
        batches = bench.programs.pack("short", proteins, budget)
        figures = run(bench, batches, model, ["--dtype", dtype, "--profile"])
        floor = device.floor(models.config(model), dtype, budget)
        padded, some = peers.Padded(model, dtype, bench.device), proteins[: len(proteins) // 2]
        theirs = max(peers.rate(padded, some, list(padded.batches(some, tokens))) for tokens in (budget // 4, budget))
        rate, spent = figures["steady_tokens_per_s"], figures["kernels_ms"]
        text = f"{rate:,.0f} tokens/s after the first batch, {rate / floor:.0%} of floor, {rate / theirs:.2f} x transformers; "
        text += ", ".join(f"{kernel} {percent(share(taken, sum(spent.values())))}" for kernel, taken in spent.items())
        bench.row(name, text, None, figures | {"floor": floor, "transformers": theirs})
        if bench.has_fp8:
            figures = run(bench, batches, model, ["--dtype", "fp8", "--profile"])
            bench.row(f"{name}, fp8", f"{figures['steady_tokens_per_s']:,.0f} tokens/s after the first batch", None, figures)

    names = ["8M-3", "C600M-3"] if bench.quick else ["C600M-36", "150M-30"]
    bench.each([(name, lambda name=name: one(name)) for name in names])


def residues(bench):
    """Vectors of residues, and what they cost."""
    name, _, _, budget = sizes(bench)
    model, dtype, proteins = models.folder(bench, name), halves(bench)[0], the_proteins(bench, False)
    batches = bench.programs.pack("half", proteins[: len(proteins) // 2], budget)

    def one(what, options):
        figures = run(bench, batches, model, ["--dtype", dtype, *options])
        size = bench.path("out.parquet").stat().st_size
        text = f"{figures['tokens_per_s']:,.0f} tokens/s, idle {figures['idle']:.1%}, {size / 1e6:,.0f} MB"
        bench.row(what, text, None, figures | {"bytes": size})

    tries = {"pooled": [], "f32": ["--residues"], "f16": ["--residues", "--store-dtype", "f16"]}
    bench.each([(what, lambda what=what, options=options: one(what, options)) for what, options in tries.items()])


CASES = [
    Case(make_models, limit=90, name="models"),
    Case(rates, limit=60, least=15),
    Case(floor, limit=60, least=15),
    Case(peer("Padded", [8192, 16384, 32768, 65536]), limit=90, least=25, name="transformers"),
    Case(peer("Varlen", [16384, 65536]), limit=60, least=20, name="varlen"),
    Case(values, limit=60, least=20),
    Case(verdict, limit=90, least=25),
    end_to_end("f16"),
    end_to_end("bf16"),
    end_to_end("fp8"),
    end_to_end("f32"),
    Case(kernels, limit=60, least=20),
    Case(other_models, limit=90, least=30, name="other-models"),
    Case(batch_sizes, limit=90, least=25, name="batch-sizes"),
    Case(residues, limit=90, least=25),
]
