// What the workflow says to each of the parameters in a list, in one start of the engine.
include { checkParams; readModel; readSamples } from '../../../workflows/nextflow/subworkflows/local/inputs/main'

workflow {
    new groovy.json.JsonSlurper().parse(file(params.cases).toFile()).each { given ->
        try {
            checkParams(given, file(params.schema))
            readSamples(given.input)
            readModel(given.model)
            println("TAKEN ${given}")
        }
        // Closures wrap what error() throws.
        catch (Exception refusal) {
            println("REFUSED ${(refusal.cause ?: refusal).message}")
        }
    }
}
