# The programs as rules of a workflow of your own: see ../MODULES.md.


rule fasta_shard:
    input: "proteins.fasta"
    output: expand("shards/shard-0000{n}.parquet", n=range(2)), "shards/rejects.csv", "shards/manifest.json"
    shell: "fasta-shard {input} --out shards --shards 2"


rule pack_batches:
    input: "shards/{shard}.parquet"
    output: temp("batches/{shard}.arrow")
    shell: "pack-batches {input} --out {output} --max-batch-tokens 16384"


# --wait-for-lock is for a gpu-embed that outlived a killed Snakemake. The list of rejects is no output: there may be none.
rule gpu_embed:
    input: "batches/{shard}.arrow"
    output: "embeddings/{shard}.parquet"
    log: events="logs/{shard}.events.jsonl", samples="logs/{shard}.samples.csv"
    params: model=config["model"], rejects="rejects/{shard}.csv"
    retries: 2
    resources: gpu=1
    shell:
        "mkdir -p rejects; code=0; monitor-log record --out {log.samples} -- gpu-embed {input} --model {params.model} --out {output}"
        " --rejects {params.rejects} --events {log.events} --wait-for-lock || code=$?; [ $code -le 1 ] || exit $code"


rule validate_embeddings:
    input:
        embeddings=expand("embeddings/shard-0000{n}.parquet", n=range(2)),
        shards=expand("shards/shard-0000{n}.parquet", n=range(2)),
        lists=["shards/rejects.csv", "shards/manifest.json"],
    output: "dataset.json"
    shell: "validate-embeddings --dataset ."


rule monitor_log:
    input: expand("embeddings/shard-0000{n}.parquet", n=range(2))
    output: "run.json"
    shell: "monitor-log report --gpu logs --events logs --out {output}"
