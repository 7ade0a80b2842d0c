process FASTA_SHARD {
    tag "${meta.id}"
    label 'process_low'

    conda "${moduleDir}/environment.yml"
    container 'ghcr.io/plmkit/plmkit-cpu:0.1.0'

    input:
    // A folder each, since files of one sample may have one name.
    tuple val(meta), path(fasta, stageAs: 'input?/*', arity: '1..*')

    output:
    tuple val(meta), path("${prefix}/shard-*.parquet", arity: '1..*'), emit: shards
    tuple val(meta), path("${prefix}/rejects.csv"), emit: rejects
    tuple val(meta), path("${prefix}/renamed.csv"), emit: renamed, optional: true
    // Records with the vectors of other records: --dedup, --known.
    tuple val(meta), path("${prefix}/{aliases,known,peptides}.parquet", arity: '0..*'), emit: lists
    tuple val(meta), path("${prefix}/manifest.json"), emit: manifest
    tuple val("${task.process}"), val('fasta-shard'), eval("fasta-shard --version | sed 's/.* //'"), topic: versions

    script:
    // How the shards are cut: --shards N or --max-shard-tokens N.
    def args = task.ext.args ?: '--shards 1'
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    fasta-shard ${fasta} --sample ${meta.id} --out ${prefix} --threads ${task.cpus} ${args}
    """

    stub:
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    mkdir ${prefix}
    touch ${prefix}/shard-00000.parquet ${prefix}/shard-00001.parquet ${prefix}/rejects.csv
    echo '{"shards": [{"file": "shard-00000.parquet"}, {"file": "shard-00001.parquet"}]}' >${prefix}/manifest.json
    """
}
