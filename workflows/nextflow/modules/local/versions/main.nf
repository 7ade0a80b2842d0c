// The versions of all programs, for people and for MultiQC.
process VERSIONS {
    executor 'local'

    input:
    val yaml

    output:
    path 'versions.yml', emit: published
    path 'plmkit_mqc_versions.yml', emit: multiqc

    exec:
    ['versions.yml', 'plmkit_mqc_versions.yml'].each { name -> task.workDir.resolve(name).text = yaml }
}
