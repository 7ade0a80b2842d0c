import csv
import json

from snakemake.exceptions import WorkflowError
from snakemake.utils import validate

validate(config, schema="../schemas/config.schema.yaml")


def read_samples(path):
    """The FASTA files of each sample, in their order."""
    samples = {}
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        for row in rows:
            try:
                validate(row, schema="../schemas/samples.schema.yaml")
            except WorkflowError as error:
                reason = str(error).split("\n")[1]
                raise WorkflowError(f"{path}: line {rows.line_num}: {reason}")
            samples.setdefault(row["sample"], []).append(row["fasta"])
    if not samples:
        raise WorkflowError(f"{path}: no samples")
    return samples


SAMPLES = read_samples(config["samples"])
OUTDIR = config["outdir"].rstrip("/")
OPTIONS = config["options"]


wildcard_constraints:
    sample=r"[A-Za-z0-9][A-Za-z0-9._-]*",
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
