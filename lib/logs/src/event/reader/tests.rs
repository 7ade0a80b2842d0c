use plmkit_kit::{Exit, Failure};

use super::*;

const BATCH: &str = r#"{"type":"batch","run":"r","batch":0,"sequences":1,"tokens":4,"residues":2}"#;

#[test]
#[rustfmt::skip]
fn a_malformed_line_or_an_impossible_value_is_refused_with_its_line() {
    let done = r#"{"type":"done","run":"r","elapsed_s":-1,"outcome":"done"}"#;
    let run = r#"{"type":"run","run":"r","load_ms":-1}"#;
    let with = |field: &str| format!("{},{field}}}", &BATCH[..BATCH.len() - 1]);
    for (line, reason) in [
        (BATCH[..BATCH.len() - 5].to_owned(), "not a run event: EOF"),
        ("[1]".to_owned(), "not a run event: "),
        ("{\"run\":\"r\"}".to_owned(), "not a run event: missing field `type`"),
        ("{\"type\":\"batch\",\"run\":\"r\"}".to_owned(), "not a run event: missing field `batch`"),
        ("{\"type\": \"batch\",\"run\":\"r\"}".to_owned(), "not a run event: missing field `batch`"),
        (with("\"wait_ms\":-0.5"), "wait_ms is out of range; expected a duration, found -0.5"),
        (with("\"wait_ms\":1e300"), "wait_ms is out of range"),
        (with("\"wait_ms\":1e-300"), "wait_ms is out of range"),
        (with("\"wait_ms\":1e999"), "not a run event: "),
        (with("\"total\":{\"batches\":1,\"sequences\":1,\"tokens\":9007199254740993,\"residues\":2}"), "total is out of range; expected at most"),
        (with("\"queue_depth\":-1"), "not a run event: "),
        (with("\"boot_s\":-1"), "boot_s is out of range"),
        (BATCH.replace(":4,", ":18446744073709551615,"), "tokens is out of range; expected at most 2147483647"),
        (done.to_owned(), "elapsed_s is out of range"),
        (run.to_owned(), "load_ms is out of range; expected a duration, found -1"),
    ] {
        let log = format!("{BATCH}\n\n{line}\n{BATCH}\n");
        let mut reader = EventReader::new(log.as_bytes(), "e.jsonl");
        assert!(reader.next().is_some_and(|first| first.is_ok()));
        let error = reader.next().unwrap().unwrap_err();
        assert_eq!(error.exit(), Exit::Data);
        let expected = format!("e.jsonl: line 3: {reason}");
        assert!(error.to_string().starts_with(&expected), "{error}: {expected}");
    }
}

#[test]
fn a_batch_is_the_same_with_and_without_spaces() {
    let spaced = BATCH.replace("\"type\":\"batch\",", "\"type\": \"batch\", ");
    let [spaced, plain] = [&*spaced, BATCH].map(|line| EventLines.parse(line.as_bytes()));
    assert_eq!(spaced, plain);
    assert!(matches!(plain, Ok(Some(Event::Batch(_)))));
}
