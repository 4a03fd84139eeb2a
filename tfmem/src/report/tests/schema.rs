//! JSON reports against their schema.

use serde_json::{Value, json};

use super::samples;
use crate::report::json::{SCHEMA, write};
use crate::report::model::Report;

fn validator() -> jsonschema::Validator {
    let schema: Value = serde_json::from_str(SCHEMA).expect("schema is JSON");
    jsonschema::draft202012::meta::validate(&schema).expect("schema is a schema");
    jsonschema::draft202012::new(&schema).expect("schema")
}

fn document(report: &Report) -> Value {
    let mut out = Vec::new();
    write(report, &mut out).expect("write");
    assert!(out.ends_with(b"}\n"));
    serde_json::from_slice(&out).expect("JSON")
}

#[test]
fn reports_keep_to_the_schema() {
    let validator = validator();
    for (name, report) in samples() {
        let document = document(&report);
        let errors: Vec<String> =
            validator.iter_errors(&document).map(|e| format!("{name}: {} at {}", e, e.instance_path)).collect();
        assert!(errors.is_empty(), "{errors:#?}");
        assert_eq!(document["schema"], "tfmem.report/1");
    }
}

#[test]
fn reports_can_be_read_back() {
    for (_, report) in samples() {
        let document = document(&report);
        let again: Report = serde_json::from_value(document.clone()).expect("read back");
        assert_eq!(serde_json::to_value(&again).expect("JSON"), document);
    }
}

/// Ways to be wrong; each must be refused, or the schema proves nothing.
#[test]
fn the_schema_refuses_what_is_no_report() {
    let validator = validator();
    let (_, report) = samples().swap_remove(0);
    let good = document(&report);
    assert!(validator.is_valid(&good));
    let process = "/processes/0";
    let changes: [(String, &str, Value); 9] = [
        (String::new(), "schema", json!("tfmem.report/2")),
        (String::new(), "no_such_field", json!(1)),
        (String::new(), "started_at", json!("yesterday")),
        (process.to_owned(), "pid", json!("10")),
        (format!("{process}/verdicts/0"), "cause", json!("gremlins")),
        (format!("{process}/verdicts/0"), "bytes", json!(-1)),
        (format!("{process}/boundaries/0"), "kind", json!("lunch")),
        (format!("{process}/boundaries/0/survivors/0"), "bytes", Value::Null),
        (format!("{process}/boundaries/0/after/layers"), "swap", json!(0)),
    ];
    for (at, key, value) in changes {
        let mut bad = good.clone();
        bad.pointer_mut(&at).and_then(Value::as_object_mut).expect(&at).insert(key.to_owned(), value);
        assert!(!validator.is_valid(&bad), "{at}/{key} is accepted");
    }
    for (at, key) in [("", "losses"), (process, "verdicts"), ("/losses", "events_dropped")] {
        let mut bad = good.clone();
        bad.pointer_mut(at).and_then(Value::as_object_mut).expect(at).remove(key);
        assert!(!validator.is_valid(&bad), "without {at}/{key} it is accepted");
    }
}
