process FASTA_SHARD {
    tag "${meta.id}"
    label 'process_low'

    conda "${moduleDir}/environment.yml"
    container 'ghcr.io/plmkit/plmkit-cpu:0.1.0'

    input:
    // A folder each, since files of one sample may have one name.
    tuple val(meta), path(fasta, stageAs: 'input?/*', arity: '1..*')
    // Most tokens in a shard.
    val tokens

    output:
    tuple val(meta), path("${prefix}/shard-*.parquet", arity: '0..*'), emit: shards
    tuple val(meta), path("${prefix}/rejects.csv"), emit: rejects, optional: true
    tuple val(meta), path("${prefix}/renamed.csv"), emit: renamed, optional: true
    // Records with the vectors of other records: --dedup, --known.
    tuple val(meta), path("${prefix}/{aliases,known,peptides}.parquet", arity: '0..*'), emit: lists
    tuple val(meta), path("${prefix}/manifest.json"), emit: manifest, optional: true
    // Instead of all these: what is wrong with the data of the sample, which is no failure of the task.
    tuple val(meta), path("${prefix}.failed.txt"), emit: failed, optional: true
    tuple val("${task.process}"), val('fasta-shard'), eval("fasta-shard --version | sed 's/.* //'"), topic: versions

    script:
    def args = task.ext.args ?: ''
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    code=0
    fasta-shard ${fasta} --sample ${meta.id} --out ${prefix} --max-shard-tokens ${tokens} --threads ${task.cpus} ${args} 2>messages || code=\$?
    cat messages >&2
    # 65: bad data, which another attempt would find again.
    (( code == 0 || code == 65 )) || exit \$code
    (( code == 0 )) || { rm -rf ${prefix}; mv messages ${prefix}.failed.txt; }
    """

    stub:
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    mkdir ${prefix}
    touch ${prefix}/shard-00000.parquet ${prefix}/shard-00001.parquet ${prefix}/rejects.csv
    echo '{"shards": [{"file": "shard-00000.parquet"}, {"file": "shard-00001.parquet"}]}' >${prefix}/manifest.json
    """
}
