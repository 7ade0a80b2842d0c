// The programs as processes of a pipeline of your own: see ../MODULES.md.

process FASTA_SHARD {
    input:  tuple val(sample), path(fasta)
    output: tuple val(sample), path('shards/*.parquet'), emit: shards
            tuple val(sample), path('shards/rejects.csv'), emit: rejects
            tuple val(sample), path('shards/manifest.json'), emit: manifest
    script: "fasta-shard ${fasta} --out shards --max-shard-tokens 20000000"
}

process PACK_BATCHES {
    input:  tuple val(sample), path(shard)
    output: tuple val(sample), path("${shard.baseName}.arrow")
    script: "pack-batches ${shard} --out ${shard.baseName}.arrow --max-batch-tokens 16384"
}

process GPU_EMBED {
    accelerator 1
    errorStrategy { task.exitStatus == 75 || task.exitStatus in 130..145 ? 'retry' : 'finish' }
    maxRetries 2
    input:  tuple val(sample), path(batches)
            path model
    output: tuple val(sample), path("${name}.parquet"), emit: embeddings
            tuple val(sample), path("${name}.rejects.csv"), emit: rejects, optional: true
            tuple val(sample), path("${name}.samples.csv"), path("${name}.events.jsonl"), emit: logs
    script:
    name = batches.baseName
    def saved = "${workflow.workDir}/saved/${workflow.sessionId}/${sample}"
    """
    code=0
    monitor-log record --out ${name}.samples.csv -- gpu-embed ${batches} --model ${model} --out ${name}.parquet \\
        --rejects ${name}.rejects.csv --events ${name}.events.jsonl --checkpoint-dir ${saved} --wait-for-lock --force || code=\$?
    [ \$code -le 1 ] || exit \$code
    """
}

process VALIDATE_EMBEDDINGS {
    input:  tuple val(sample), path(embeddings), path(shards, stageAs: 'shards/*'), path(rejects, stageAs: 'rejects/*'), path(manifest)
    output: tuple val(sample), path('validation.json')
    script: "validate-embeddings ${embeddings} --shards ${shards} --rejects ${rejects} --manifest ${manifest} --report validation.json"
}

process MONITOR_LOG {
    input:  tuple val(sample), path(samples), path(events)
    output: tuple val(sample), path("${events.simpleName}.run.json")
    script: "monitor-log report --gpu ${samples} --events ${events} --out ${events.simpleName}.run.json"
}

workflow {
    FASTA_SHARD(channel.of(['yeast', file(params.fasta)]))
    PACK_BATCHES(FASTA_SHARD.out.shards.transpose())
    GPU_EMBED(PACK_BATCHES.out, file(params.model))
    MONITOR_LOG(GPU_EMBED.out.logs)
    rejects = FASTA_SHARD.out.rejects.mix(GPU_EMBED.out.rejects).groupTuple()
    VALIDATE_EMBEDDINGS(GPU_EMBED.out.embeddings.groupTuple().join(FASTA_SHARD.out.shards).join(rejects).join(FASTA_SHARD.out.manifest))
}
