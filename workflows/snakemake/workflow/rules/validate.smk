# A sample of a shard, as soon as it is embedded, beside the others: on the CPU, in f32.
rule recompute:
    input:
        embeddings=f"{OUTDIR}/{{sample}}/embeddings/{{shard}}.parquet",
        shard=f"{OUTDIR}/{{sample}}/shards/{{shard}}.parquet",
        manifest=f"{OUTDIR}/{{sample}}/shards/manifest.json",
    output:
        temp(f"{OUTDIR}/{{sample}}/recomputed/{{shard}}.parquet"),
    log:
        "logs/{sample}/{shard}.recompute.log",
    benchmark:
        "benchmarks/{sample}/{shard}.recompute.tsv"
    retries: 2
    conda:
        "../envs/plmkit.yaml"
    threads: 8
    resources:
        mem_mb=lambda wildcards, attempt: 24000 * attempt,
        runtime=lambda wildcards, attempt: 120 * attempt,
    params:
        model=config["model"],
        options=RECOMPUTE_OPTIONS,
    shell:
        "validate-embeddings recompute {input.embeddings:q} --shards {input.shard:q} --manifest {input.manifest:q}"
        " --model {params.model:q} --out {output:q} --threads {threads} {params.options} 2> {log:q}"


# dataset.json is a log, which stays when the verdict is negative and the job fails. All files of the folders are looked at, and not those of
# the inputs alone: one that is left from another set of shards has to be found.
rule validate:
    input:
        manifest=f"{OUTDIR}/{{sample}}/shards/manifest.json",
        rejects=when_cut("shards/rejects.csv"),
        shards=of_each_shard("shards/{shard}.parquet"),
        embeddings=of_each_shard("embeddings/{shard}.parquet"),
        recomputed=of_each_shard("recomputed/{shard}.parquet") if IS_RECOMPUTED else [],
    output:
        report(
            f"{OUTDIR}/{{sample}}/reports/{{sample}}_validation_mqc.json",
            caption="../report/validation.rst",
            category="Validation",
            labels={"sample": "{sample}"},
        ),
    log:
        report=f"{OUTDIR}/{{sample}}/dataset.json",
        stderr="logs/{sample}/validate.log",
    benchmark:
        "benchmarks/{sample}/validate.tsv"
    conda:
        "../envs/plmkit.yaml"
    threads: 4
    resources:
        mem_mb=16000,
        runtime=240,
    params:
        folder=lambda wildcards: f"{OUTDIR}/{wildcards.sample}",
        recomputed=lambda wildcards, input: "--recomputed" if input.recomputed else "",
        empty="--allow-empty" if config["allow_empty"] else "",
        options=OPTIONS["validate_embeddings"],
    # The folder of rejects is empty if nothing was rejected.
    shell:
        "rmdir {params.folder:q}/rejects 2> /dev/null || true;"
        " validate-embeddings --dataset {params.folder:q} --mqc {output:q}"
        " {params.recomputed} {input.recomputed:q} {params.empty} --threads {threads} {params.options} 2> {log.stderr:q}"


# Fails where a sample is not what was asked for, though each by itself was validated.
rule summary:
    input:
        of_samples(f"{OUTDIR}/{{sample}}/reports/{{sample}}_validation_mqc.json"),
    output:
        report(
            f"{OUTDIR}/summary.tsv",
            caption="../report/summary.rst",
            category="Summary",
        ),
    log:
        "logs/summary.log",
    benchmark:
        "benchmarks/summary.tsv"
    localrule: True
    params:
        allow_empty=config["allow_empty"],
    run:
        with open(log[0], "w") as said:
            if not summarise(output[0], said):
                raise WorkflowError("the samples are not what was asked for")
