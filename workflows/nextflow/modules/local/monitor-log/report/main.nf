process MONITOR_LOG_REPORT {
    tag "${meta.id}"
    label 'process_single'

    conda "${moduleDir}/environment.yml"
    container 'ghcr.io/plmkit/plmkit-cpu:0.1.0'

    input:
    // Of one run, or of all runs of a sample.
    tuple val(meta), path(samples, stageAs: 'logs/*'), path(events, stageAs: 'logs/*')

    output:
    tuple val(meta), path("${prefix}.run.json"), emit: report
    tuple val(meta), path("${prefix}_run_mqc.json"), emit: mqc
    tuple val("${task.process}"), val('monitor-log'), eval("monitor-log --version | sed 's/.* //'"), topic: versions

    script:
    def args = task.ext.args ?: ''
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    monitor-log report --gpu logs --events logs --out ${prefix}.run.json --mqc ${prefix}_run_mqc.json ${args}
    """

    stub:
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    touch ${prefix}.run.json ${prefix}_run_mqc.json
    """
}
