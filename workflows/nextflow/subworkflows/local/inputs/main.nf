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

// [ [id: sample, order: [path, …]], [fasta, …] ] for each sample of a table, or of FASTA files and globs; all that a run is given is looked at. `shell` is
// the folder of the script.
def readSamples(given, shell) {
    def names = given.input instanceof List ? given.input : given.input.toString().tokenize(',').collect { name -> name.trim() }
    def isTable = names.size() == 1 && names[0].toString() ==~ /(?i).*[.](csv|tsv|txt)/
    def rows = look(isTable ? names[0].toString() : '--input', isTable ? existing(names[0]).bytes : readNames(names).bytes, given, shell)
    return rows.groupBy { sample, _fasta -> sample }.collect { sample, lines ->
        def files = lines.collect { line -> existing(line[1]) }
        // A task is known by its files in any order; here the order counts.
        [[id: sample, order: files.collect { file -> file.toString() }], files]
    }
}

// [ sample, fasta ] for each line of a table, by the script that all workflows share.
def look(name, table, given, shell) {
    def options = "${given.download ? '--download ' : ''}${given.gpu_embed_args ?: ''}"
    def words = ['env', "TABLE_NAME=${name}", 'bash', "${shell}/inputs.sh", '-', given.model, given.outdir, given.max_shard_tokens ?: 20000000, options]
    def script = words.collect { word -> word.toString() }.execute(null, workflow.launchDir.toFile())
    script.withOutputStream { out -> out.write(table) }
    def rows = new java.io.ByteArrayOutputStream()
    def said = new java.io.ByteArrayOutputStream()
    script.waitForProcessOutput(rows, said)
    if (script.exitValue() != 0) {
        // A line of a table that the user did not write is a file.
        def files = new String(table, 'UTF-8').readLines().collect { line -> line.split('\t')[-1].replaceAll(/^"|"$/, '') }
        error(said.toString('UTF-8').trim().replaceFirst(/^--input: line ([0-9]+):/) { _all, line -> "--input ${files[line.toInteger() - 1]}:" })
    }
    // Its first line tells of the weights, which are inputs of tasks here.
    return rows.toString('UTF-8').readLines().drop(1).collect { line -> line.split('\t', 2).toList() }
}

// The name of the sample in a file, as plmkit gives it.
def sampleName(file) {
    def name = file.replaceFirst(/(?i)(?<=.)([.](gz|bgz|zst|fasta|fas|fa|faa|fna|ffn|pep|prot|txt))+$/, '').replaceAll(/[^A-Za-z0-9_.-]/, '_')
    return name ==~ /[-.].*/ ? "_${name}".toString() : name
}

// A table of FASTA files, each a sample of its name.
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
            error("--input '${path.name}': expected FASTA files, or one table that ends in .csv or .tsv")
        }
    }
    def rows = paths.collect { path -> [sample: sampleName(path.name), fasta: path] }
    rows.countBy { row -> row.sample }.each { sample, count ->
        if (count > 1) {
            error("--input: ${count} files would be the sample '${sample}': name samples in a table, 'sample,fasta'")
        }
    }
    def lines = rows.collect { row -> row.sample + '\t"' + row.fasta.toUriString().replace('"', '""') + '"\n' }
    return 'sample\tfasta\n' + lines.join()
}

def existing(name) {
    def found = file(name.toString())
    // A glob gives a list.
    if (found instanceof List || !found.isFile()) {
        error("--input: no file '${name}'")
    }
    return found
}

// [ files, name ] of a folder, so that other weights in it make other tasks; or [ [], id ] of a model of the Hugging Face Hub.
def readModel(model) {
    def folder = file(model.toString())
    return folder.isDirectory() ? [files("${folder}/*.{json,safetensors,bin}").sort { path -> path.name }, folder.name] : [[], model]
}

// The commit of a model of the Hub that the local cache has, or ''.
def modelRevision(model, shell) {
    return ['bash', "${shell}/inputs.sh", 'revision', model].collect { word -> word.toString() }.execute().text.trim()
}

// What the run will cost, or ''.
def estimate(given, manifests, shell) {
    def options = "--device ${given.device ?: 'auto'} ${given.gpu_embed_args ?: ''}"
    def words = ['bash', "${shell}/estimate.sh", given.model, options, ''] + manifests
    return words.collect { word -> word.toString() }.execute(null, workflow.launchDir.toFile()).text.trim()
}

// Unless the user says so: where MultiQC is at hand. An image of it may need a network that is not there.
def wantsMultiqc(given) {
    return given != null ? given : !workflow.containerEngine && System.getenv('PATH').tokenize(':').any { folder -> file("${folder}/multiqc").exists() }
}
