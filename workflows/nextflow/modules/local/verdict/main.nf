// Ends the workflow as failed where a validation failed, after everything else is done and published.
process VERDICT {
    executor 'local'
    cache false

    input:
    val failed
    val _done

    exec:
    if (failed) {
        error("The validation failed, see SAMPLE/reports/validation.json: ${failed.sort().join(', ')}")
    }
}
