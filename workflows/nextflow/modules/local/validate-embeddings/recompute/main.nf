process RECOMPUTE {
    tag "${meta.id}"
    label 'process_medium'

    conda "${moduleDir}/../environment.yml"
    container 'ghcr.io/plmkit/plmkit-cpu:0.1.0'

    input:
    // The last are manifest.json and the lists of fasta-shard.
    tuple val(meta), path(embeddings), path(shard, stageAs: 'shards/*'), path(lists, stageAs: 'shards/*')
    // A folder or its files and what it is called, or none and the id of a model of the Hugging Face Hub.
    tuple path(model, stageAs: 'model/*'), val(model_name)

    output:
    tuple val(meta), path("${prefix}.recomputed.parquet"), emit: recomputed
    tuple val("${task.process}"), val('validate-embeddings'), eval("validate-embeddings --version | sed 's/.* //'"), topic: versions

    script:
    def args = task.ext.args ?: ''
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    validate-embeddings recompute ${embeddings} --shards ${shard} --manifest shards/manifest.json \\
        --model ${model ? (model instanceof List ? 'model' : model) : model_name} --out ${prefix}.recomputed.parquet \\
        --threads ${task.cpus} ${args}
    """

    stub:
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    touch ${prefix}.recomputed.parquet
    """
}
