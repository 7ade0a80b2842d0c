process MONITOR_LOG_ESTIMATE {
    label 'process_single'

    conda "${moduleDir}/environment.yml"
    container 'ghcr.io/plmkit/plmkit-cpu:0.1.0'

    input:
    // engines/estimate.sh, which says what `monitor-log estimate` takes of the options of gpu-embed.
    path script
    // The shards and the manifest of each sample, and the sample of each of these files.
    tuple val(samples), path(files, stageAs: 'cut?/*')
    // A folder or its files and what it is called, or none and the id of a model of the Hugging Face Hub.
    tuple path(model, stageAs: 'model/*'), val(model_name)

    output:
    stdout emit: said
    tuple val("${task.process}"), val('monitor-log'), eval("monitor-log --version | sed 's/.* //'"), topic: versions

    script:
    // Those of gpu-embed.
    def args = task.ext.args ?: ''
    """
    samples=(${samples.join(' ')})
    for i in \${!samples[@]}; do
        mkdir -p \${samples[i]}
        ln -s "\$PWD"/cut\$((i + 1))/* \${samples[i]}/
    done
    bash ${script} ${model ? (model instanceof List ? 'model' : model) : model_name} '${args.replace("'", "'\\''")}' '' ${samples.unique(false).join(' ')}
    """

    stub:
    """
    true
    """
}
