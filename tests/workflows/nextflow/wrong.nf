// What the workflow says to each of the parameters in a list, in one start of the engine: at once, or by a task that checks them.
include { checkParams; readInput; readModel } from '../../../workflows/nextflow/subworkflows/local/inputs/main'
include { PLMKIT_CHECK                      } from '../../../workflows/nextflow/modules/local/plmkit/check/main'

workflow {
    def left = []
    new groovy.json.JsonSlurper().parse(file(params.cases).toFile()).eachWithIndex { given, number ->
        try {
            checkParams(given.findAll { name, _value -> name != 'words' }, given.words, file(params.schema))
            left << [number] + readInput(given.input) + [readModel(given.model)]
        }
        // Closures wrap what error() throws.
        catch (Exception refusal) {
            println("REFUSED ${number} ${(refusal.cause ?: refusal).message}")
        }
    }
    def of = { place -> channel.fromList(left.collect { entry -> entry[place] }) }
    PLMKIT_CHECK(of(1), of(2), of(3), of(4))
    println("CHECKED ${left.collect { entry -> entry[0] }.join(' ')}")
}
