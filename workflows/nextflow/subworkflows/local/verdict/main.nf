// The end of a run: the table of all samples and its totals, after everything else is done. An error where a sample has no verdict or a
// negative one, or is not what was asked for. Whatever a configuration says of failed tasks, a run that lost a sample is no success.
workflow VERDICT {
    take:
    given // value: the parameters
    expected // value: the samples of the input
    saved // value: a folder of what interrupted tasks have saved, which goes when it is empty, or ''
    cut // channel: [ sample, path(manifest) ] of each sample that was cut
    judged // channel: [ sample, path(validation) ] of each sample that was validated
    results // channel: [ path(file), where it is published ]
    done // channel: what else has to be done before

    main:
    cut.map { entry -> ['cut', entry] }
        .mix(judged.map { entry -> ['judged', entry] }, results.map { entry -> ['results', entry] }, done.map { entry -> ['done', entry] })
        .toList()
        .subscribe { all ->
            def of = all.groupBy { kind, _entry -> kind }.collectEntries { kind, entries -> [kind, entries.collect { entry -> entry[1] }] }
            if (saved && file(saved).toFile().delete()) {
                file(saved).parent.toFile().delete()
            }
            def (code, said) = summarise(given, expected, of.get('cut', []), of.get('judged', []))
            // A run that ends early has failed already, and another error would hide the reason.
            if (code == 0 || !nextflow.Global.session.success) {
                log.info(said)
            }
            else {
                settle(of.get('results', []), -1L, 0L)
                // Here: functions wrap what error() throws.
                error(said)
            }
        }
}

// How the script that all workflows share ends, and what it says.
def summarise(given, expected, cut, judged) {
    def texts = expected.collectEntries { sample -> [sample, new StringBuilder(">${sample}\n")] }
    (cut + judged).each { sample, json -> texts[sample].append(json.text) }
    (reasons() + surplus(cut, given.outdir)).each { sample, what -> texts[sample]?.append("!${what}\n") }
    def script = ['bash', "${projectDir}/../engines/summary.sh", given.outdir, given.allow_empty ?: false].collect { word -> word.toString() }.execute()
    script.withOutputStream { out -> texts.values().each { text -> out.write(text.toString().getBytes('UTF-8')) } }
    def table = new StringBuilder()
    def said = new StringBuilder()
    script.waitForProcessOutput(table, said)
    file("${given.outdir}/summary.tsv").text = table.toString()
    return [script.exitValue(), said.toString().trim()]
}

// [ sample, line ] of each task whose failure cost its sample: what its program said last. conf/base.config notes their folders.
def reasons() {
    return System.properties.findAll { name, _folder -> name.startsWith('plmkit.failed.') }.collect { name, folder ->
        def lines = file("${folder}/.command.err").exists() ? file("${folder}/.command.err").readLines() : []
        def told = lines.findAll { line -> line ==~ /(fasta-shard|pack-batches|gpu-embed|validate-embeddings|monitor-log): .*/ } ?: lines
        [name.minus('plmkit.failed.').replaceFirst(/_shard-[a-z0-9-]+$/, ''), told ? told.last() : "see ${folder}"]
    }
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

// Files are published beside the tasks, and an error cuts that off: it waits for them, as long as they grow.
def settle(results, before, until) {
    def left = results.sum(0L) { source, target -> source.size() - (file(target).exists() ? Math.min(source.size(), file(target).size()) : 0L) }
    def now = System.currentTimeMillis()
    if (left > 0 && (left != before || now < until)) {
        sleep(200)
        settle(results, left, left != before ? now + 10000 : until)
    }
}
