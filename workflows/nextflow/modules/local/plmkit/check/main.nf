process PLMKIT_CHECK {
    label 'process_single'

    conda "${moduleDir}/environment.yml"
    container 'ghcr.io/plmkit/plmkit-cpu:0.1.0'

    input:
    // The text of a table with the FASTA files as they are staged here, and its name; or '' twice: each FASTA is a sample.
    stdin
    val table
    path fasta, stageAs: 'input?/*', arity: '1..*'
    // A folder or its files and what it is called, or none and the id of a model of the Hugging Face Hub.
    tuple path(model, stageAs: 'model/*'), val(model_name)

    output:
    path 'rows.tsv', emit: rows
    tuple val("${task.process}"), val('plmkit'), eval("plmkit --version | sed 's/.* //'"), topic: versions

    script:
    def args = task.ext.args ?: ''
    def known = model ? (model instanceof List ? 'model' : model) : model_name
    """
    ${table ? "cat >'${table}'" : ''}
    plmkit ${table ? "'${table}'" : fasta} --stage check --out results --model ${known} ${args} >rows.tsv
    """

    stub:
    def names = fasta.collect { file -> "${file.name.tokenize('/').last().tokenize('.').first()}\t${file}" }
    """
    ${table ? 'tail -n +2 >rows.tsv' : "echo '${names.join('\n')}' >rows.tsv"}
    """
}
