//! The messages of etcd's JSON gateway that are needed here. Keys and values are base64, 64-bit numbers are text, and what is zero or
//! empty is left out. Source: `rpc.proto` and `kv.proto` of etcd 3.4.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes, as base64.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&str> for Bytes {
    fn from(text: &str) -> Bytes {
        Bytes(text.as_bytes().to_vec())
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(Bytes).map_err(serde::de::Error::custom)
    }
}

/// A 64-bit number, as text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Number(pub i64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Number, D::Error> {
        String::deserialize(deserializer)?.parse().map(Number).map_err(serde::de::Error::custom)
    }
}

#[derive(Serialize)]
pub struct Grant {
    #[serde(rename = "TTL")]
    pub seconds: Number,
}

/// A lease, in requests and answers.
#[derive(Serialize, Deserialize)]
pub struct Lease {
    #[serde(rename = "ID")]
    pub id: Number,
    /// Seconds that it still has, in answers; none: it has ended.
    #[serde(rename = "TTL", default, skip_serializing)]
    pub seconds: Number,
}

/// An answer of a stream, or of a call that is one in gRPC.
#[derive(Deserialize)]
pub struct Streamed<R> {
    pub result: R,
}

#[derive(Serialize)]
pub struct Put {
    pub key: Bytes,
    pub value: Bytes,
    pub lease: Number,
}

/// What has no answer of interest.
#[derive(Deserialize)]
pub struct Nothing {}

/// Keys from `key` to before `range_end`; where that is empty, the one key.
#[derive(Clone, Serialize)]
pub struct Range {
    pub key: Bytes,
    #[serde(skip_serializing_if = "Bytes::is_empty")]
    pub range_end: Bytes,
}

impl Range {
    /// One key.
    pub fn of_key(key: Bytes) -> Range {
        Range { key, range_end: Bytes::default() }
    }

    /// All keys that begin with `prefix`, which does not end in the highest byte.
    pub fn of_prefix(prefix: &str) -> Range {
        let mut end = prefix.as_bytes().to_vec();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        Range { key: prefix.into(), range_end: Bytes(end) }
    }
}

#[derive(Deserialize)]
pub struct RangeAnswer {
    pub header: Head,
    #[serde(default)]
    pub kvs: Vec<KeyValue>,
}

#[derive(Deserialize)]
pub struct Head {
    #[serde(default)]
    pub revision: Number,
}

#[derive(Deserialize)]
pub struct KeyValue {
    pub key: Bytes,
    #[serde(default)]
    pub value: Bytes,
    /// With which it ends; 0: it stays.
    #[serde(default)]
    pub lease: Number,
}

#[derive(Serialize)]
pub struct Watch {
    pub create_request: CreateWatch,
}

#[derive(Serialize)]
pub struct CreateWatch {
    #[serde(flatten)]
    pub range: Range,
    pub start_revision: Number,
}

/// What is heard on a watch.
#[derive(Deserialize)]
pub struct Heard {
    /// The watch has ended: what is asked for is forgotten, or the server has another reason.
    #[serde(default)]
    pub canceled: bool,
    /// What has changed; none in the first message, which says that the watch is made.
    #[serde(default)]
    pub events: Vec<serde::de::IgnoredAny>,
}

/// An error that etcd answers.
#[derive(Deserialize)]
pub struct Failure {
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_as_etcd_writes_them() {
        let range = serde_json::to_string(&Range::of_prefix("a/")).expect("JSON");
        assert_eq!(range, r#"{"key":"YS8=","range_end":"YTA="}"#);
        let watch = Watch { create_request: CreateWatch { range: Range::of_prefix("a/"), start_revision: Number(7) } };
        let watch = serde_json::to_string(&watch).expect("JSON");
        assert_eq!(watch, r#"{"create_request":{"key":"YS8=","range_end":"YTA=","start_revision":"7"}}"#);
        let answer =
            r#"{"header":{"revision":"12","raft_term":"2"},"kvs":[{"key":"YS9i","value":"eA=="}],"count":"1"}"#;
        let answer: RangeAnswer = serde_json::from_str(answer).expect("an answer");
        assert_eq!((answer.header.revision, answer.kvs[0].value.clone()), (Number(12), Bytes::from("x")));
        let ended: Streamed<Lease> = serde_json::from_str(r#"{"result":{"ID":"5"}}"#).expect("an answer");
        assert_eq!((ended.result.id, ended.result.seconds), (Number(5), Number(0)));
        let heard: Streamed<Heard> = serde_json::from_str(r#"{"result":{"created":true}}"#).expect("an answer");
        assert!(!heard.result.canceled && heard.result.events.is_empty());
        let failure: Failure = serde_json::from_str(r#"{"error":"no","message":"no","code":5}"#).expect("an answer");
        assert_eq!(failure.message, "no");
    }
}
