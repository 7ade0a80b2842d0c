// What the user gave, checked before anything is run. A wrong one ends the run with one message.

// Before 26.04 the strict parser leaves options out of what tells tasks apart (nextflow-io/nextflow#6695): with -resume, results of
// other options would pass for those of this run.
def checkEngine() {
    if (workflow.resume && System.getenv('NXF_SYNTAX_PARSER') == 'v2' && !nextflow.version.matches('>=26.04')) {
        error("-resume: Nextflow ${nextflow.version} with NXF_SYNTAX_PARSER=v2 does not see changed options: unset it, or take 26.04 or later")
    }
}

// The parameters as nextflow_schema.json describes them; unknown ones are warned of.
def checkParams(given, schema) {
    def groups = new groovy.json.JsonSlurper().parse(schema.toFile()).get('$defs').values()
    def known = groups.collectEntries { group -> group.properties }
    def required = groups.collectMany { group -> group.required ?: [] }

    // --max-shard-tokens comes as maxShardTokens, with some versions beside the name as it was given.
    given.keySet().findAll { name -> !known.containsKey(name) }.groupBy { name -> plain(name) }.each { spelling, names ->
        def meant = known.keySet().find { name -> plain(name) == spelling }
        log.warn("--${names.first()} is no parameter of this workflow and changes nothing${meant ? ": did you mean --${meant}?" : ''}")
    }
    required.each { name ->
        if (given[name] == null || given[name] == '' || given[name] == true) {
            error("--${name} is missing: ${known[name].description}")
        }
    }
    known.each { name, rule -> checkParam(name, given[name], rule) }
}

def plain(name) {
    return name.replaceAll('[-_]', '').toLowerCase()
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

// [ [id: sample], [fasta, …] ] for each sample of a table, or of FASTA files and globs.
def readSamples(input) {
    def given = input instanceof List ? input : input.toString().tokenize(',').collect { name -> name.trim() }
    def rows = given.size() == 1 && given[0].toString().endsWith('.csv') ? readTable(given[0]) : readNames(given)
    return rows.groupBy { row -> row.sample }.collect { sample, lines -> [[id: sample], lines.collect { line -> line.fasta }] }
}

// A table with the columns `sample` and `fasta`; others are left alone.
def readTable(name) {
    def table = existing(name, '--input')
    def lines = table.splitCsv(header: false, quote: '"', strip: true)
    def header = lines ? lines[0].collect { column -> column.toString() } : []
    ['sample', 'fasta'].each { column ->
        if (column !in header) {
            error("${name}: no column '${column}': expected the columns 'sample' and 'fasta', found '${header.join(',')}'")
        }
    }
    if (lines.size() == 1) {
        error("${name}: no samples")
    }
    def seen = [] as Set
    return lines.drop(1).withIndex().collect { cells, index ->
        def at = "${name}: sample ${index + 1}"
        if (cells.size() != header.size()) {
            error("${at}: expected ${header.size()} columns, found ${cells.size()}")
        }
        def row = [sample: cells[header.indexOf('sample')], fasta: cells[header.indexOf('fasta')]]
        checkName(row.sample, at)
        if (!seen.add(row)) {
            error("${at}: '${row.fasta}' of '${row.sample}' is there twice")
        }
        return row + [fasta: existing(row.fasta, at)]
    }
}

// FASTA files, each a sample of its name without the suffix.
def readNames(given) {
    def paths = given.collectMany { name ->
        def found = files(name.toString()).sort { path -> path.toString() }
        if (!found) {
            error("--input: no file '${name}'")
        }
        return found
    }
    paths.each { path ->
        if (path.isDirectory() || path.name ==~ /(?i).*[.](csv|tsv|txt|json|ya?ml)/) {
            error("--input '${path.name}': expected FASTA files, or one table that ends in .csv")
        }
    }
    def rows = paths.collect { path -> [sample: path.name.replaceAll(/\.(gz|bgz|zst)$/, '').replaceAll(/\.[^.]+$/, ''), fasta: path] }
    rows.countBy { row -> row.sample }.each { sample, count ->
        if (count > 1) {
            error("--input: ${count} files would be the sample '${sample}': name samples in a table, 'sample,fasta'")
        }
    }
    rows.each { row -> checkName(row.sample, "--input '${row.fasta.name}'") }
    return rows
}

// A sample is a folder of the results, beside multiqc/ and versions.yml.
def checkName(sample, at) {
    if (!(sample ==~ /[A-Za-z0-9_][A-Za-z0-9_.-]*/)) {
        error("${at}: sample name '${sample ?: ''}': expected letters, digits, '_', '-' and '.', the first no '-' or '.'")
    }
    if (sample in ['multiqc', 'versions.yml', 'batch-size.json', 'packs.tsv', 'settings.txt']) {
        error("${at}: sample name '${sample}': the results have something else of that name")
    }
}

def existing(name, at) {
    def found = name ? file(name.toString()) : null
    // A glob gives a list.
    if (found == null || found instanceof List || !found.isFile()) {
        error("${at}: no file '${name ?: ''}'")
    }
    return found
}

// [ folder, '' ], or [ [], id ] of a model of the Hugging Face Hub.
def readModel(model) {
    def folder = file(model.toString())
    if (folder.isDirectory()) {
        return [folder, '']
    }
    // With a folder of that name here, models/esm2 is a mistyped path.
    if (model ==~ /[A-Za-z0-9][\w.-]*\/[\w.-]+(@[\w.\/-]+)?/ && !folder.exists() && !file(model.tokenize('/')[0]).isDirectory()) {
        return [[], model]
    }
    error("--model: no folder '${model}', and no id of the Hugging Face Hub, such as facebook/esm2_t33_650M_UR50D")
}
