// What the workflow says to each of the parameters in a list, in one start of the engine.
include { checkParams; readSamples } from '../../../workflows/nextflow/subworkflows/local/inputs/main'

workflow {
    new groovy.json.JsonSlurper().parse(file(params.cases).toFile()).each { given ->
        try {
            checkParams(given.findAll { name, _value -> name != 'words' }, given.words, file(params.schema))
            readSamples(given, "${projectDir}/../../../workflows/engines")
            println("TAKEN ${given}")
        }
        // Closures wrap what error() throws.
        catch (Exception refusal) {
            println("REFUSED ${(refusal.cause ?: refusal).message}")
        }
    }
}
