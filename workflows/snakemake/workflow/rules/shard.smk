# All that the run is given, before anything is computed, and the rows of its table. --out is no folder that is there: what of the results can
# stay, Snakemake knows.
checkpoint check:
    input:
        config["samples"],
    output:
        ROWS,
    log:
        "logs/check.log",
    benchmark:
        "benchmarks/check.tsv"
    localrule: True
    conda:
        "../envs/plmkit.yaml"
    params:
        model=config["model"],
        weights=WEIGHTS,
        tokens=config["max_shard_tokens"],
        empty="--allow-empty" if config["allow_empty"] else "",
        options=" ".join(OPTIONS.values()),
    shell:
        "plmkit {input:q} --stage check --out {output:q}.new --model {params.model:q}"
        " --max-shard-tokens {params.tokens} {params.empty} {params.options} > {output:q} 2> {log:q}"


# The shards and the rejects are beside the manifest and not among the outputs: nobody knows how many shards there will be before. The manifest
# is written last and names them. --force: what is there was made from something else, or Snakemake would not run this.
checkpoint shard:
    input:
        fasta=lambda wildcards: samples()[wildcards.sample],
    output:
        manifest=f"{OUTDIR}/{{sample}}/shards/manifest.json",
    log:
        "logs/{sample}/shard.log",
    benchmark:
        "benchmarks/{sample}/shard.tsv"
    conda:
        "../envs/plmkit.yaml"
    threads: 4
    resources:
        mem_mb=8000,
        runtime=480,
    params:
        folder=subpath(output.manifest, parent=True),
        fasta=lambda wildcards: known_by(samples()[wildcards.sample]),
        tokens=config["max_shard_tokens"],
        options=OPTIONS["fasta_shard"],
    # An earlier verdict is not this one's, and earlier runs are of other shards.
    shell:
        "fasta-shard --sample {wildcards.sample:q} --max-shard-tokens {params.tokens} --threads {threads} {params.options}"
        " --force --out {params.folder:q} -- {input.fasta:q} 2> {log:q}"
        " && rm -rf {params.folder:q}/../dataset.json {params.folder:q}/../logs"


# What it will cost to embed the samples, told before the first one is embedded. No estimate is no failure.
rule estimate:
    input:
        of_samples(f"{OUTDIR}/{{sample}}/shards/manifest.json"),
    output:
        f"{OUTDIR}/pipeline_info/estimate.txt",
    log:
        "logs/estimate.log",
    benchmark:
        "benchmarks/estimate.tsv"
    priority: 2
    localrule: True
    params:
        model=config["model"],
        options=OPTIONS["gpu_embed"],
    run:
        tell_estimate(params, input, [output[0], log[0]])


# What got lost of it comes back without its neighbours being written again, which would have all of them embedded again.
# `ancient`: such a file is older than its manifest, and right; this runs only where there is none.
rule restore:
    input:
        manifest=ancient(f"{OUTDIR}/{{sample}}/shards/manifest.json"),
        fasta=lambda wildcards: ancient(samples()[wildcards.sample]),
    output:
        f"{OUTDIR}/{{sample}}/shards/{{file}}",
    log:
        "logs/{sample}/{file}.restore.log",
    benchmark:
        "benchmarks/{sample}/{file}.restore.tsv"
    wildcard_constraints:
        file=r"shard-(long-)?\d+\.parquet|rejects\.csv",
    conda:
        "../envs/plmkit.yaml"
    threads: 4
    resources:
        mem_mb=8000,
        runtime=480,
    params:
        tokens=config["max_shard_tokens"],
        options=OPTIONS["fasta_shard"],
    shell:
        "(folder=$(mktemp -d {output:q}.XXXXXX) && trap 'rm -r \"$folder\"' EXIT &&"
        ' fasta-shard --sample {wildcards.sample:q} --max-shard-tokens {params.tokens} --threads {threads} {params.options} --out "$folder" -- {input.fasta:q} &&'
        ' cmp {input.manifest:q} "$folder/manifest.json" &&'
        ' mv "$folder/$(basename {output:q})" {output:q}) > {log:q} 2>&1'
