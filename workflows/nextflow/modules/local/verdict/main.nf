// The table of all samples, by the script that all workflows share, and its totals; an error where something is wrong.
def summarise(expected, reports, outdir, allow_empty) {
    def texts = reports.groupBy { sample, _file -> sample }.collectEntries { sample, files -> [sample, files.collect { entry -> entry[1].text }.join()] }
    def script = ['bash', "${projectDir}/../shell/summary.sh", outdir, allow_empty].collect { word -> word.toString() }.execute()
    script.withOutputStream { out -> expected.each { sample -> out.write(">${sample}\n${texts.get(sample, '')}".getBytes('UTF-8')) } }
    def table = new StringBuilder()
    def said = new StringBuilder()
    script.waitForProcessOutput(table, said)
    file("${outdir}/summary.tsv").text = table.toString()
    if (script.exitValue() != 0) {
        error(said.toString().trim())
    }
    return said.toString().trim()
}

// A folder of results is to be read as one table: files of another cut of the sample must not be in it.
def refuseOthers(cut, outdir) {
    def others = cut.collectMany { sample, manifest ->
        def names = new groovy.json.JsonSlurper().parse(manifest).shards.collect { shard -> shard.file - '.parquet' }
        ['shards/*.parquet', 'embeddings/*.parquet', 'rejects/*.csv'].collectMany { pattern ->
            files("${outdir}/${sample}/${pattern}").findAll { found -> found.baseName !in names }
        }
    }
    if (others) {
        error("From an earlier run that cut the input in another way; remove them and -resume: ${others.sort().join(', ')}")
    }
}

// Ends the workflow as failed where a sample has no verdict or a negative one, or is not what was asked for. After everything else is done.
process VERDICT {
    executor 'local'
    cache false
    // Whatever a configuration says of others: a run that lost a sample is no success.
    errorStrategy 'terminate'

    input:
    // The samples of the input.
    val expected
    // [ sample, manifest ] of each that was cut.
    val cut
    // [ sample, validation ] of each that was validated.
    val judged
    val outdir
    // Whether to take a sample of which every record is rejected.
    val allow_empty
    // A folder of what interrupted tasks have saved, which goes when it is empty, or ''.
    val saved
    val _done

    exec:
    if (saved && file(saved).toFile().delete()) {
        file(saved).parent.toFile().delete()
    }
    log.info(summarise(expected, cut + judged, outdir, allow_empty))
    refuseOthers(cut, outdir)
}
