"""What a run gives, and what a second one does not do again."""

import json
import os
import re
import shutil
import subprocess

from case import MODEL, PROTEINS, ROOT, check, names

SAMPLES = "samples.csv"
MODEL_AND_SHARDS = ["--model", MODEL, "--max_shard_tokens", "15000"]
OPTIONS = [*MODEL_AND_SHARDS, "--max_batch_tokens", "4096", "--device", "cpu"]
# The fourth protein of each sample cannot be embedded: an exit code 1 that is no failure.
OPTIONS += ["--gpu_embed_args", "--inject not-finite=3"]
CHAIN = ["--max-shard-tokens", "15000", "--max-batch-tokens=4096", "--device", "cpu", "--inject=not-finite=3"]


def stub(case):
    case.strict()
    run = case.run("-profile", "test", "-stub", "--multiqc")
    check("-stub ends well", run.code == 0, run.said)
    check("-stub runs every process, MultiQC too", len(run.of("MULTIQC")) == 1 and len(run.of("GPU_EMBED")) == 2 and len(run.of("GPU_EMBED_PROBE")) == 1, run.tasks)
    check("-stub publishes the layout", case.path("out/proteins/dataset.json").exists() and names(case.path("out")))
    run = case.run("-profile", "test", "-stub", "-resume")
    check("-resume is refused where it would not see changed options", run.code != 0 and not run.tasks and "unset it" in run.said, run.said)


def profile_test(case):
    run = case.run("-profile", "test")
    check("-profile test ends well, in three shards", run.code == 0 and len(run.of("GPU_EMBED")) == 3, run.said)
    verdict = json.loads(case.path("out/proteins/dataset.json").read_text())
    rows = sum(file["rows"] for file in verdict["embeddings"])
    written = sorted(path.name.split("_2")[0] for path in case.path("out/pipeline_info").iterdir())
    check("the engine's reports", written == ["execution_report", "execution_timeline", "params.json", "pipeline_dag"], written)
    check("its validation passes for 100 proteins", verdict["outcome"] == "pass" and rows == 100, verdict)
    page = case.path("out/index.html").read_text()
    told = [text for text in ("Embeddings in out", "<td>proteins</td>", "by the first two principal components of mean_4") if text in page]
    check("the page names the sample, with a map", len(told) == 3 and "page: out/index.html" in run.said, (told, run.said))
    cut_in_another_way(case)


def cut_in_another_way(case):
    """Files of a run before would stand beside those of this one, in a folder that is read as one table."""
    run = case.run("-profile", "test", "-resume", "--max_shard_tokens", "30000")
    told = "out/proteins: was cut with a max_shard_tokens of 15000, which is now 30000" in run.said
    check("another size of shards is refused before anything is computed", run.code != 0 and len(run.tasks) == len(run.of("PLMKIT_CHECK")) and told, run.said)
    left = case.path("out/proteins")
    others = [left / "embeddings/shard-00003.parquet", left / "embeddings/notes.txt", left / "rejects/shard-00003.csv", left / "shards/shard-00003.parquet"]
    (left / "rejects").mkdir()
    for path in others:
        path.touch()
    again = ["-profile", "test", "-resume"]
    run = case.run(*again)
    line = next(line for line in run.said.splitlines() if "of no shard of this run; remove and -resume" in line)
    told = run.code != 0 and line.split(": ")[0] == "proteins" and all(str(path) in line for path in others) and "shard-00001" not in line
    check("files of a shard that is no more are told of", told, run.said)
    table = case.path("out/summary.tsv").read_text()
    check("and the table does not say that the sample passed", "\tfail\t" in table and "pass" not in table, table)
    for path in others:
        path.unlink()
    run = case.run(*again)
    check("without it the run passes", run.code == 0 and not run.computed(), run.said)
    check("with its totals", "1 sample: 100 rows, 0 rejected, 8 truncated, in out" in run.said, run.said)


def weights(case):
    """Other weights at the same path are another input."""
    shutil.copytree(MODEL, case.path("model"))
    options = ["--input", PROTEINS, "--model", "model", "--device", "cpu"]
    check("a model", case.run(*options).code == 0)
    with case.path("model/model.safetensors").open("r+b") as file:
        file.seek(600000)
        file.write(b"U")
    digest = json.loads(case.path("out/proteins/dataset.json").read_text())["model_digest"]
    run = case.run("-resume", *options)
    check("other weights are embedded with again", run.code == 0 and run.of("GPU_EMBED", "COMPLETED") and not run.of("FASTA_SHARD", "COMPLETED"), run.tasks)
    other = json.loads(case.path("out/proteins/dataset.json").read_text())["model_digest"]
    check("and the verdict names them", other != digest, (other, digest))
    case.path("other.fasta").write_bytes(PROTEINS.read_bytes())
    run = case.run("--input", "other.fasta", "--model", MODEL, "--device", "cpu")
    check("a folder of two models fails", run.code != 0 and "embedded by different models" in run.said and other in run.said, run.said)


def batch_size(case):
    """Measured once for all shards, on a device that is full after 6,000 tokens: 4,096. By default that of a CPU."""
    table = f"sample,fasta\na,{PROTEINS}\n"
    case.path(SAMPLES).write_text(table)
    device = ["--device", "cpu", "--gpu_embed_args", "--inject out-of-memory-above=6000"]
    run = case.run("--input", SAMPLES, *MODEL_AND_SHARDS, *device)
    check("measured once, for several shards", run.code == 0 and len(run.of("GPU_EMBED_PROBE")) == 1 < len(run.of("PACK_BATCHES")), run.said)
    check("batches hold what was measured", packed_with(case) == {4096}, packed_with(case))
    case.plmkit(SAMPLES, ["--max-shard-tokens", "15000", "--device", "cpu", *device[3].split()])
    case.compare("out", "plmkit")
    kept = [case.path(folder).joinpath("batch-size.json").read_bytes() for folder in ("out", "plmkit")]
    check("beside the results of both", kept[0] == kept[1], kept)
    run = case.run("-resume", "--input", SAMPLES, *MODEL_AND_SHARDS, *device)
    check("-resume does not measure again", run.code == 0 and not run.computed() and run.of("GPU_EMBED_PROBE", "CACHED"), run.tasks)
    case.path("out/batch-size.json").unlink()
    for explicit in (["--max_batch_tokens", "2048"], ["--pack_batches_args", "--max-batch-tokens 2048"]):
        run = case.run("-resume", "--input", SAMPLES, *MODEL_AND_SHARDS, *device, *explicit)
        said = (run.code, packed_with(case))
        check(f"{explicit[0]} is what batches hold, and none is measured", said == (0, {2048}) and not run.of("GPU_EMBED_PROBE"), said)
    case.plmkit(SAMPLES, ["--max-shard-tokens", "15000", "--device", "cpu"], "default")
    run = case.run("--input", SAMPLES, *MODEL_AND_SHARDS, "--device", "cpu")
    check("the default of a CPU", packed_with(case) == {16384}, packed_with(case))
    case.compare("out", "default")


def packed_with(case):
    """How many tokens the measured size and the events of all runs say that a batch holds."""
    said = [*case.path("out").glob("batch-size.json"), *case.path("out").glob("*/logs/*.events.jsonl")]
    return {int(found) for path in said for found in re.findall(r'"(?:max_batch_tokens|token_budget)": ?(\d+)', path.read_text())}


def estimate(case):
    """What GPUs will need, before the first shard is embedded. Here they are the CPU."""
    case.wrapper("gpu-embed", 'exec "$real" "${@/#cuda/cpu}"\n')
    run = case.run("-profile", "test", "--device", "cuda", "--gpu_embed_args", "--pool max")
    told = re.search(r"^.*: 4 layers of 64, max_4 in f32\n(.*\n)*?files  23$", run.said, re.MULTILINE)
    check("an estimate", run.code == 0 and told and len(run.of("MONITOR_LOG_ESTIMATE")) == 1, run.said)


def multiqc(case):
    """MultiQC, strict, as the last step: it shows what the programs wrote for it."""
    run = case.run("-profile", "test", "-stub")
    check("none where MultiQC is not at hand", run.code == 0 and not run.of("MULTIQC"), run.said)
    case.env["PATH"] += f":{ROOT}/.venv/multiqc/bin"
    run = case.run("-profile", "test", "--outdir", "without", "--multiqc", "false", "-stub")
    check("none where that is not wanted", run.code == 0 and not run.of("MULTIQC"), run.said)
    case.path("samples.csv").write_text(f"sample,fasta\ndry_run.v2,{PROTEINS}\na,{PROTEINS}\n")
    run = case.run("-profile", "test", "--input", "samples.csv")
    check("-profile test with MultiQC, which is at hand", run.code == 0 and len(run.of("MULTIQC", "COMPLETED")) == 1, run.said)
    data = case.path("out/multiqc/multiqc_data")
    shown = {name: (data / f"multiqc_plmkit_{name}_table.txt").read_text().splitlines() for name in ("validate_embeddings", "monitor")}
    shown = {name: [line.split("\t")[0] for line in lines[1:]] for name, lines in shown.items()}
    check("a row for each sample", shown["validate_embeddings"] == ["a", "dry_run.v2"], shown)
    check("and one for its runs, under the same name", shown["monitor"] == ["a", "dry_run.v2"], shown)
    check("the methods", "Lin, Z., Akin, H." in case.path("out/multiqc/multiqc_report.html").read_text())
    check("and the versions", "gpu-embed" in (data / "multiqc_software_versions.txt").read_text())


def turns(case):
    """Two tasks that together ask for more memory than there is do not run at once. A file with a blank in its name is a sample."""
    shutil.copy(PROTEINS, case.path("a b.faa"))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 6 // 10
    half = f"process {{ resourceLimits = [cpus: 1, memory: '{memory} B']\nwithName: 'GPU_EMBED|RECOMPUTE' {{ memory = '{memory} B' }} }}\n"
    case.path("half.config").write_text(half)
    run = case.run("--input", "a b.faa", *MODEL_AND_SHARDS, "--device", "cpu", "-c", "half.config")
    check("more than half of the memory is asked for", run.code == 0 and case.path("out/a_b/dataset.json").exists(), run.said)
    folders = [case.path(task["workdir"]) for task in run.of("GPU_EMBED") + run.of("RECOMPUTE")]
    times = sorted(tuple((folder / name).stat().st_mtime for name in (".command.begin", ".exitcode")) for folder in folders)
    check("tasks take turns", len(times) >= 6 and all(ended <= began for (_, ended), (began, _) in zip(times, times[1:])), times)


def two_samples(case):
    """Several FASTA of one sample, two of them with one name, beside another sample."""
    parts = PROTEINS.read_text().split(">")[1:]
    for name, some in [("a/x.fasta", parts[:30]), ("b/x.fasta", parts[30:70]), ("y.fasta", parts[50:])]:
        path = case.path(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f">{part}" for part in some))
    case.path(SAMPLES).write_text("sample,fasta\nfirst,a/x.fasta\nsecond.v2,y.fasta\nfirst,b/x.fasta\n")
    run = case.run("--input", SAMPLES, *OPTIONS)
    check("two samples from three FASTA", run.code == 0 and len(run.of("VALIDATE_EMBEDDINGS")) == 2, run.said)
    case.plmkit(SAMPLES, CHAIN)
    case.compare("out", "plmkit")
    listed = [path.parts[-3] for path in case.path("out").glob("*/rejects/*.csv") if "not_finite" in path.read_text()]
    page = case.path("out/index.html").read_text()
    check("the page has both samples", all(f"<td>{name}</td>" in page for name in ("first", "second.v2")))
    subprocess.run(["plmkit", "report", "out"], cwd=case.folder, env=case.env, check=True, stderr=subprocess.DEVNULL)
    check("and is the one of what was published", case.path("out/index.html").read_text() == page)
    check("what could not be embedded is listed", sorted(listed) == ["first", "second.v2"], listed)
    versions = case.path("out/versions.yml").read_text()
    chain = ("fasta-shard", "pack-batches", "gpu-embed", "validate-embeddings", "monitor-log")
    named = [program for program in chain if f"    {program}: " in versions]
    check("versions.yml names the programs of the chain and the engine", len(named) == 5 and "Nextflow: 25" in versions, versions)
    resume(case)


def resume(case):
    run = case.run("-resume", "--input", SAMPLES, *OPTIONS)
    check("-resume runs nothing", run.code == 0 and not run.computed() and run.tasks, run.tasks)
    lost = next(task for task in run.of("GPU_EMBED") if task["tag"] == "first_shard-00000")
    shutil.rmtree(lost["workdir"])
    run = case.run("-resume", "--input", SAMPLES, *OPTIONS)
    again = sorted((task["process"].split(":")[-1], task["tag"]) for task in run.computed())
    chain = [("GPU_EMBED", lost["tag"]), ("MONITOR_LOG_REPORT", "first"), ("PLMKIT_REPORT", "-"), ("RECOMPUTE", lost["tag"]), ("VALIDATE_EMBEDDINGS", "first")]
    check("-resume after a lost task folder runs its chain alone", again == chain and run.code == 0, again)
    case.compare("out", "plmkit")
    published = case.path("out/first/embeddings/shard-00000.parquet")
    reads = case.path("out/first/shards/rejects.csv"), case.path("out/first/dataset.json")
    with published.open("r+b") as file:
        file.seek(10000)
        file.write(b"XXXX")
    case.path("out/first/shards/shard-00001.parquet").write_bytes(b"PAR1")
    for path in (case.path("out/second.v2/embeddings/shard-00000.parquet"), *reads):
        path.unlink()
    run = case.run("-resume", "--input", SAMPLES, *OPTIONS)
    check("-resume mends what was published: damaged, cut off and lost files", run.code == 0 and not run.computed() and all(path.exists() for path in reads), run.said)
    case.compare("out", "plmkit")
