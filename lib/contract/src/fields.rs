//! Columns of Arrow schemas as text, and their comparison.

use std::fmt::Write as _;

use arrow_schema::{DataType, Field, Schema};

/// Formats a schema as text, one column per line: `name: type`, with `?` after the type of a nullable column.
pub fn fields_text(schema: &Schema) -> String {
    let mut text = String::new();
    for field in schema.fields() {
        let null = if field.is_nullable() { "?" } else { "" };
        let _ = writeln!(
            text,
            "{}: {}{null}",
            field.name(),
            type_text(field.data_type())
        );
    }
    text
}

/// Compares the columns of a file with the expected ones. The error names both.
pub fn check_columns(found: &Schema, expected: &Schema) -> Result<(), String> {
    let [found, expected] =
        [found, expected].map(|schema| fields_text(schema).trim_end().replace('\n', ", "));
    if found == expected {
        Ok(())
    } else {
        Err(format!("expected columns {expected}, found {found}"))
    }
}

fn type_text(data_type: &DataType) -> String {
    let item = |field: &Field| {
        let null = if field.is_nullable() { "?" } else { "" };
        format!("{}{null}", type_text(field.data_type()))
    };
    match data_type {
        DataType::Int8 => "i8".into(),
        DataType::UInt8 => "u8".into(),
        DataType::UInt32 => "u32".into(),
        DataType::Int64 => "i64".into(),
        DataType::Float16 => "f16".into(),
        DataType::Float32 => "f32".into(),
        DataType::Boolean => "bool".into(),
        DataType::Utf8 => "utf8".into(),
        DataType::List(field) => format!("list<{}>", item(field)),
        DataType::FixedSizeList(field, count) => format!("vector<{}, {count}>", item(field)),
        other => other.to_string(),
    }
}
