//! JSON schemas (2020-12) of what the command writes, from the types and comments of the structs that are written and from the table of
//! statistics. `reference` keeps them in docs/reference.
//!
//! Every member that is written is required and no other is allowed, so a document that a schema takes has exactly the promised names.

use crate::report::Members;
use hinterland_abi::statistics::{Statistic, Unit};
use serde_json::{Map, Value, json};

/// A type that is written as JSON.
pub trait Described {
    /// Its schema.
    fn schema() -> Value;
}

/// An object into which statistics are flattened.
pub trait Counted {
    /// These.
    fn members() -> Members;
}

/// An object's schema, while it is made.
#[derive(Default)]
pub struct Object {
    properties: Map<String, Value>,
}

impl Object {
    /// A member by itself.
    pub fn own(&mut self, name: &str, meaning: &str, mut schema: Value) {
        schema["description"] = meaning.trim().into();
        self.properties.insert(name.to_owned(), schema);
    }

    /// Members that the table of statistics has.
    pub fn statistics(&mut self, members: &Members) {
        for (name, statistic) in members.names() {
            let peak = statistic.peak.is_some_and(|peak| peak == name && statistic.json != name);
            let meaning = if peak {
                format!("{} The most that it has been.", statistic.meaning)
            } else {
                statistic.meaning.to_owned()
            };
            self.own(name, &meaning, of_unit(statistic));
        }
    }

    /// The schema.
    pub fn schema(self) -> Value {
        let required: Vec<&String> = self.properties.keys().collect();
        json!({"type": "object", "required": required, "additionalProperties": false, "properties": self.properties})
    }
}

/// A figure, as its unit says; the name of the unit is an annotation.
fn of_unit(statistic: &Statistic) -> Value {
    match statistic.unit {
        Unit::Flag => bool::schema(),
        Unit::Seconds => json!({"type": "number", "minimum": 0, "unit": statistic.unit.name()}),
        unit => json!({"type": "integer", "minimum": 0, "unit": unit.name()}),
    }
}

macro_rules! described {
    ($($type:ty: $schema:expr;)*) => {
        $(impl Described for $type {
            fn schema() -> Value {
                $schema
            }
        })*
    };
}

described! {
    bool: json!({"type": "boolean"});
    f64: json!({"type": "number"});
    i32: json!({"type": "integer"});
    i64: json!({"type": "integer"});
    u8: json!({"type": "integer", "minimum": 0, "maximum": 255});
    u32: json!({"type": "integer", "minimum": 0});
    u64: json!({"type": "integer", "minimum": 0});
    &str: json!({"type": "string"});
    String: json!({"type": "string"});
}

impl<T: Described> Described for Option<T> {
    fn schema() -> Value {
        let mut schema = T::schema();
        schema["type"] = json!([schema["type"], "null"]);
        schema
    }
}

impl<T: Described> Described for Vec<T> {
    fn schema() -> Value {
        json!({"type": "array", "items": T::schema()})
    }
}

impl<T: Described> Described for &[T] {
    fn schema() -> Value {
        json!({"type": "array", "items": T::schema()})
    }
}

/// Where a document's names are not those of its schema, as paths. (Types and all the rest are a validator's business.)
pub fn misnamed(place: &str, schema: &Value, document: &Value) -> Vec<String> {
    if let (Some(items), Some(elements)) = (schema.get("items"), document.as_array()) {
        return elements.iter().flat_map(|element| misnamed(&format!("{place}[]"), items, element)).collect();
    }
    let (Some(properties), Some(members)) = (schema["properties"].as_object(), document.as_object()) else {
        return Vec::new();
    };
    let at = |name: &String| format!("{place}.{name}");
    let missing = properties.keys().filter(|name| !members.contains_key(*name)).map(at);
    let inner = members.iter().flat_map(|(name, value)| match properties.get(name) {
        Some(schema) => misnamed(&at(name), schema, value),
        None => vec![at(name)],
    });
    missing.chain(inner).collect()
}

#[test]
fn names_that_a_schema_does_not_know_or_misses_are_seen() {
    let mut object = Object::default();
    object.own("a", "One.", u64::schema());
    let mut outer = Object::default();
    outer.own("list", "Some.", json!({"type": "array", "items": object.schema()}));
    let schema = outer.schema();
    assert_eq!(misnamed("", &schema, &json!({"list": [{"a": 1}]})), Vec::<String>::new());
    assert_eq!(misnamed("", &schema, &json!({"list": [{"b": 1}]})), [".list[].a", ".list[].b"]);
    assert_eq!(misnamed("", &schema, &json!({})), [".list"]);
    assert_eq!(Option::<u64>::schema(), json!({"type": ["integer", "null"], "minimum": 0}));
}
