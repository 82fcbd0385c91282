//! Payloads, memos, search attributes and times, in and out.
//!
//! Invariant: JSON and bytes keep their encoding under Temporal's names of them; any other encoding keeps its own name. A
//! missing payload is `null`; several arguments are one array, because our workflows and activities take one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use bosun_engine::*;
use prost_wkt_types as wkt;
use temporalio_common::protos::temporal::api::common::v1 as common;
use temporalio_common::protos::temporal::api::sdk::v1::UserMetadata;

const ENCODING: &str = "encoding";
const ATTRIBUTE_TYPE: &str = "type";
const JSON: &str = "json/plain";
const BYTES: &str = "binary/plain";
const NULL: &str = "binary/null";

pub(in crate::temporal) fn payload_out(payload: &Payload) -> common::Payload {
    let encoding = match payload.encoding.as_ref() {
        ENCODING_JSON => JSON,
        ENCODING_BYTES => BYTES,
        other => other,
    };
    with_encoding(encoding, payload.data.to_vec())
}

fn with_encoding(encoding: &str, data: Vec<u8>) -> common::Payload {
    let metadata = HashMap::from([(ENCODING.to_owned(), encoding.as_bytes().to_vec())]);
    common::Payload { metadata, data, ..Default::default() }
}

pub(in crate::temporal) fn payload_in(payload: common::Payload) -> Payload {
    let encoding = payload.metadata.get(ENCODING).map(|name| String::from_utf8_lossy(name).into_owned());
    match encoding.as_deref() {
        // A protocol buffer as JSON is JSON to us.
        Some(JSON | "json/protobuf") => Payload::raw_json(payload.data),
        Some(NULL) => Payload::null(),
        None | Some(BYTES) => Payload::bytes(payload.data),
        Some(other) => Payload { encoding: Cow::Owned(other.to_owned()), data: payload.data.into() },
    }
}

pub(in crate::temporal) fn payloads_out(payload: &Payload) -> common::Payloads {
    common::Payloads { payloads: vec![payload_out(payload)] }
}

pub(in crate::temporal) fn payloads_in(mut payloads: Vec<common::Payload>) -> Payload {
    match payloads.len() {
        0 => Payload::null(),
        1 => payload_in(payloads.remove(0)),
        _ => {
            let all: Vec<_> = payloads.into_iter().map(|payload| payload_in(payload).to_json()).collect();
            Payload::encode(&all).unwrap_or_default()
        }
    }
}

pub(in crate::temporal) fn memo_out(memo: &Memo) -> HashMap<String, common::Payload> {
    memo.iter().map(|(name, payload)| (name.to_string(), payload_out(payload))).collect()
}

/// Names that are none of ours (empty, with control characters) are left out.
pub(in crate::temporal) fn memo_in(memo: Option<common::Memo>) -> Memo {
    let fields = memo.map(|memo| memo.fields).unwrap_or_default();
    fields.into_iter().filter_map(|(name, payload)| Some((FieldName::new(name).ok()?, payload_in(payload)))).collect()
}

pub(in crate::temporal) fn attributes_out(attributes: &SearchAttributes) -> Option<common::SearchAttributes> {
    let indexed_fields: HashMap<_, _> =
        attributes.iter().map(|(name, value)| (name.to_string(), attribute_out(value))).collect();
    (!indexed_fields.is_empty()).then_some(common::SearchAttributes { indexed_fields })
}

fn attribute_out(value: &SearchValue) -> common::Payload {
    let (name, json) = match value {
        SearchValue::Bool(value) => ("Bool", serde_json::json!(value)),
        SearchValue::Int(value) => ("Int", serde_json::json!(value)),
        SearchValue::Float(value) => ("Double", serde_json::json!(value)),
        SearchValue::Keyword(value) => ("Keyword", serde_json::json!(value)),
        SearchValue::KeywordList(values) => ("KeywordList", serde_json::json!(values)),
        SearchValue::Text(value) => ("Text", serde_json::json!(value)),
        SearchValue::Datetime(at) => ("Datetime", serde_json::json!(at.to_string())),
        SearchValue::Unset => return with_encoding(NULL, Vec::new()),
    };
    let mut payload = with_encoding(JSON, json.to_string().into_bytes());
    payload.metadata.insert(ATTRIBUTE_TYPE.to_owned(), name.as_bytes().to_vec());
    payload
}

/// Those that users set; what the cluster sets itself (`BuildIds`, `TemporalChangeVersion` …) is left out.
pub(in crate::temporal) fn attributes_in(attributes: Option<common::SearchAttributes>) -> SearchAttributes {
    const OF_THE_CLUSTER: [&str; 3] = ["BuildIds", "BinaryChecksums", "TemporalReportedProblems"];
    let own = |name: &str| !OF_THE_CLUSTER.contains(&name) && !name.starts_with("Temporal");
    let fields = attributes.map(|attributes| attributes.indexed_fields).unwrap_or_default();
    let fields = fields.into_iter().filter(|(name, _)| own(name));
    fields.filter_map(|(name, payload)| Some((FieldName::new(name).ok()?, attribute_in(payload)?))).collect()
}

fn attribute_in(payload: common::Payload) -> Option<SearchValue> {
    let name = payload.metadata.get(ATTRIBUTE_TYPE).map(|name| String::from_utf8_lossy(name).into_owned());
    let value: serde_json::Value = serde_json::from_slice(&payload.data).ok()?;
    let text = || value.as_str().map(str::to_owned);
    Some(match name.as_deref() {
        Some("Bool") => SearchValue::Bool(value.as_bool()?),
        Some("Int") => SearchValue::Int(value.as_i64()?),
        Some("Double") => SearchValue::Float(value.as_f64()?),
        Some("Text") => SearchValue::Text(text()?),
        Some("Datetime") => SearchValue::Datetime(moment(value.as_str()?)?),
        Some("KeywordList") => {
            let items = value.as_array()?.iter();
            SearchValue::KeywordList(items.filter_map(|item| Some(item.as_str()?.to_owned())).collect())
        }
        _ => SearchValue::Keyword(text().unwrap_or_else(|| value.to_string())),
    })
}

fn moment(text: &str) -> Option<Timestamp> {
    text.parse::<jiff::Timestamp>().ok().map(|at| Timestamp(at.as_microsecond()))
}

pub(in crate::temporal) fn period_out(period: Duration) -> wkt::Duration {
    let seconds = i64::try_from(period.as_secs()).unwrap_or(i64::MAX);
    wkt::Duration { seconds, nanos: i32::try_from(period.subsec_nanos()).unwrap_or(0) }
}

/// What is absent, zero or negative is no period.
pub(in crate::temporal) fn period_in(period: Option<wkt::Duration>) -> Option<Duration> {
    let period = period?;
    let (seconds, nanos) = (u64::try_from(period.seconds).ok()?, u32::try_from(period.nanos).ok()?);
    Some(Duration::new(seconds, nanos)).filter(|period| !period.is_zero())
}

/// To the microsecond, which is what ours have.
pub(in crate::temporal) fn instant_in(at: Option<wkt::Timestamp>) -> Option<Timestamp> {
    let at = at?;
    Some(Timestamp(at.seconds.checked_mul(1_000_000)?.checked_add(i64::from(at.nanos) / 1_000)?))
}

#[cfg(test)]
pub(in crate::temporal) fn instant_out(at: Timestamp) -> wkt::Timestamp {
    let nanos = i32::try_from(at.0.rem_euclid(1_000_000) * 1_000).unwrap_or(0);
    wkt::Timestamp { seconds: at.0.div_euclid(1_000_000), nanos }
}

/// Run ids of a cluster are UUIDs, as ours are.
pub(in crate::temporal) fn run_id_in(text: &str) -> Option<RunId> {
    text.parse().ok()
}

/// A few words, where Temporal's pages look for them.
pub(in crate::temporal) fn summary_out(summary: Option<&str>, details: Option<&str>) -> Option<UserMetadata> {
    let text = |text: &str| payload_out(&Payload::encode(text).unwrap_or_default());
    (summary.is_some() || details.is_some())
        .then(|| UserMetadata { summary: summary.map(text), details: details.map(text) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_and_times_come_back_as_they_were() {
        let other = Payload { encoding: Cow::Borrowed("binary/encrypted"), data: vec![7].into() };
        for payload in [Payload::null(), Payload::bytes(vec![0, 255]), Payload::raw_json("{\"a\":1}"), other] {
            assert_eq!(payload_in(payload_out(&payload)), payload);
        }
        assert_eq!(payload_in(with_encoding(NULL, Vec::new())), Payload::null());
        let two = vec![payload_out(&Payload::raw_json("1")), payload_out(&Payload::raw_json("\"b\""))];
        assert_eq!(payloads_in(two), Payload::raw_json("[1,\"b\"]"));
        for at in [Timestamp(0), Timestamp(-1), Timestamp(951_782_400_000_001)] {
            assert_eq!(instant_in(Some(instant_out(at))), Some(at));
        }
        assert_eq!(
            period_in(Some(period_out(Duration::from_micros(1_500_001)))),
            Some(Duration::from_micros(1_500_001))
        );
        assert_eq!(period_in(Some(period_out(Duration::ZERO))), None);
    }

    #[test]
    fn search_attributes_keep_their_types() {
        let all: SearchAttributes = [
            ("a", SearchValue::Bool(true)),
            ("b", SearchValue::Int(-7)),
            ("c", SearchValue::Float(1.5)),
            ("d", SearchValue::Keyword("k".into())),
            ("e", SearchValue::KeywordList(vec!["x".into(), "y".into()])),
            ("f", SearchValue::Text("two words".into())),
            ("g", SearchValue::Datetime(Timestamp(1_000_000))),
        ]
        .map(|(name, value)| (FieldName::of(name), value))
        .into();
        assert_eq!(attributes_in(attributes_out(&all)), all);
    }
}
