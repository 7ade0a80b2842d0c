process PACK_BATCHES {
    tag "${meta.id}"
    label 'process_single'

    conda "${moduleDir}/environment.yml"
    container 'ghcr.io/plmkit/plmkit-cpu:0.1.0'

    input:
    tuple val(meta), path(shard)
    // Of GPU_EMBED_PROBE, or [] where the options or their default say how many tokens a batch holds.
    path batch_size

    output:
    tuple val(meta), path("${prefix}.arrow"), emit: batches
    tuple val("${task.process}"), val('pack-batches'), eval("pack-batches --version | sed 's/.* //'"), topic: versions

    script:
    def args = task.ext.args ?: ''
    def size = batch_size ? "--batch-size ${batch_size}" : ''
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    pack-batches ${shard} --out ${prefix}.arrow ${size} ${args}
    """

    stub:
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    touch ${prefix}.arrow
    """
}
