#!/usr/bin/env nextflow

include { EMBED                                                                                             } from './subworkflows/local/embed/main'
include { MULTIQC                                                                                           } from './modules/local/multiqc/main'
include { VERDICT                                                                                           } from './subworkflows/local/verdict/main'
include { VERSIONS                                                                                          } from './modules/local/versions/main'
include { checkEngine; checkParams; estimate; helpText; modelRevision; readModel; readSamples; wantsMultiqc } from './subworkflows/local/inputs/main'

// [ process, tool, version ] of all tasks as YAML, sorted; `Workflow` stands last as in nf-core.
def versionsYaml(versions, model, revision) {
    def tools = versions
        .collect { process, tool, version -> [process.tokenize(':').last(), tool, version] }
        .unique()
        .sort { entry -> entry.join(' ') }
        .groupBy { entry -> entry[0] }
        .collect { process, entries -> "${process}:\n" + entries.collect { entry -> "    ${entry[1]}: ${entry[2]}\n" }.join() }
    def cached = revision ? "Model:\n    ${model}: ${revision}\n" : ''
    return tools.join() + cached + "Workflow:\n    ${workflow.manifest.name}: ${workflow.manifest.version}\n    Nextflow: ${workflow.nextflow.version}\n"
}

workflow {
    main:
    schema = file("${projectDir}/nextflow_schema.json")
    if (params.help) {
        println(helpText(schema))
        return
    }
    if (params.version) {
        println("${workflow.manifest.name} ${workflow.manifest.version}")
        return
    }
    checkEngine()
    checkParams(params, args, schema)
    samples = readSamples(params, "${projectDir}/../engines")
    model = readModel(params.model)

    file("${params.outdir}/pipeline_info").mkdirs()
    file("${params.outdir}/pipeline_info/params.json").text = groovy.json.JsonOutput.prettyPrint(groovy.json.JsonOutput.toJson(params)) + '\n'

    // The same place for every attempt, and for every -resume. One that is not a folder of this machine cannot be written to.
    local = workflow.workDir.toUri().scheme == 'file'
    checkpoint_dir = params.checkpoint_dir ? file(params.checkpoint_dir) : local ? file("${workflow.workDir}/plmkit-saved/${workflow.sessionId}") : ''
    if (checkpoint_dir) {
        checkpoint_dir.mkdirs()
    }
    // What is mounted and not there would be made by the container engine, for root.
    if (workflow.containerEngine) {
        file(System.getenv('HF_HOME') ?: "${System.getenv('HOME')}/.cache/huggingface").mkdirs()
    }

    // Once for all shards, unless the user says how large batches are.
    probe = !params.max_batch_tokens && !(params.pack_batches_args ?: '').contains('--max-batch-tokens')

    recompute = !(" ${params.validate_embeddings_args ?: ''} " =~ / --sample[ =]0 /)

    EMBED(channel.fromList(samples), model, probe, checkpoint_dir.toString(), recompute)

    // Before the first sample is embedded, if it is the last to be cut.
    EMBED.out.manifest.map { _meta, manifest -> manifest }.toList().subscribe { manifests ->
        def said = !manifests || workflow.stubRun ? '' : estimate(params, manifests, "${projectDir}/../engines")
        if (said) {
            log.info(said)
        }
    }

    versions = VERSIONS(channel.topic('versions').toList().map { all ->
        versionsYaml(all, params.model, modelRevision(params.model, "${projectDir}/../engines"))
    })
    report = channel.empty()
    if (wantsMultiqc(params.multiqc)) {
        tables = EMBED.out.mqc
            .map { _meta, table -> table }
            .mix(versions.multiqc, channel.fromPath("${projectDir}/assets/*_{config,mqc}.yml"))
            .toSortedList { a, b -> a.name <=> b.name }
        report = MULTIQC(tables).report
    }

    VERDICT(
        params,
        samples.collect { meta, _fasta -> meta.id },
        params.checkpoint_dir || !local ? '' : checkpoint_dir.toString(),
        EMBED.out.manifest.map { meta, manifest -> [meta.id, manifest] },
        EMBED.out.report.map { meta, validation -> [meta.id, validation] },
        EMBED.out.embeddings.map { meta, rows, _rejects ->
            [rows, "${params.outdir}/${meta.sample}/embeddings/${rows.name - "${meta.sample}_"}"]
        },
        versions.published.mix(report),
    )
}

