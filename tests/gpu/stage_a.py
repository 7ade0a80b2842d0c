"""Correctness: versions, stored goldens, every size of head and type, many peptides, and what the sanitizers find."""

import math
import platform
import re
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np

import models
import reference_file
from cases import Case
from programs import Failed, command_name, execute

DATA = Path(__file__).parents[2] / "test-data"
TINY, TINY_ESMC = DATA / "model-tiny", DATA / "model-tiny-esmc"
# Lowest cosine: of pooled vectors, and of residues, logits and contacts.
FLOORS = {"f32": (0.999999, 0.99999), "f16": (0.9999, 0.999), "bf16": (0.999, 0.99), "fp8": (0.999, 0.98)}
# An error may be so many times that of transformers in the same type.
ERROR = 2.0
ALL = ["--pool", "mean,max,std,bos", "--layers", "all", "--residues", "--logits"]
# In the order in which they are tried; the first six also where time is short.
SMALL = ["8M", "650M", "heads-of-20", "C600M", "1b", "1v", "heads-of-10", "heads-of-128", "35M", "150M", "3B"]
KERNELS = {"": [], " --kernels libtorch": ["--kernels", "libtorch"]}
OURS = "rope_|add_layer_norm_|bias_gelu_|silu_gate_|embed_|pool_"


def ways(bench):
    """Name -> (type, options) of the ways to compute."""
    return {f"{dtype}{way}": (dtype, ["--dtype", dtype, *options]) for dtype in bench.types for way, options in KERNELS.items()}


def versions(bench):
    found = {"python": platform.python_version(), "machine": platform.platform()}
    revision = Path(__file__).parents[2] / "revision"
    found |= {"revision": revision.read_text(encoding="utf-8").strip()} if revision.is_file() else {}
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    found["cpu"] = cpu[1] if cpu else platform.machine()
    found |= {name: bench.programs.run(name, "--version")[0].strip() for name in ("gpu-embed", "monitor-log")}
    bench.row("machine", found["cpu"], None, found)
    bench.each([("gpu", lambda: gpu(bench)), ("libraries", lambda: libraries(bench)), ("torch", lambda: torch_versions(bench))])


def gpu(bench):
    fields = "name,driver_version,memory.total,compute_cap,power.limit,clocks.max.sm,mig.mode.current,compute_mode"
    if not shutil.which("nvidia-smi"):
        return bench.absent("gpu", "no nvidia-smi on the PATH")
    said = execute(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"])
    if said.returncode:
        raise Failed(f"nvidia-smi: exit code {said.returncode}", said.stderr + said.stdout)
    values = [value.strip() for value in said.stdout.splitlines()[0].split(",")]
    bench.row("gpu", f"{values[0]}, driver {values[1]}", None, dict(zip(fields.split(","), values, strict=True)))


def libraries(bench):
    """What gpu-embed has mapped while it computes, and where that lies."""
    batches = bench.programs.pack("some", models.proteins(100_000, seed=5), 4096)
    way = [] if bench.on_gpu else ["--kernels", "libtorch"]
    command = bench.programs.embed_command(batches, TINY, bench.path("some.parquet"), "--force", *way)
    process, mapped = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True), set()
    while process.poll() is None:
        try:
            maps = Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8")
        except OSError:
            break
        mapped |= {line.split(None, 5)[5] for line in maps.splitlines() if re.search(r"/[^/]*\.so[.\d]*$", line)}
        time.sleep(0.02)
    said = process.communicate()[1]
    if process.returncode:
        raise Failed(f"gpu-embed: exit code {process.returncode}", said)
    names = re.compile(r"/lib(torch|c10|cud|cublas|nvrtc|cusparse|nvJitLink|cufft|curand|cupti|nvidia|nccl|nvshmem|cufile)")
    chosen = sorted(path for path in mapped if names.search(path))
    wanted = ["libtorch_cuda", "libcudart", "libnvrtc"] if bench.on_gpu else ["libtorch_cpu"]
    lacking = [name for name in wanted if not any(name in path for path in chosen)]
    text = f"{len(chosen)} of CUDA and libtorch mapped" + (f", but no {', '.join(lacking)}" if lacking else "")
    bench.row("libraries", text, not lacking, {"mapped": chosen})
    if bench.on_gpu:
        warned = next((line for line in said.splitlines() if "libtorch computes what" in line), None)
        bench.row("kernels", warned or "compiled for this GPU", not warned, stderr=said)


def torch_versions(bench):
    import torch
    import transformers

    found = {"torch": torch.__version__, "cuda": torch.version.cuda, "transformers": transformers.__version__}
    if bench.on_gpu:
        properties = torch.cuda.get_device_properties(0)
        found |= {"device": properties.name, "capability": f"{properties.major}.{properties.minor}", "sms": properties.multi_processor_count}
        found |= {"memory_gib": round(properties.total_memory / 2**30, 1), "devices": torch.cuda.device_count()}
        found |= {"cudnn": torch.backends.cudnn.version()}
    bench.row("torch", ", ".join(f"{name} {value}" for name, value in found.items()), None, found)


def goldens(bench):
    """model-tiny against what transformers and fair-esm made of it, stored in test-data."""
    from safetensors.numpy import load_file

    sequences = {}
    for record in (DATA / "proteins.fasta").read_text(encoding="utf-8").split(">")[1:]:
        name, *lines = record.split("\n")
        sequences[name.split()[0]] = "".join(lines)
    layers = models.config(TINY)["num_hidden_layers"]
    references, chosen = [], []
    for source in "transformers", "fair-esm":
        stored = load_file(DATA / "golden" / f"{source}.safetensors")
        names = sorted({name.split("/")[0] for name in stored})
        ids = {name: next(one for one in sequences if f"|{name}|" in one) for name in names}
        for name, one in ids.items():
            of = lambda what, cut, name=name, one=one: {one: stored[f"{name}/{what}"][cut]}
            columns = {f"residues_{layer}": of(f"layer_{layer}", slice(1, -1)) for layer in range(layers + 1)}
            columns |= {f"mean_{layers}": of(f"mean_{layers}", ...), "logits": of("logits", slice(1, -1)), "contacts": of("contacts", ...)}
            # A file each: in one, the lists of a column are of one length.
            references.append((source, bench.path(f"{source}-{name}.parquet")))
            reference_file.write(references[-1][1], columns)
        chosen = [(one, sequences[one]) for one in ids.values()]
    batches = bench.programs.pack("golden", chosen, 2048)

    def one(name, dtype, options):
        out = bench.path("out.parquet")
        bench.programs.embed(batches, TINY, out, "--layers", "all", "--residues", "--logits", "--contacts", *options)
        judged(bench, name, dtype, by_source(bench, out, references))

    bench.each([(name, lambda name=name, way=way: one(name, *way)) for name, way in ways(bench).items()])


def by_source(bench, out, references):
    """Source -> column -> the smallest cosine with any of its files."""
    found = {source: {} for source, _ in references}
    for source, reference in references:
        for column, cosine in bench.programs.cosines(out, reference).items():
            found[source][column] = min(found[source].get(column, 1.0), cosine, key=worst)
    return found


def worst(cosine):
    """By which cosines are sorted: none at all is the worst."""
    return -math.inf if math.isnan(cosine) else cosine


def judged(bench, what, dtype, found, factor=0.0, **figures):
    """A row about cosines, source -> column -> smallest. `factor` is the error in terms of another's, if there is one."""
    pooled, rest = FLOORS[dtype]
    met, told = True, []
    for source, columns in found.items():
        groups = {"pooled": [], "other": []}
        for column, cosine in columns.items():
            groups["pooled" if re.match("mean|max|std|bos", column) else "other"].append(cosine)
        for (kind, values), floor in zip(groups.items(), (pooled, rest), strict=True):
            if values:
                least = min(values, key=worst)
                met &= least >= floor
                told.append(f"{source} {kind} {least:.7f}")
    if factor:
        told.append(f"error {factor:.2f} x that of transformers")
        met &= factor <= ERROR
    bench.values(what, ", ".join(told) or "no vectors to compare", met and bool(told), {"cosines": found, "error_factor": factor, **figures})


def small(bench):
    return SMALL[:6] if bench.quick else SMALL


def small_models(bench):
    models.make(bench, small(bench))


def some_proteins(quick):
    return models.proteins(1_000 if quick else 3_000, seed=1) + [("short", "M"), ("odd", "MXBZUO")]


def transformers(bench):
    """For `values`: every layer by transformers in f32 on the CPU, and mean vectors on the device in each type."""
    import peers

    proteins = some_proteins(bench.quick)

    def exactly(name):
        model, into = models.folder(bench, name), exact_folder(bench, name)
        into.mkdir(exist_ok=True)
        for protein, columns in peers.exactly(model, proteins):
            reference_file.write(into / f"{protein}.parquet", {column: {protein: values} for column, values in columns.items()})
        bench.row(f"{name} exact", f"{len(proteins)} proteins, every layer", None)

    def mean(name, dtype):
        model = peers.Padded(models.folder(bench, name), dtype, bench.device)
        found = peers.vectors(model, model.batches(proteins, 16384))
        reference_file.write(bench.work / f"{name}-{dtype}.parquet", {f"mean_{models.LAYERS}": found})
        bench.row(f"{name} {dtype}", f"{len(found)} proteins", None)

    bench.each([(f"{name} exact", lambda name=name: exactly(name)) for name in small(bench)])
    tries = [(name, dtype) for name in ("8M", "650M", *models.FAMILY) for dtype in bench.types]
    bench.each([(f"{name} {dtype}", lambda name=name, dtype=dtype: mean(name, dtype)) for name, dtype in tries])


def exact_folder(bench, name):
    return bench.work / f"exact-{name}"


def values(name):
    """All types and ways to compute: pooled vectors of every layer against our CPU in f32, residues and logits against
    transformers', and the error of the mean beside that of transformers in the same type."""

    def case(bench):
        model, exact = models.folder(bench, name), bench.path("exact.parquet")
        if bench.quick and not model.is_dir():
            return bench.absent("", "not with --quick")
        batches = bench.programs.pack("few", some_proteins(bench.quick), 2048)
        bench.programs.embed(batches, model, exact, "--dtype", "f32", *ALL, device="cpu")
        references = [("transformers", path) for path in sorted(exact_folder(bench, name).glob("*.parquet"))]
        judged(bench, "our CPU in f32", "f32", by_source(bench, exact, references))

        def one(what, dtype, options):
            out, theirs = bench.path("out.parquet"), bench.work / f"{name}-{dtype}.parquet"
            said = run_or_refused(bench, batches, model, out, [*options, *ALL])
            if said:
                # A size of head that cannot be computed may be refused, in a line that says why.
                return bench.row(what, said, "head" in said)
            found = bench.programs.cosines(out, exact)
            factor = 0.0
            if theirs.is_file():
                # Errors are as the roots of what cosines lack to 1; both against the same exact vectors.
                column = f"mean_{models.LAYERS}"
                ours, other = (1 - found[column], 1 - bench.programs.cosines(exact, theirs)[column])
                factor = math.sqrt(max(ours, 1e-12) / max(other, 1e-12))
            judged(bench, what, dtype, {"CPU": found} | by_source(bench, out, references), factor)

        bench.each([(what, lambda what=what, way=way: one(what, *way)) for what, way in ways(bench).items()])

    return Case(case, limit=90, least=10, name=f"values-{name}")


def fp8(bench):
    """Mean vectors and residues in 8 bits against our CPU in f32, and plmkit's kernels against libtorch's operations."""
    if bench.on_gpu and not bench.has_fp8:
        return bench.absent("fp8", "not on this GPU")
    proteins = some_proteins(bench.quick)
    groups = {"few": proteins, "long": proteins[:-2], "short": proteins[-2:]}
    batches, long, short = (bench.programs.pack(group, of_it, 2048) for group, of_it in groups.items())
    chosen = KERNELS if bench.on_gpu else {" --kernels libtorch": KERNELS[" --kernels libtorch"]}

    def one(name):
        model, first = models.folder(bench, name), None
        exact, exact_short = bench.path("exact.parquet"), bench.path("exact-short.parquet")
        for group, reference in (long, exact), (short, exact_short):
            bench.programs.embed(group, model, reference, "--dtype", "f32", "--residues", device="cpu")
        for what, options in chosen.items():
            out = bench.path(f"out{len(options)}.parquet")
            said = run_or_refused(bench, batches, model, out, ["--dtype", "fp8", "--residues", *options])
            if said:
                bench.values(f"{name}{what}", said, False)
                continue
            found = {"CPU": bench.programs.cosines(out, exact)}
            # The mean of a few residues is about as far off as they are.
            of_short = bench.programs.cosines(out, exact_short)
            found["CPU, short"] = {f"short {column}": cosine for column, cosine in of_short.items()}
            if first:
                found["plmkit's kernels"] = bench.programs.cosines(out, first)
            first = out
            judged(bench, f"{name}{what}", "fp8", found)

    bench.each([(name, lambda name=name: one(name)) for name in small(bench) if "heads" not in name])


def scores(bench):
    """Log-probabilities in one pass, and with each residue masked, against our CPU in f32."""
    proteins = [*models.proteins(300, seed=7, longest=60), ("odd", "MXBZUO")]
    batches = bench.programs.pack("few", proteins, 2048)
    for name in ("8M", *models.FAMILY):
        model, exact = models.folder(bench, name), bench.path("exact.parquet")
        for kind, options in {"wild-type": ["--scores"], "masked": ["--scores", "masked"]}.items():
            bench.programs.embed(batches, model, exact, "--dtype", "f32", *options, device="cpu")

            def one(dtype, name=name, kind=kind, model=model, exact=exact, options=options):
                out = bench.path("out.parquet")
                bench.programs.embed(batches, model, out, "--dtype", dtype, *options)
                judged(bench, f"{name} {kind} {dtype}", dtype, {"CPU": bench.programs.cosines(out, exact)})

            bench.each([(f"{name} {kind} {dtype}", lambda one=one, dtype=dtype: one(dtype)) for dtype in bench.types])


def run_or_refused(bench, batches, model, out, options):
    """What gpu-embed said where it refused the model (65), or none."""
    command = bench.programs.embed_command(batches, model, out, "--force", *options)
    codes = (0, 1, 65) if bench.programs.rejects else (0, 65)
    out.unlink(missing_ok=True)
    said = bench.programs.run(*command_name(command), codes=codes)[1]
    return None if out.exists() else said.strip()


def peptides(bench):
    """70,000 sequences in one batch: more than a dimension of a grid of CUDA may have."""
    rng = np.random.default_rng(6)
    count = 70_000
    letters = rng.choice(np.frombuffer(b"LAGVSERTIDPKQNFYMHWC", np.uint8), (count, 8))
    proteins = [(f"p{i}", row[: 5 + i % 4].tobytes().decode()) for i, row in enumerate(letters)]
    batches, exact = bench.programs.pack("peptides", proteins, 1 << 20), bench.path("exact.parquet")
    bench.programs.embed(batches, TINY, exact, "--dtype", "f32", device="cpu")

    def one(what, dtype, options):
        out = bench.path("out.parquet")
        bench.programs.embed(batches, TINY, out, *options)
        judged(bench, what, dtype, {"CPU": bench.programs.cosines(out, exact)})

    # libtorch's operations pool one sequence after the other: on a CPU that takes a minute.
    tries = {what: way for what, way in ways(bench).items() if bench.on_gpu or "libtorch" not in what}
    bench.each([(what, lambda what=what, way=way: one(what, *way)) for what, way in tries.items()])


def sanitizer(tool):
    def case(bench):
        program = shutil.which("compute-sanitizer")
        if not program or not bench.on_gpu:
            return bench.absent(tool, "no compute-sanitizer on the PATH" if bench.on_gpu else "it is for GPUs")
        batches = bench.programs.pack("few", [("a", "MKTAYIAKQR"), ("b", "MXBZUO"), ("c", "M" * 300)], 2048)
        for name, model in {"ESM-2": TINY, "ESMC": TINY_ESMC}.items():
            ours = bench.programs.embed_command(batches, model, bench.path("out.parquet"), "--force", "--dtype", "f16", *ALL)
            # Each tensor by itself, so that what lies behind it is nobody's.
            said = execute([program, "--tool", tool, "--print-limit", "20", *ours], PYTORCH_NO_CUDA_MEMORY_CACHING="1")
            text = said.stdout + said.stderr
            summary = next((line.strip("= ") for line in reversed(text.splitlines()) if "SUMMARY" in line), f"exit code {said.returncode}")
            clean = bool(re.search(r"SUMMARY: 0 (errors|hazards)|RACECHECK SUMMARY: 0 ", text)) and said.returncode == 0
            # What it says of a kernel of libtorch's is told, and not ours to mend.
            met = True if clean else (False if re.search(OURS, text) or "SUMMARY" not in text else None)
            bench.row(f"{tool} {name}", summary, met, stderr="" if clean else text[-8000:])

    return Case(case, limit=120, least=30, name=tool)


CASES = [
    Case(versions, limit=60),
    Case(goldens, limit=60),
    Case(small_models, limit=60, name="models"),
    Case(transformers, limit=90, least=15),
    values("8M"),
    values("650M"),
    Case(fp8, limit=60, least=15),
    Case(peptides, limit=90, least=15),
    values("heads-of-20"),
    *map(values, models.FAMILY),
    Case(scores, limit=90, least=20),
    sanitizer("memcheck"),
    sanitizer("racecheck"),
    *map(values, ["heads-of-10", "heads-of-128", "35M", "150M", "3B"]),
]
