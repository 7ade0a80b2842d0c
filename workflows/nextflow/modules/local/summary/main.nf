process SUMMARY {
    label 'process_single'

    conda "${moduleDir}/environment.yml"
    container 'ghcr.io/plmkit/plmkit-cpu:0.1.0'

    input:
    // What became of each sample, as engines/summary.sh reads it.
    stdin
    path script
    // The folder of results, for messages.
    val outdir

    output:
    path 'summary.tsv', emit: table
    // 'pass' or 'fail', and the totals and what is wrong. A task that failed would not hand over its table.
    tuple env('VERDICT'), path('said.txt'), emit: verdict

    script:
    def args = task.ext.args ?: ''
    """
    VERDICT=pass
    bash ${script} . '${args}' '${outdir}' >summary.tsv 2>said.txt || VERDICT=fail
    """

    stub:
    """
    VERDICT=pass
    touch summary.tsv said.txt
    """
}
