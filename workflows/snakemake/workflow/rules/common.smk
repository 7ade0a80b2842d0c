import csv
import json
import re
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import validate

validate(config, schema="../schemas/config.schema.yaml")


def read_samples(path):
    """The FASTA files of each sample, in their order."""
    samples = {}
    if not Path(path).is_file():
        raise WorkflowError(f"{path}: no file")
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        for row in rows:
            try:
                validate(row, schema="../schemas/samples.schema.yaml")
            except WorkflowError as error:
                reason = str(error).split("\n")[1]
                raise WorkflowError(f"{path}: line {rows.line_num}: {reason}")
            name, fasta = row["sample"], row["fasta"]
            if fasta in samples.setdefault(name, []):
                raise WorkflowError(
                    f"{path}: line {rows.line_num}: '{fasta}' of '{name}' is there twice"
                )
            samples[name].append(fasta)
    if not samples:
        raise WorkflowError(f"{path}: no samples")
    return samples


def check_model(model):
    """A folder, a file of weights, or an id of the Hub, whose first part is no folder here."""
    hub = re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w./-]+)?", model)
    if not Path(model).exists() and (not hub or Path(model).parent.is_dir()):
        raise WorkflowError(
            f"model: no folder '{model}', and no id of the Hugging Face Hub"
        )


IMAGES = {
    "plmkit": "docker://ghcr.io/plmkit/plmkit:0.1.0",
    "plmkit-cpu": "docker://ghcr.io/plmkit/plmkit-cpu:0.1.0",
    "plmkit-tools": "docker://ghcr.io/plmkit/plmkit-tools:0.1.0",
}


def image(name):
    """An image as it is published, or that of the registry or the folder of SIF files which `images` names."""
    own = config["images"]
    if own.startswith("/"):
        return f"{own}/{name}.sif"
    return IMAGES[name].replace("ghcr.io/plmkit", own, 1)


check_model(config["model"])
SAMPLES = read_samples(config["samples"])
OUTDIR = config["outdir"].rstrip("/")
OPTIONS = config["options"]
# Where the model is computed.
EMBED_IMAGE = image(
    "plmkit-cpu" if "--device cpu" in OPTIONS["gpu_embed"] else "plmkit"
)
# Measured, unless the user says how large batches are.
BATCH_SIZE = f"{OUTDIR}/batch-size.json"
if "--max-batch-tokens" in OPTIONS["pack_batches"]:
    BATCH_SIZE = []


wildcard_constraints:
    sample=r"[A-Za-z0-9_][A-Za-z0-9_.-]*",
    shard=r"shard-(long-)?\d+",


def shards(sample):
    """The names of a sample's shards, known when it is cut."""
    with checkpoints.shard.get(sample=sample).output.manifest.open() as file:
        files = [shard["file"] for shard in json.load(file)["shards"]]
    return [file.removesuffix(".parquet") for file in files]


def of_each_shard(pattern):
    """An input function: PATTERN for each shard of a sample."""
    return lambda wildcards: expand(
        f"{OUTDIR}/{wildcards.sample}/{pattern}", shard=shards(wildcards.sample)
    )


def of_all_shards(*patterns):
    """An input function: PATTERNS for each shard of all samples."""
    return lambda wildcards: [
        f"{OUTDIR}/{sample}/{pattern.format(sample=sample, shard=shard)}"
        for sample in SAMPLES
        for shard in shards(sample)
        for pattern in patterns
    ]
