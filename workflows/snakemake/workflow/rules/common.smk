import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import validate


def drop_empty(values):
    """An empty value is none: `gpu_embed:` and no more."""
    for key, value in list(values.items()):
        if value is None:
            del values[key]
        elif isinstance(value, dict):
            drop_empty(value)


drop_empty(config)
validate(config, schema="../schemas/config.schema.yaml")
OUTDIR = config["outdir"].rstrip("/")
OPTIONS = config["options"]


# What `check` made of the table: a line for each FASTA.
ROWS = Path(OUTDIR, "pipeline_info/samples.tsv")


def read_rows(path=ROWS):
    """The FASTA files of each sample, in their order; none before they are checked."""
    samples = {}
    for row in path.read_text().split("\n")[:-1] if path.exists() else []:
        name, fasta = row.split("\t", 1)
        samples.setdefault(name, []).append(fasta)
    return samples


def samples():
    """The same in an input function, which has to wait for them."""
    return read_rows(Path(checkpoints.check.get().output[0]))


def of_samples(*patterns):
    """An input function: PATTERNS for each sample."""
    return lambda wildcards: expand(patterns, sample=samples())


def known_by(paths):
    """What tells files from others at the same paths, of an older date too, and in another order."""
    known = []
    for path in map(Path, paths):
        known.append(str(path))
        if path.is_file():
            known += [path.stat().st_size, path.stat().st_mtime_ns]
    return known


def weights_of(model):
    """Of the Hub none: its cache may get them in a run."""
    names = [model] + [
        name for name in Path(model).rglob("*.*") if name.suffix in MODEL
    ]
    return known_by(sorted(map(str, names))) if Path(model).exists() else []


def refuse_other_cut():
    """Shards of another size would stand beside those that are there."""
    now = config["max_shard_tokens"]
    for sample in read_rows():
        manifest = Path(OUTDIR, sample, "shards/manifest.json")
        was = json.loads(manifest.read_text())["options"] if manifest.exists() else {}
        if was.get("max_shard_tokens", now) != now:
            raise WorkflowError(
                f"{OUTDIR}/{sample}: was cut with a max_shard_tokens of {was['max_shard_tokens']}, which is now {now}:"
                " take another folder of results, or remove this one"
            )


def remove_batches():
    """Of samples that are done. Snakemake removes what is temporary by itself, but not what a killed run left."""
    for sample in read_rows():
        if Path(OUTDIR, sample, "dataset.json").exists():
            shutil.rmtree(Path(OUTDIR, sample, "batches"), ignore_errors=True)


def verdict_of(sample):
    """The last verdict on a sample, if it is about the files that are there."""
    folder = Path(OUTDIR, sample)
    manifest = folder / "shards/manifest.json"
    verdict = folder / "dataset.json"
    if not verdict.exists() or not manifest.exists():
        return []
    shards = json.loads(manifest.read_text())["shards"]
    judged = [manifest, *(folder / "embeddings" / shard["file"] for shard in shards)]
    # What was validated again without a change may have kept its date.
    reports = folder.glob(f"reports/{sample}_validation_mqc.json")
    newest = max(path.stat().st_mtime for path in [verdict, *reports])
    is_of_these = all(
        path.exists() and path.stat().st_mtime <= newest for path in judged
    )
    return [verdict] if is_of_these else []


def summarise(table, said=None):
    """The table of all samples, and on standard error, or in a file, the totals and what is wrong; whether nothing is."""
    text = []
    for sample in read_rows():
        text.append(f">{sample}\n")
        manifest = Path(OUTDIR, sample, "shards/manifest.json")
        for path in [manifest, *verdict_of(sample)]:
            text.append(path.read_text() if path.exists() else "")
    script = workflow.source_path("../../../engines/summary.sh")
    with open(table, "w") as out:
        done = subprocess.run(
            ["bash", script, OUTDIR, json.dumps(config["allow_empty"])],
            input="".join(text),
            stdout=out,
            stderr=said,
            text=True,
        )
    return done.returncode == 0


def tell_estimate(params, manifests, copies):
    """Tells what it will cost to embed these shards, as far as that is known."""
    script = workflow.source_path("../../../engines/estimate.sh")
    command = ["bash", script, params.model, params.options, "", *manifests]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout
    print(told, end="", file=sys.stderr)
    for copy in copies:
        Path(copy).write_text(told)


IMAGES = {
    "plmkit": "docker://ghcr.io/plmkit/plmkit:0.1.0",
    "plmkit-cpu": "docker://ghcr.io/plmkit/plmkit-cpu:0.1.0",
}


def image(name):
    """An image as it is published, or that of the registry or the folder of SIF files which `images` names."""
    own = config["images"]
    if own.startswith("/"):
        return f"{own}/{name}.sif"
    return IMAGES[name].replace("ghcr.io/plmkit", own, 1)


if workflow.is_main_process:
    refuse_other_cut()
MODEL = [".json", ".safetensors", ".bin", ".pth"]
WEIGHTS = weights_of(config["model"])
ON_CPU = "--device cpu" in OPTIONS["gpu_embed"]
EMBED_IMAGE = image("plmkit-cpu" if ON_CPU else "plmkit")
EMBED_ENV = f"../envs/{'plmkit' if ON_CPU else 'plmkit-cuda'}.yaml"
# Options that choose the rows which are computed again; --spot-check 0: none.
RECOMPUTE_OPTIONS = " ".join(
    re.findall(r"--spot-check(?:-seed)?[ =]\d+", OPTIONS["validate_embeddings"])
)
IS_RECOMPUTED = not re.search(r"--spot-check[ =]0\b", RECOMPUTE_OPTIONS)
# Unless the user says so: where it is at hand. An image or an environment of it may need a network that is not there.
MULTIQC = config.get(
    "multiqc",
    shutil.which("multiqc") is not None
    and not workflow.deployment_settings.deployment_method,
)
PAGE = f"{OUTDIR}/index.html"
# Measured, unless the user says how large batches are.
BATCH_SIZE = f"{OUTDIR}/batch-size.json"
if "--max-batch-tokens" in OPTIONS["pack_batches"]:
    BATCH_SIZE = []


wildcard_constraints:
    sample=r"[A-Za-z0-9_][A-Za-z0-9_.-]*",
    shard=r"shard-(long-)?\d+",


def tell_of_failure():
    """The totals are said, and in the table, and on the page. The table is older than the verdicts: the next run makes both again."""
    if ROWS.exists():
        table = Path(OUTDIR, "summary.tsv")
        summarise(table)
        # One of an earlier run would tell of another table. With containers, the programs may be in the images alone.
        Path(PAGE).unlink(missing_ok=True)
        if shutil.which("plmkit"):
            subprocess.run(["plmkit", "report", "--", OUTDIR])
        os.utime(table, (0, 0))


def shards(sample):
    """The names of a sample's shards, known when it is cut."""
    with checkpoints.shard.get(sample=sample).output.manifest.open() as file:
        files = [shard["file"] for shard in json.load(file)["shards"]]
    return [file.removesuffix(".parquet") for file in files]


def when_cut(name):
    """An input function: a file of a sample that is there when the sample is cut."""
    return (
        lambda wildcards: shards(wildcards.sample)
        and f"{OUTDIR}/{wildcards.sample}/{name}"
    )


def of_each_shard(pattern):
    """An input function: PATTERN for each shard of a sample."""
    return lambda wildcards: expand(
        f"{OUTDIR}/{wildcards.sample}/{pattern}", shard=shards(wildcards.sample)
    )


def of_all_shards(*patterns):
    """An input function: PATTERNS for each shard of all samples."""
    return lambda wildcards: [
        f"{OUTDIR}/{sample}/{pattern.format(sample=sample, shard=shard)}"
        for sample in samples()
        for shard in shards(sample)
        for pattern in patterns
    ]
