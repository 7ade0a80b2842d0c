// What the user gave, checked before anything is run. A wrong one ends the run with one message.

// Before 26.04 the strict parser leaves options out of what tells tasks apart (nextflow-io/nextflow#6695): with -resume, results of
// other options would pass for those of this run.
def checkEngine() {
    if (workflow.resume && System.getenv('NXF_SYNTAX_PARSER') == 'v2' && !nextflow.version.matches('>=26.04')) {
        error("-resume: Nextflow ${nextflow.version} with NXF_SYNTAX_PARSER=v2 does not see changed options: unset it, or take 26.04 or later")
    }
}

// What --help says.
def helpText(schema) {
    def groups = new groovy.json.JsonSlurper().parse(schema.toFile()).get('$defs').values()
    def parts = groups.collect { group ->
        def lines = group.properties.collect { name, rule ->
            def end = rule.get('default') ? " [default: ${rule.get('default')}]" : ''
            "    --${name.padRight(26)}${rule.description}${end}"
        }
        "${group.title}:\n${lines.join('\n')}\n"
    }
    return "nextflow run ${workflow.manifest.name} --input samples.csv --model MODEL --outdir DIR\n\n${parts.join('\n')}"
}

// The parameters as nextflow_schema.json describes them, and no others. Words without a parameter are what a shell makes
// of a glob without quotes.
def checkParams(given, words, schema) {
    // Nextflow makes `-stub true` of -stub, and a word of that.
    def stray = workflow.stubRun ? words - 'true' : words
    if (stray) {
        error("'${stray.first()}' belongs to no parameter: put a glob in quotes, --input '*.fasta'")
    }
    def groups = new groovy.json.JsonSlurper().parse(schema.toFile()).get('$defs').values()
    def known = groups.collectEntries { group -> group.properties }
    def required = groups.collectMany { group -> group.required ?: [] }

    // --max-shard-tokens comes as maxShardTokens, with some versions beside the name as it was given.
    given.keySet().findAll { name -> !known.containsKey(name) }.each { name ->
        def nearest = known.keySet().max { other -> alike(name, other) }
        error("--${name} is no parameter of this workflow: ${alike(name, nearest) > 0.5 ? "did you mean --${nearest}? " : ''}--help lists all")
    }
    required.each { name ->
        if (given[name] == null || given[name] == '' || given[name] == true) {
            error("--${name} is missing: ${known[name].description}")
        }
    }
    known.each { name, rule -> checkParam(name, given[name], rule) }
}

// The share of pairs of letters that two names have in common.
def alike(left, right) {
    def (a, b) = [left, right].collect { name -> name.replaceAll('[-_]', '').toLowerCase().toList().collate(2, 1, false)*.join() }
    return 2 * a.intersect(b).size() / (a.size() + b.size())
}

def checkParam(name, value, rule) {
    if (value == null) {
        return
    }
    if (rule.type == 'integer' && !(value instanceof Integer || value instanceof Long)) {
        error("--${name} '${value}': expected a whole number")
    }
    if (rule.type == 'boolean' && !(value instanceof Boolean)) {
        error("--${name} '${value}': expected true or false")
    }
    if (rule.type == 'string' && value instanceof Boolean) {
        error("--${name}: expected a value after it")
    }
    if (rule.minimum != null && value < rule.minimum) {
        error("--${name} ${value}: expected at least ${rule.minimum}")
    }
    if (rule.pattern && !(value.toString() =~ rule.pattern)) {
        error("--${name} '${value}': expected ${rule.description}")
    }
    if (rule.get('enum') && value !in rule.get('enum')) {
        error("--${name} '${value}': expected one of ${rule.get('enum').join(', ')}")
    }
}

// [ text of a table with files as PLMKIT_CHECK sees them, name of the table, FASTA files ]; FASTA files and globs make no table.
def readInput(input) {
    def names = input instanceof List ? input : input.toString().tokenize(',').collect { name -> name.trim() }
    if (names.size() != 1 || !(names[0].toString() ==~ /(?i).*[.](csv|tsv|txt)/)) {
        return ['', '', names.collectMany { name -> existing('--input', name).sort { path -> path.toString() } }]
    }
    def table = existing('--input', names[0]).first()
    def header = table.withReader { reader -> reader.readLine() ?: '' }
    def cells = table.splitCsv(sep: header.contains('\t') ? '\t' : ',', strip: true, quote: '"').findAll { row -> row.any() }
    def columns = cells ? cells.first() : []
    if (columns.count('sample') != 1 || columns.count('fasta') != 1) {
        error("${table.name}: line 1: expected the columns sample,fasta, found '${header}'")
    }
    def rows = cells.drop(1).collect { row ->
        row.size() == columns.size() ? [columns, row].transpose().collectEntries() : error("${table.name}: '${row[0]}': expected ${columns.size()} columns, found ${row.size()}")
    }
    def paths = rows.collect { row -> existing(table.name, row.fasta, false).first().toAbsolutePath().normalize() }
    def places = paths.unique(false).withIndex(1).collectEntries { path, place -> [path, "input${place}/${path.name}"] }
    def lines = [rows, paths].transpose().collect { row, path -> "${row.sample}\t${places[path]}\n" }
    return ['sample\tfasta\n' + lines.join(), table.name, places.keySet().toList() ?: error("${table.name}: no samples")]
}

// The files of a path or a glob.
def existing(where, name, glob = true) {
    return (name ? files(name.toString(), glob: glob).findAll { path -> path.exists() } : []) ?: error("${where}: no file '${name}'")
}

// [ [id: sample, order: [path, …]], [fasta, …] ] for each sample of the rows of PLMKIT_CHECK. Shards of another size than those that are
// published would stand beside them.
def readSamples(rows, fasta, outdir, tokens) {
    return rows.readLines().collect { line -> line.split('\t', 2) }.groupBy { line -> line[0] }.collect { sample, lines ->
        def manifest = file("${outdir}/${sample}/shards/manifest.json")
        def cut = manifest.exists() ? new groovy.json.JsonSlurper().parse(manifest).options?.max_shard_tokens : null
        if (cut && cut != tokens) {
            error("${outdir}/${sample}: was cut with a max_shard_tokens of ${cut}, which is now ${tokens}: take another folder of results, or remove this one")
        }
        def own = lines.collect { line -> fasta[line[1].replaceFirst('^input([0-9]+)/.*', '$1').toInteger() - 1] }
        // A task is known by its files in any order; here the order counts.
        [[id: sample, order: own.collect { file -> file.toString() }], own]
    }
}

// [ files, name ] of a folder, so that other weights in it make other tasks; or [ [], id ] of a model of the Hugging Face Hub.
def readModel(model) {
    def folder = file(model.toString())
    return folder.isDirectory() ? [files("${folder}/*.{json,safetensors,bin}").sort { path -> path.name }, folder.name] : [[], model]
}

// Unless the user says so: where MultiQC is at hand. An image of it may need a network that is not there.
def wantsMultiqc(given) {
    return given != null ? given : !workflow.containerEngine && System.getenv('PATH').tokenize(':').any { folder -> file("${folder}/multiqc").exists() }
}
