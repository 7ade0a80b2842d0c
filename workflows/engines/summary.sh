#!/usr/bin/env bash
# The end of a run of Nextflow and Snakemake: what became of each sample, and whether that is what was asked for.
#
#     summary.sh OUTDIR ALLOW_EMPTY [NAME] <TEXT >TABLE.tsv
#
# NAME is what messages call OUTDIR. TEXT has for each sample that is expected a line `>SAMPLE`, its manifest.json and its dataset.json, as
# far as they are there, and a line `!REASON` for whatever else is wrong with it; then, where OUTDIR is not here, for each sample of an earlier
# run a line `<SAMPLE` and that of its model. The table has a line a sample; standard error says the totals and what is wrong. It ends with 1
# where a sample has no verdict or a negative one, where every record of one was rejected and ALLOW_EMPTY is not `true`, `yes` or `1`, or where
# samples of OUTDIR were embedded by different models.
set -euo pipefail

# Samples of earlier runs in the same folder: `<SAMPLE`, and the line with its model, where it has one.
others() {
    find "$1" -mindepth 3 -maxdepth 3 -path '*/shards/manifest.json' 2>/dev/null | sed -E 's#^.*/([^/]+)/shards/[^/]*$#<\1#' | sort || true
    find "$1" -mindepth 2 -maxdepth 2 -name dataset.json -exec grep -Hm 1 '^  "model_digest": ' {} + 2>/dev/null |
        sed -E 's#^.*/([^/]+)/dataset[.]json:#<\1\n#' || true
}

{
    cat
    others "$1"
} | awk -v outdir="${3:-$1}" -v allow_empty="$2" '
    function list(what, names) {
        if (names == "") return
        print what ":" names > "/dev/stderr"
        failed = 1
    }
    function embedded_by(model, sample) {
        if (model in of_model) return
        of_model[model] = sample
        models = models " " model " (" sample ")"
        different++
    }
    function tell() {
        if (sample == "") return
        expected[sample] = 1
        if (!rows && rejected && !known && (verdict == "pass" || verdict == "fail" && !allowed)) verdict = "empty"
        if (verdict == "pass" && wrong) { verdict = "fail"; spoilt = spoilt " " sample }
        else if (verdict == "fail") fail = fail " " sample
        if (!rows) truncated = 0
        print sample, records, rows, rejected, aliases, known, truncated, verdict, name, model
        if (verdict == "not validated") without = without " " sample
        if (verdict == "empty") empty = empty " " sample
        if (verdict != "not validated") embedded_by(model, sample)
        samples++
        all_rows += rows
        all_rejected += rejected
        all_aliases += aliases
        all_known += known
        all_truncated += truncated
    }
    function count(n, what, plural) { return n " " what (n == 1 ? "" : plural ? plural : "s") }
    function value() { sub(/^[^:]*: /, ""); sub(/,$/, ""); gsub(/"/, ""); return $0 }
    BEGIN { OFS = "\t"; allowed = tolower(allow_empty) ~ /^(true|yes|1)$/; print "sample", "records", "rows", "rejected", "aliases", "known", "truncated", "verdict", "model", "model_digest" }
    /^>/ { tell(); sample = substr($0, 2); records = rows = rejected = aliases = known = truncated = 0; verdict = "not validated"; model = name = ""; validation = wrong = 0; next }
    /^!/ { wrong = 1; reasons = reasons sample ": " substr($0, 2) "\n"; next }
    /^</ {
        tell()
        sample = ""
        other = substr($0, 2)
        if (!(other in expected) && !(other in seen)) left = left " " other
        seen[other] = 1
        next
    }
    other && /^  "model_digest": / && !(other in expected) { embedded_by(value(), other) }
    other { next }
    /^  "tool": "validate-embeddings"/ { validation = 1 }
    /^  "records": / && !validation { records = value() + 0 }
    /^ *"proteins_truncated": / { truncated = value() + 0 }
    !validation { next }
    /^  "outcome": / { verdict = value() }
    /^  "model": / { name = value() }
    /^  "model_digest": / { model = value() }
    /^  "rows": / { rows = value() + 0 }
    /^  "aliases": / { aliases = value() + 0 }
    /^  "known": / { known = value() + 0 }
    # By reason.
    /^  "rejected": \{$/ { by_reason = 1; next }
    by_reason && /^  \}/ { by_reason = 0 }
    by_reason { rejected += value() }
    END {
        tell()
        elsewhere = (all_aliases ? ", " count(all_aliases, "alias", "es") : "") (all_known ? ", " all_known " known" : "")
        printf "%s: %s, %d rejected%s, %d truncated, in %s\n", count(samples, "sample"), count(all_rows + 0, "row"), all_rejected, elsewhere, all_truncated, outdir > "/dev/stderr"
        if (left != "") print "not in the table, left as they are:" left > "/dev/stderr"
        printf "%s", reasons > "/dev/stderr"
        list("not validated, see the messages above", without)
        list("the validation failed, see SAMPLE/dataset.json", fail)
        list("with files that are not of this run, see the messages above", spoilt)
        if (allowed && empty != "") print "warning: no record could be embedded, see SAMPLE/shards/rejects.csv and SAMPLE/rejects:" empty > "/dev/stderr"
        else list("no record could be embedded, see SAMPLE/shards/rejects.csv and SAMPLE/rejects (allow_empty accepts it)", empty)
        if (different > 1) list("embedded by different models, one of each is named: remove those of the wrong one", models)
        exit failed
    }'
