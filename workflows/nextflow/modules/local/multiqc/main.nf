process MULTIQC {
    label 'process_single'

    conda "${moduleDir}/environment.yml"
    container "${workflow.containerEngine in ['singularity', 'apptainer'] ? 'https://depot.galaxyproject.org/singularity/multiqc:1.35--pyhdfd78af_0' : 'quay.io/biocontainers/multiqc:1.35--pyhdfd78af_0'}"

    input:
    path tables, stageAs: 'tables/*'

    output:
    path "multiqc_report.html", emit: report
    path "multiqc_data", emit: data
    // Not to the topic, which it waits for: that would end never.
    tuple val("${task.process}"), val('multiqc'), eval("multiqc --version | sed 's/.* //'"), emit: versions

    script:
    def args = task.ext.args ?: ''
    """
    multiqc --strict ${args} tables
    """

    stub:
    """
    mkdir multiqc_data
    touch multiqc_report.html
    """
}
