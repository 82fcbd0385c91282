//! What the `schema` model makes.

use super::*;
use crate::capability::model::{NullSink, OutputSchema};

fn request(schema: Option<Value>) -> ChatRequest {
    ChatRequest {
        model: "schema".into(),
        messages: vec![Message::User { content: "go".into() }],
        schema: schema.map(|schema| OutputSchema { name: "out".into(), schema }),
        ..ChatRequest::default()
    }
}

async fn ask(model: SchemaModel, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
    model.complete(request, &ModelCallContext::alone("k"), &mut NullSink).await
}

fn schemas() -> Vec<Value> {
    vec![
        json!({"type": "string"}),
        json!({"type": "string", "minLength": 30, "maxLength": 31}),
        json!({"type": "string", "maxLength": 2}),
        json!({"type": "integer", "minimum": 5, "maximum": 5}),
        json!({"type": "integer", "exclusiveMinimum": -3, "multipleOf": 7}),
        json!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
        json!({"type": ["string", "null"], "format": "date-time"}),
        json!({"enum": ["a", 1, null]}),
        json!({"const": {"x": 1}}),
        json!({"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 4, "uniqueItems": true}),
        json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "boolean"}]}),
        json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"$ref": "#/$defs/b"}},
               "required": ["a", "b"], "additionalProperties": false,
               "$defs": {"b": {"anyOf": [{"type": "null"}, {"type": "integer"}]}}}),
        json!({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                         {"properties": {"b": {"type": "boolean"}}, "required": ["b"]}]}),
        // A tree of any depth.
        json!({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}}}),
        json!(true),
        json!({}),
    ]
}

#[tokio::test]
async fn answers_conform_to_their_schema_and_repeat_themselves() {
    for schema in schemas() {
        for seed in 0..20 {
            let request = request(Some(schema.clone()));
            let response = ask(SchemaModel::new(seed), &request).await.unwrap();
            let value = serde_json::from_str(&response.said.content).unwrap();
            assert_eq!(problems(&schema, &value), [] as [&str; 0], "{schema} {value}");
            assert_eq!(ask(SchemaModel::new(seed), &request).await.unwrap(), response);
        }
    }
}

#[tokio::test]
async fn a_schema_that_grows_without_measure_ends() {
    let names: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    let properties: serde_json::Map<String, Value> =
        names.iter().map(|name| (name.clone(), json!({"$ref": "#"}))).collect();
    let schema = json!({"type": "object", "properties": properties, "required": names});
    let error = ask(SchemaModel::default(), &request(Some(schema))).await.unwrap_err();
    assert!(error.message.contains("cannot make data"), "{error}");
}

#[tokio::test]
async fn seeds_differ() {
    let request = request(Some(json!({"type": "array", "items": {"type": "integer"}, "minItems": 5})));
    let (a, b) = (ask(SchemaModel::new(1), &request).await, ask(SchemaModel::new(2), &request).await);
    assert_ne!(a.unwrap().said, b.unwrap().said);
}

#[tokio::test]
async fn what_cannot_be_made_is_an_error() {
    for schema in
        [json!({"type": "string", "pattern": "^[0-9]{7}$"}), json!({"type": "integer", "minimum": 2, "maximum": 1})]
    {
        let error = ask(SchemaModel::default(), &request(Some(schema))).await.unwrap_err();
        assert!(error.message.contains("cannot make data for `answer`"), "{error}");
    }
}

#[tokio::test]
async fn every_tool_is_called_once_and_then_comes_the_answer() {
    let mut request = request(Some(json!({"type": "integer"})));
    let parameters = json!({"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]});
    for name in ["a", "b"] {
        request.tools.push(ToolSpec { name: name.into(), description: String::new(), parameters: parameters.clone() });
    }
    let first = ask(SchemaModel::default(), &request).await.unwrap();
    let names: Vec<&str> = first.said.tool_calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!((names, first.stop), (vec!["a", "b"], StopReason::ToolCalls));
    request.messages.push(Message::Assistant(first.said.clone()));
    for call in &first.said.tool_calls {
        assert_eq!(problems(&parameters, &call.arguments), [] as [&str; 0]);
        let (call_id, name) = (call.id.clone(), call.name.clone());
        request.messages.push(Message::Tool { call_id, name, content: "done".into(), is_error: false });
    }
    let second = ask(SchemaModel::default(), &request).await.unwrap();
    assert!(second.said.tool_calls.is_empty() && second.said.content.parse::<i64>().is_ok());
    request.tool_choice = ToolChoice::Tool("b".into());
    assert_eq!(ask(SchemaModel::default(), &request).await.unwrap().said.tool_calls.len(), 1);
    request.tool_choice = ToolChoice::Required;
    assert_eq!(ask(SchemaModel::default(), &request).await.unwrap().said.tool_calls.len(), 1);
}
