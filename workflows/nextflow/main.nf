#!/usr/bin/env nextflow

include { EMBED                                                                                   } from './subworkflows/local/embed/main'
include { MONITOR_LOG_ESTIMATE                                                                    } from './modules/local/monitor-log/estimate/main'
include { MULTIQC                                                                                 } from './modules/local/multiqc/main'
include { PLMKIT_CHECK                                                                            } from './modules/local/plmkit/check/main'
include { SUMMARISE                                                                               } from './subworkflows/local/summary/main'
include { VERSIONS                                                                                } from './modules/local/versions/main'
include { checkEngine; checkParams; helpText; readInput; readModel; readSamples; wantsMultiqc } from './subworkflows/local/inputs/main'

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
    (table, name, fasta) = readInput(params.input)
    model = readModel(params.model)
    tokens = params.max_shard_tokens ?: 20000000

    file("${params.outdir}/pipeline_info").mkdirs()
    file("${params.outdir}/pipeline_info/params.json").text = groovy.json.JsonOutput.prettyPrint(groovy.json.JsonOutput.toJson(params)) + '\n'

    // What is mounted and not there would be made by the container engine, for root.
    if (workflow.containerEngine) {
        file(System.getenv('HF_HOME') ?: "${System.getenv('HOME')}/.cache/huggingface").mkdirs()
    }

    PLMKIT_CHECK(table, name, fasta, model)
    samples = PLMKIT_CHECK.out.rows.map { rows -> readSamples(rows, fasta, params.outdir, tokens) }

    // Once for all shards, unless the user says how large batches are.
    probe = !params.max_batch_tokens && !(params.pack_batches_args ?: '').contains('--max-batch-tokens')

    recompute = !(" ${params.validate_embeddings_args ?: ''} " =~ / --spot-check[ =]0 /)

    // Nothing begins before all of it is checked.
    checked = samples.map { _all -> model }
    EMBED(samples.flatMap { all -> all }, checked, tokens, probe, recompute)

    // Before the first sample is embedded, if it is the last to be cut.
    if (params.device != 'cpu') {
        cut = EMBED.out.manifest.join(EMBED.out.shard).toSortedList { a, b -> a[0].id <=> b[0].id }.filter { all -> all }
        files = cut.map { all -> all.collectMany { meta, manifest, shards -> ([manifest] + shards).collect { file -> [meta.id, file] } }.transpose() }
        MONITOR_LOG_ESTIMATE(file("${projectDir}/../engines/estimate.sh"), files, model)
        MONITOR_LOG_ESTIMATE.out.said.map { said -> said.trim() }.filter { said -> said }.subscribe { said -> log.info(said) }
    }

    // The commit of a model of the Hub, as the embeddings tell it.
    revision = EMBED.out.report.map { _meta, json -> new groovy.json.JsonSlurper().parse(json).model_revision ?: '' }.ifEmpty('').first()
    versions = VERSIONS(channel.topic('versions').toList().map { all -> [all] }.combine(revision).map { all, commit ->
        versionsYaml(all, params.model, commit)
    })
    report = channel.empty()
    if (wantsMultiqc(params.multiqc)) {
        tables = EMBED.out.mqc
            .map { _meta, mqc -> mqc }
            .mix(versions.multiqc, channel.fromPath("${projectDir}/assets/*_{config,mqc}.yml"))
            .toSortedList { a, b -> a.name <=> b.name }
        report = MULTIQC(tables).report
    }

    SUMMARISE(
        params.outdir,
        samples.map { all -> all.collect { meta, _fasta -> meta.id } },
        EMBED.out.manifest.map { meta, manifest -> [meta.id, manifest] },
        EMBED.out.failed.map { meta, messages -> [meta.id, messages] },
        EMBED.out.report.map { meta, validation -> [meta.id, validation] },
        EMBED.out.files,
        versions.published.mix(report),
    )
}
