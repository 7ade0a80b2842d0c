process GPU_EMBED {
    tag "${meta.id}"
    label 'process_gpu'

    conda "${moduleDir}/environment${task.accelerator ? '.gpu' : ''}.yml"
    container "${task.accelerator ? 'ghcr.io/plmkit/plmkit:0.1.0' : 'ghcr.io/plmkit/plmkit-cpu:0.1.0'}"

    input:
    tuple val(meta), path(batches)
    // A folder or its files and what it is called, or none and the id of a model of the Hugging Face Hub.
    tuple path(model, stageAs: 'model/*'), val(model_name)

    output:
    tuple val(meta), path("${prefix}.parquet"), path("${prefix}.rejects.csv", arity: '0..*'), emit: embeddings
    tuple val(meta), path("${prefix}.samples.csv"), path("${prefix}.events.jsonl"), emit: logs
    tuple val("${task.process}"), val('gpu-embed'), eval("gpu-embed --version | sed 's/.* //'"), topic: versions
    tuple val("${task.process}"), val('monitor-log'), eval("monitor-log --version | sed 's/.* //'"), topic: versions

    script:
    def args = task.ext.args ?: ''
    prefix = task.ext.prefix ?: "${meta.id}"
    def named = model_name ? " --model-name '${model_name}'" : ''
    def known = model ? "${model instanceof List ? 'model' : model}${named}" : model_name
    """
    code=0
    monitor-log record --out ${prefix}.samples.csv -- \\
        gpu-embed ${batches} --model ${known} --out ${prefix}.parquet --rejects ${prefix}.rejects.csv \\
        --events ${prefix}.events.jsonl --threads ${task.cpus} ${args} || code=\$?
    # 1: some sequences could not be embedded. They are listed, for the validation to account for them.
    (( code <= 1 )) || exit \$code
    """

    stub:
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    touch ${prefix}.parquet ${prefix}.samples.csv ${prefix}.events.jsonl
    """
}
