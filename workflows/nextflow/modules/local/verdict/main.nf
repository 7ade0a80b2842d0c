// Ends the workflow as failed where a validation failed, or where a folder of results, which is to be read as one table, has files of
// another cut of its sample. After everything else is done and published.
process VERDICT {
    executor 'local'
    cache false

    input:
    val failed
    // [ sample, manifest ] of each.
    val cut
    val outdir
    val _done

    exec:
    if (failed) {
        error("The validation failed, see SAMPLE/reports/validation.json: ${failed.sort().join(', ')}")
    }
    def others = cut.collectMany { sample, manifest ->
        def names = new groovy.json.JsonSlurper().parse(manifest).shards.collect { shard -> shard.file - '.parquet' }
        ['shards', 'embeddings'].collectMany { folder ->
            files("${outdir}/${sample}/${folder}/*.{parquet,rejects.csv}").findAll { found -> found.name.replaceFirst('[.](parquet|rejects[.]csv)$', '') !in names }
        }
    }
    if (others) {
        error("From an earlier run that cut the input in another way; remove them and -resume: ${others.sort().join(', ')}")
    }
}
