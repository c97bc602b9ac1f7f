//! Every TOML, JSON and YAML file is what it claims to be, by a strict parser: no duplicate key, nothing after the end.
//! Cargo is no such parser: it lets a second value in an inline table pass.

use crate::files;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::collections::HashSet;
use std::fmt;
use yaml_rust2::YamlLoader;

/// Endings of names, and how the files are read.
const KINDS: [(&[&str], Check); 3] =
    [(&[".toml", ".lock", ".plan"], toml_file), (&[".json"], json_file), (&[".yml", ".yaml"], yaml_file)];

type Check = fn(&str) -> Result<(), String>;

fn toml_file(text: &str) -> Result<(), String> {
    toml::from_str::<toml::Table>(text).map(drop).map_err(|error| error.to_string())
}

fn json_file(text: &str) -> Result<(), String> {
    serde_json::from_str::<Json>(text).map(drop).map_err(|error| error.to_string())
}

fn yaml_file(text: &str) -> Result<(), String> {
    YamlLoader::load_from_str(text).map(drop).map_err(|error| error.to_string())
}

/// Any JSON value without a duplicate key. (`serde_json::Value` keeps the last of several.)
struct Json;

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(Json)
    }
}

impl<'de> Visitor<'de> for Json {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Json, E> {
        Ok(Json)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Json, E> {
        Ok(Json)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Json, E> {
        Ok(Json)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Json, E> {
        Ok(Json)
    }

    fn visit_str<E>(self, _: &str) -> Result<Json, E> {
        Ok(Json)
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        while items.next_element::<Json>()?.is_some() {}
        Ok(Json)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Json, A::Error> {
        let mut keys = HashSet::new();
        while let Some((key, Json)) = entries.next_entry::<String, Json>()? {
            if !keys.insert(key.clone()) {
                return Err(A::Error::custom(format!("the key {key:?} is there twice")));
            }
        }
        Ok(Json)
    }
}

#[test]
fn every_data_file_is_read_by_a_strict_parser() {
    let mut wrong = Vec::new();
    for (endings, check) in KINDS {
        for name in files::with_ending(endings) {
            if let Err(error) = check(&files::text(&name)) {
                wrong.push(format!("{}: {error}", name.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let seen = files::with_ending(&[".toml", ".lock", ".json"]);
    assert!(seen.len() > 30, "only {} data files were found", seen.len());
}

#[test]
fn the_parsers_are_strict() {
    let good: [(Check, &str); 3] = [
        (toml_file, "a = { path = \"x\" }\n[b]\nc = [1, 2]"),
        (json_file, "{\"a\": {\"b\": [1, -2, 0.5, null, true, \"x\"]}, \"b\": {}}"),
        (yaml_file, "a:\n  - b: 1\n  - c\nd: {e: f}"),
    ];
    for (check, text) in good {
        assert_eq!(check(text), Ok(()), "{text}");
    }
    let bad: [(Check, &[&str]); 3] = [
        (toml_file, &["a = { path = \"x\", \"y\" }", "a = 1\na = 2", "a = 1 2", "[a]\n[a]", "a = ", "a"]),
        (
            json_file,
            &["{\"a\": 1, \"a\": 2}", "{} {}", "[1,]", "{\"a\": [{\"b\": 1, \"b\": 1}]}", "{'a': 1}", "01", ""],
        ),
        (yaml_file, &["a: 1\na: 2", "a: [1", "a: 1\n b: 2", "a: b: c", "\"a\" b"]),
    ];
    for (check, texts) in bad {
        for text in texts {
            assert!(check(text).is_err(), "taken for good: {text}");
        }
    }
}
