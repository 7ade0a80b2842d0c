include { PLMKIT_REPORT } from '../../../modules/local/plmkit/report/main'
include { SUMMARY       } from '../../../modules/local/summary/main'

// Fails the run when all else is done: what is published by then stays, and the engine's own error strategy ends the run.
process VERDICT {
    executor 'local'

    input:
    val outdir

    exec:
    error("${outdir}/summary.tsv: not all samples are what was asked for, see above")
}

// The end of a run: the table of all samples, the page and the totals, after everything else is done.
workflow SUMMARISE {
    take:
    outdir // value: the folder of results
    samples // channel: a list of the samples of the input
    cut // channel: [ sample, path(manifest) ] of each sample that was cut
    failed // channel: [ sample, path(messages) ] of each sample that cannot be cut
    judged // channel: [ sample, path(validation) ] of each sample that was validated
    files // channel: [ place, path(file) ] of all that the samples have
    done // channel: what else has to be done before

    main:
    all = samples.map { names -> ['samples', names] }.mix(
        cut.map { entry -> ['cut', entry] },
        failed.map { entry -> ['failed', entry] },
        judged.map { entry -> ['judged', entry] },
        done.map { entry -> ['done', entry] },
    )
    text = all.toList().map { entries ->
        def of = entries.groupBy { kind, _entry -> kind }.collectEntries { kind, found -> [kind, found.collect { entry -> entry[1] }] }
        account(outdir, of.samples.flatten(), of.cut ?: [], of.failed ?: [], of.judged ?: [])
    }
    SUMMARY(text, file("${projectDir}/../engines/summary.sh"), outdir)

    // In the order of their places, since the order of arrival would make another task of it after each -resume.
    placed = files.toSortedList { a, b -> a[0] <=> b[0] }.map { pairs -> [pairs.collect { pair -> pair[0] }, pairs.collect { pair -> pair[1] }] }
    PLMKIT_REPORT(SUMMARY.out.table, placed, outdir)

    // The last words, and the end of a run that fails, come after the page. One of an earlier run would be of another table.
    page = PLMKIT_REPORT.out.said.map { line -> line.trim() }.ifEmpty('no page: its task failed')
    page.filter { line -> line.startsWith('no page') }.subscribe { _line -> file("${outdir}/index.html").delete() }
    said = SUMMARY.out.verdict.combine(page).map { verdict, file, line -> [verdict, "${line}\n${file.text.trim()}"] }
    said.subscribe { _verdict, lines -> log.info(lines) }
    VERDICT(said.filter { verdict, _lines -> verdict != 'pass' }.map { _verdict, _lines -> outdir })
}

// What became of each sample, as engines/summary.sh reads it; and the models of samples of earlier runs.
def account(outdir, samples, cut, failed, judged) {
    def texts = samples.collectEntries { sample -> [sample, new StringBuilder(">${sample}\n")] }
    (cut + judged).each { sample, json -> texts[sample].append(json.text) }
    failed.each { sample, messages -> texts[sample].append("!${messages.readLines().last()}\n") }
    surplus(cut, outdir).each { sample, what -> texts[sample].append("!${what}\n") }
    def others = ['shards/manifest.json', 'dataset.json'].collectMany { name ->
        files("${outdir}/*/${name}").collect { found -> [found.toString() - "/${name}", found.name == 'dataset.json' ? found : null] }
    }
    def earlier = others.collect { folder, dataset -> [folder.tokenize('/').last(), dataset] }.findAll { sample, _dataset -> !texts.containsKey(sample) }
    def models = earlier.collect { sample, dataset ->
        "<${sample}\n" + (dataset ? dataset.readLines().findAll { line -> line.startsWith('  "model_digest": ') }.collect { line -> "${line}\n" }.join() : '')
    }
    return texts.values().join() + models.sort().join()
}

// [ sample, line ] of each folder with files of another cut of its sample: it is to be read as one table.
def surplus(cut, outdir) {
    return cut.collectMany { sample, manifest ->
        def names = new groovy.json.JsonSlurper().parse(manifest).shards.collect { shard -> shard.file - '.parquet' }
        def others = ['shards/shard-*.parquet', 'embeddings/*', 'rejects/*.csv'].collectMany { pattern ->
            files("${outdir}/${sample}/${pattern}").findAll { found -> found.baseName !in names }
        }
        others ? [[sample, "of no shard of this run; remove and -resume: ${others.sort().join(' ')}"]] : []
    }
}
