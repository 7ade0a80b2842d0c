# How many tokens a batch holds: measured once, on the GPU of this job; on a CPU the default of pack-batches.
rule batch_size:
    output:
        f"{OUTDIR}/batch-size.json",
    log:
        "logs/batch_size.log",
    benchmark:
        "benchmarks/batch_size.tsv"
    retries: 2
    conda:
        EMBED_ENV
    container:
        EMBED_IMAGE
    threads: 8
    resources:
        gpu=1,
        mem_mb=lambda wildcards, attempt: 24000 * attempt,
        runtime=lambda wildcards, attempt: 60 * attempt,
    params:
        model=config["model"],
        # Others at the same path make other embeddings.
        weights=WEIGHTS,
        options=OPTIONS["gpu_embed"],
    shell:
        "gpu-embed --probe --out {output:q} --model {params.model:q} --threads {threads} {params.options} > {log:q} 2>&1"


# A second, and nothing for a queue.
rule pack:
    input:
        shard=f"{OUTDIR}/{{sample}}/shards/{{shard}}.parquet",
        batch_size=BATCH_SIZE,
    output:
        temp(f"{OUTDIR}/{{sample}}/batches/{{shard}}.arrow"),
    log:
        "logs/{sample}/{shard}.pack.log",
    benchmark:
        "benchmarks/{sample}/{shard}.pack.tsv"
    localrule: True
    conda:
        "../envs/plmkit.yaml"
    params:
        batch_size="--batch-size" if BATCH_SIZE else "",
        options=OPTIONS["pack_batches"],
    shell:
        "pack-batches {input.shard:q} --out {output:q}"
        " {params.batch_size} {input.batch_size:q} {params.options} 2> {log:q}"


# What is finished of a shard is saved beside the output, in a folder that is not among the outputs: it outlives a failed or
# killed job, and the next attempt goes on from there. Exit code 1: some sequences could not be embedded. They are listed,
# and the validation accounts for them. --wait-for-lock: a job that outlived a killed Snakemake may be at work on the shard.
# --force: what is saved of other options is replaced, since Snakemake has decided to make the output again.
rule embed:
    input:
        batches=f"{OUTDIR}/{{sample}}/batches/{{shard}}.arrow",
    output:
        f"{OUTDIR}/{{sample}}/embeddings/{{shard}}.parquet",
    log:
        events=f"{OUTDIR}/{{sample}}/logs/{{shard}}.events.jsonl",
        samples=f"{OUTDIR}/{{sample}}/logs/{{shard}}.samples.csv",
        stderr="logs/{sample}/{shard}.embed.log",
    benchmark:
        "benchmarks/{sample}/{shard}.embed.tsv"
    # Batches first embedded, then others packed: fewer of them lie on the disk.
    priority: 1
    retries: 2
    conda:
        EMBED_ENV
    container:
        EMBED_IMAGE
    threads: 8
    resources:
        gpu=1,
        mem_mb=lambda wildcards, attempt: 24000 * attempt,
        runtime=lambda wildcards, attempt: 120 * attempt,
    params:
        model=config["model"],
        # Others at the same path make other embeddings.
        weights=WEIGHTS,
        options=OPTIONS["gpu_embed"],
        # No output: there is a list only of what was rejected.
        rejects=f"{OUTDIR}/{{sample}}/rejects/{{shard}}.csv",
    shell:
        'mkdir -p "$(dirname {params.rejects:q})"; code=0;'
        " monitor-log record --out {log.samples:q} --"
        " gpu-embed {input.batches:q} --model {params.model:q} --out {output:q} --rejects {params.rejects:q}"
        " --events {log.events:q} --threads {threads} --wait-for-lock --force {params.options} 2> {log.stderr:q} || code=$?;"
        " [ $code -le 1 ] || exit $code"
