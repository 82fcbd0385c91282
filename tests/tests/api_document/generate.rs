//! Drawing that fit a JSON Schema of the API's document, and values that do not.
//!
//! Invariant: what is called fitting is so by a validator that is not ours, and what is called unfitting is not. It knows the
//! keywords that the document uses, and fails on another one rather than to leave it out.

use proptest::prelude::*;
use proptest::strategy::Union;
use serde_json::{Map, Value, json};

pub(super) type Drawing = BoxedStrategy<Value>;

/// Any JSON, small.
pub(super) fn any_json() -> Drawing {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        (-1e6..1e6_f64).prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec(("[a-z_]{1,8}", inner), 0..4).prop_map(|all| all.into_iter().collect()),
        ]
    })
    .boxed()
}

/// A schema with what it refers to, so that a validator reads it alone.
pub(super) fn alone(schema: &Value, document: &Value) -> Value {
    match schema {
        Value::Object(map) => match map.get("$ref").and_then(Value::as_str) {
            Some(name) => alone(document.pointer(name.trim_start_matches('#')).expect("a schema"), document),
            None => map.iter().map(|(key, value)| (key.clone(), alone(value, document))).collect(),
        },
        Value::Array(all) => all.iter().map(|one| alone(one, document)).collect(),
        other => other.clone(),
    }
}

/// Drawing that fit a schema without references.
pub(super) fn fitting(schema: &Value) -> Drawing {
    if let Some(only) = schema.get("const") {
        return Just(only.clone()).boxed();
    }
    if let Some(words) = schema["enum"].as_array() {
        return proptest::sample::select(words.clone()).boxed();
    }
    let is_object = schema.get("properties").is_some();
    if let Some(forms) = ["anyOf", "oneOf"].iter().find_map(|key| schema[*key].as_array()).filter(|_| !is_object) {
        return Union::new(forms.iter().map(fitting)).boxed();
    }
    match &schema["type"] {
        Value::String(name) => of_type(name, schema),
        Value::Array(names) => Union::new(names.iter().map(|name| of_type(name.as_str().unwrap(), schema))).boxed(),
        _ if is_object => object(schema),
        _ if schema.get("pattern").is_some() => of_type("string", schema),
        _ => any_json(),
    }
}

fn of_type(name: &str, schema: &Value) -> Drawing {
    match name {
        "null" => Just(Value::Null).boxed(),
        "boolean" => any::<bool>().prop_map(Value::from).boxed(),
        "integer" => {
            let (least, most) =
                (schema["minimum"].as_i64().unwrap_or(-1_000), schema["maximum"].as_i64().unwrap_or(1_000));
            let ends = proptest::sample::select(vec![least, most]);
            prop_oneof![least..=most, least..=most.min(least.saturating_add(20)), ends].prop_map(Value::from).boxed()
        }
        "number" => {
            let (least, most) = (schema["minimum"].as_f64().unwrap_or(-1e3), schema["maximum"].as_f64().unwrap_or(1e3));
            match schema["multipleOf"].as_f64() {
                // Thousandths, as they are written.
                Some(step) => {
                    (1..=(most / step) as u64).prop_map(move |n| json!(n as f64 / (1.0 / step).round())).boxed()
                }
                None => (least..=most).prop_map(Value::from).boxed(),
            }
        }
        "string" => text(schema).prop_map(Value::from).boxed(),
        "array" => {
            let least = schema["minItems"].as_u64().unwrap_or(0) as usize;
            proptest::collection::vec(fitting(&schema["items"]), least..least + 4).prop_map(Value::from).boxed()
        }
        "object" => object(schema),
        other => panic!("the document has a type that is not known here: {other}"),
    }
}

fn text(schema: &Value) -> BoxedStrategy<String> {
    let uuid = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}";
    let pattern = match (schema["pattern"].as_str(), schema["format"].as_str()) {
        (Some(pattern), _) => pattern,
        (None, Some("uuid")) => uuid,
        (None, None) => "\\PC{0,40}",
        (None, Some(other)) => panic!("the document has a format that is not known here: {other}"),
    };
    // Both ends are meant.
    let whole = pattern.strip_prefix('^').unwrap_or(pattern);
    let whole = whole.strip_suffix('$').unwrap_or(whole);
    proptest::string::string_regex(whole).unwrap_or_else(|why| panic!("{pattern}: {why}")).boxed()
}

/// What is there always, or in some cases.
pub(super) fn sometimes(always: bool, value: Drawing) -> BoxedStrategy<Option<Value>> {
    if always { value.prop_map(Some).boxed() } else { proptest::option::of(value).boxed() }
}

fn object(schema: &Value) -> Drawing {
    let names = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect()
    };
    let required = names(&schema["required"]);
    // One of several sets of members is wanted, and none of the others, or some of them.
    let one_of = |key: &str| -> Vec<Vec<String>> {
        schema[key].as_array().into_iter().flatten().map(|form| names(&form["required"])).collect()
    };
    let (forms, any_of) = (one_of("oneOf"), one_of("anyOf"));
    let members = schema["properties"].as_object().cloned().unwrap_or_default();
    let (needs, not) = (schema["dependentRequired"].clone(), names(&schema["not"]["required"]));
    let others = match &schema["additionalProperties"] {
        others @ Value::Object(_) => Some(others.clone()),
        _ if schema.get("propertyNames").is_some() => Some(json!({})),
        _ => None,
    };
    let more = match others {
        Some(others) => proptest::collection::vec((text(&schema["propertyNames"]), fitting(&others)), 0..3).boxed(),
        None => Just(Vec::new()).boxed(),
    };
    let made = (0..forms.len().max(1), 0..any_of.len().max(1)).prop_flat_map(move |(chosen, any)| {
        let chosen = forms.get(chosen).into_iter().chain(any_of.get(any)).flatten();
        let wanted: Vec<String> = required.iter().chain(chosen).cloned().collect();
        let unwanted = |name: &String| forms.iter().flatten().any(|other| other == name) && !wanted.contains(name);
        let one = |(name, schema): (&String, &Value)| {
            let (name, value) = (name.clone(), sometimes(wanted.contains(name), fitting(schema)));
            value.prop_map(move |value| (name.clone(), value))
        };
        members.iter().filter(|(name, _)| !unwanted(name)).map(one).collect::<Vec<_>>()
    });
    let put_together = move |(members, more): (Vec<(String, Option<Value>)>, Vec<(String, Value)>)| {
        let members = members.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let mut all: Map<String, Value> = members.chain(more).collect();
        for (name, needs) in needs.as_object().into_iter().flatten() {
            if names(needs).iter().any(|need| !all.contains_key(need)) {
                all.remove(name);
            }
        }
        if !not.is_empty() && not.iter().all(|name| all.contains_key(name)) {
            all.remove(&not[0]);
        }
        Value::Object(all)
    };
    (made, more).prop_map(put_together).boxed()
}

/// A value that does not fit, close to one that does: a part of it is another thing, is missing, or is one too many.
pub(super) fn unfitting(schema: &Value) -> Drawing {
    let validator = jsonschema::validator_for(schema).expect("a schema");
    let odd = proptest::sample::select(vec![
        json!({ "zz": [] }),
        json!([[1]]),
        json!(1.5),
        json!(-1),
        json!(9_007_199_254_740_993_u64),
        json!(true),
        Value::Null,
    ]);
    let change = (any::<proptest::sample::Index>(), 0..3_u8, odd);
    (fitting(schema), change)
        .prop_filter_map("it fits still", move |(mut value, (at, how, odd))| {
            let places = places_of(&value);
            let place = at.get(&places);
            match how {
                0 => *value.pointer_mut(place)? = odd,
                1 => {
                    let (above, last) = place.rsplit_once('/')?;
                    value.pointer_mut(above)?.as_object_mut()?.remove(&last.replace("~1", "/").replace("~0", "~"))?;
                }
                _ => _ = value.pointer_mut(place)?.as_object_mut()?.insert("zz_unknown".to_owned(), odd),
            }
            (!validator.is_valid(&value)).then_some(value)
        })
        .boxed()
}

/// The pointers of all parts.
fn places_of(value: &Value) -> Vec<String> {
    let mut places = vec![String::new()];
    let below: Vec<(String, &Value)> = match value {
        Value::Object(map) => {
            map.iter().map(|(name, below)| (name.replace('~', "~0").replace('/', "~1"), below)).collect()
        }
        Value::Array(all) => all.iter().enumerate().map(|(n, below)| (n.to_string(), below)).collect(),
        _ => Vec::new(),
    };
    for (name, below) in below {
        places.extend(places_of(below).into_iter().map(|rest| format!("/{name}{rest}")));
    }
    places
}
