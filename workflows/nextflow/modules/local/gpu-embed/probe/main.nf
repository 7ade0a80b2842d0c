process GPU_EMBED_PROBE {
    tag "${model_name ?: model}"
    label 'process_gpu'

    conda "${moduleDir}/../environment${task.accelerator ? '.gpu' : ''}.yml"
    container "${task.accelerator ? 'ghcr.io/plmkit/plmkit:0.1.0' : 'ghcr.io/plmkit/plmkit-cpu:0.1.0'}"

    input:
    // A folder or its files and what it is called, or none and the id of a model of the Hugging Face Hub.
    tuple path(model, stageAs: 'model/*'), val(model_name)

    output:
    path "batch-size.json", emit: batch_size
    tuple val("${task.process}"), val('gpu-embed'), eval("gpu-embed --version | sed 's/.* //'"), topic: versions

    script:
    // Those of GPU_EMBED: outputs and precision decide how much memory a token takes.
    def args = task.ext.args ?: ''
    """
    gpu-embed --probe --out batch-size.json --model ${model ? (model instanceof List ? 'model' : model) : model_name} ${args}
    """

    stub:
    """
    touch batch-size.json
    """
}
