process VALIDATE_EMBEDDINGS {
    tag "${meta.id}"
    label 'process_low'

    conda "${moduleDir}/environment.yml"
    container 'ghcr.io/plmkit/plmkit-cpu:0.1.0'

    input:
    // With the shards their manifest.json and rejects.csv.
    tuple val(meta), path(embeddings, stageAs: 'embeddings/*'), path(shards, stageAs: 'shards/*'), path(rejects, stageAs: 'rejects/*'), path(recomputed, stageAs: 'recomputed/*')

    output:
    tuple val(meta), path("${prefix}.dataset.json"), emit: report
    tuple val(meta), path("${prefix}_validation_mqc.json"), emit: mqc
    // 'pass' or 'fail'. A task that failed would not hand over its report, so what calls this has to act on the verdict.
    tuple val(meta), env('VERDICT'), emit: verdict
    tuple val("${task.process}"), val('validate-embeddings'), eval("validate-embeddings --version | sed 's/.* //'"), topic: versions

    script:
    def args = task.ext.args ?: ''
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    # dataset.json names the parts as they are published: without their sample.
    shopt -s nullglob
    for file in embeddings/${prefix}_*.parquet; do mv "\$file" "\${file/${prefix}_/}"; done
    for file in rejects/${prefix}_*.rejects.csv; do name=\${file/${prefix}_/}; mv "\$file" "\${name%.rejects.csv}.csv"; done
    VERDICT=pass
    validate-embeddings --dataset . --mqc ${prefix}_validation_mqc.json ${recomputed ? '--recomputed recomputed' : ''} \\
        --threads ${task.cpus} ${args} || {
        code=\$?
        [[ \$code -eq 1 ]] || exit \$code
        VERDICT=fail
    }
    mv dataset.json ${prefix}.dataset.json
    """

    stub:
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    VERDICT=pass
    printf '{\\n  "tool": "validate-embeddings",\\n  "outcome": "pass",\\n  "rows": 1\\n}\\n' >${prefix}.dataset.json
    touch ${prefix}_validation_mqc.json
    """
}
