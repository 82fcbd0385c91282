//! The API does what its own document says: for each operation requests are drawn that fit the document, and such that do not.
//!
//! Invariant: no request is answered with 5xx, each answer has a status, a media type and a shape that the document names, what
//! does not fit is refused, and nobody without a token is let in. A failure prints the seed that repeats it.

mod client;
mod generate;
mod schemathesis;

use std::collections::BTreeMap;

use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::http::Http;
use bosun_tests::harness::process::{Program, WorkerProcess, bosun};
use bosun_tests::harness::{Chance, count_from_env, say};
use jsonschema::Validator;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use client::{Drawn, HttpAnswer, PATIENCE, send};
use generate::{Drawing, alone, any_json, fitting, sometimes, unfitting};

/// One operation of the document.
struct DocumentedOperation {
    method: String,
    path: String,
    told: Value,
    /// The schema of its body, if it takes one.
    body: Option<Value>,
    /// By status, or a class of them: the schemas by media types.
    answers: BTreeMap<String, BTreeMap<String, Validator>>,
}

impl DocumentedOperation {
    fn name(&self) -> &str {
        self.told["operationId"].as_str().unwrap()
    }

    fn parameters(&self, place: &str) -> Vec<(String, Value)> {
        let all = self.told["parameters"].as_array().into_iter().flatten();
        all.filter(|one| one["in"] == place)
            .map(|one| (one["name"].as_str().unwrap().to_owned(), one["schema"].clone()))
            .collect()
    }

    /// Whether an answer is one that the document tells of.
    #[track_caller]
    fn check(&self, drawn: &Drawn, said: &HttpAnswer) {
        let what = || format!("{}: {drawn:?} was answered {said:?}", self.name());
        assert!(said.status < 500, "{}", what());
        let class = format!("{}XX", said.status / 100);
        let of = self.answers.get(&said.status.to_string()).or_else(|| self.answers.get(&class));
        let by_type = of.unwrap_or_else(|| panic!("a status that the document does not name: {}", what()));
        let media = said.media.split(';').next().unwrap_or_default().trim();
        let schema = by_type.get(media).unwrap_or_else(|| panic!("a media type that it does not name: {}", what()));
        if media == "application/json" {
            let body: Value = serde_json::from_slice(&said.body).unwrap_or_else(|why| panic!("{why}: {}", what()));
            let wrong: Vec<String> = schema.iter_errors(&body).map(|why| why.to_string()).collect();
            assert!(wrong.is_empty(), "another shape than it says, {wrong:?}: {}", what());
        }
    }
}

fn operations(document: &Value) -> Vec<DocumentedOperation> {
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, told) in methods.as_object().unwrap() {
            let media = |content: &Value| -> BTreeMap<String, Validator> {
                let of = |(media, one): (&String, &Value)| {
                    (media.clone(), jsonschema::validator_for(&alone(&one["schema"], document)).unwrap())
                };
                content.as_object().into_iter().flatten().map(of).collect()
            };
            let answers = told["responses"].as_object().unwrap().iter();
            let answers = answers.map(|(status, answer)| (status.clone(), media(&answer["content"]))).collect();
            let body = told.pointer("/requestBody/content/application~1json/schema");
            let body = body.map(|schema| alone(schema, document));
            all.push(DocumentedOperation {
                method: method.to_uppercase(),
                path: path.clone(),
                told: told.clone(),
                body,
                answers,
            });
        }
    }
    all
}

/// What there is to be named in requests.
#[derive(Debug, Clone, Default)]
struct Known {
    by_name: BTreeMap<&'static str, Vec<String>>,
    /// Where backups may go.
    folder: String,
}

struct Rig {
    http: Http,
    known: Known,
    dice: TestRunner,
    /// Ids of this rig begin with it.
    lane: usize,
    runs: usize,
}

impl Rig {
    /// A run that waits, one that has ended and one that asks, an activity that waits, a batch and a schedule, so that the next
    /// requests find some.
    fn refill(&mut self) {
        self.runs += 1;
        let nth = format!("{}-{}", self.lane, self.runs);
        let ids: Vec<String> = ["open", "ended", "asks"].iter().map(|what| format!("{what}-{nth}")).collect();
        let steps = |steps: Value| json!({ "workflow_type": "kitchen-sink", "input": { "steps": steps } });
        let spec = crate::pages::gated("a publication", "publish it");
        let mut starts = [
            steps(json!([{ "activity": { "type": "echo", "input": 1 } }, { "wait_signal": { "name": "go" } }])),
            steps(json!([{ "activity": { "type": "echo", "input": 1 } }])),
            json!({ "workflow_type": "supervisor", "input": { "spec": spec } }),
        ];
        let mut run = String::new();
        for (start, id) in starts.iter_mut().zip(&ids) {
            start["workflow_id"] = json!(id);
            run = self.start("workflows", start)["run_id"].as_str().unwrap().to_owned();
            self.put("run_id", run.clone());
            self.put("id", id.clone());
        }
        self.put("asked", format!("{run}/ap-1"));
        let (activity, batch) = (format!("act-{nth}"), format!("batch-{nth}"));
        let waits = json!({ "activity_type": "echo", "activity_id": activity, "task_queue": "nobody-serves-it" });
        let waits = self.start("standalone-activities", &waits);
        self.put("token", format!("{}:1:1", waits["run_id"].as_str().unwrap()));
        self.put("activity", activity);
        let nobody = json!({ "query": "WorkflowId = 'nobody'", "action": { "do": "pause" }, "batch_id": batch });
        self.start("batches", &nobody);
        self.put("batch", batch);
        let schedule = format!("nightly-{nth}");
        let nightly = json!({ "schedule_id": schedule, "schedule": { "spec": { "cron": ["0 2 * * *"] },
            "action": { "workflow_type": "kitchen-sink", "workflow_id": schedule, "input": { "steps": [] } } } });
        self.start("schedules", &nightly);
        self.put("schedule", schedule);
    }

    fn start(&self, what: &str, body: &Value) -> Value {
        let body = body.to_string();
        let answer = self.http.request("POST", &format!("/api/v1/{what}"), Some(body.as_bytes())).unwrap();
        assert_eq!(answer.status, 201, "{body}: {answer:?}");
        answer.json().unwrap()
    }

    /// The newest are the ones that are still what they were.
    fn put(&mut self, name: &'static str, text: String) {
        let all = self.known.by_name.entry(name).or_default();
        all.push(text);
        if all.len() > 6 {
            all.remove(0);
        }
    }

    fn draw<T: std::fmt::Debug>(&mut self, from: &impl Strategy<Value = T>) -> T {
        from.new_tree(&mut self.dice).expect("something that fits").current()
    }
}

/// The text of a parameter.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Parameters that name what is there more often than not, and cost no more than they must.
fn parameter(operation: &DocumentedOperation, name: &str, schema: &Value, known: &Known) -> BoxedStrategy<String> {
    let of = |part: &str| operation.path.starts_with(&format!("/api/v1/{part}/"));
    let what = match name {
        "id" if of("standalone-activities") => "activity",
        "id" if of("batches") => "batch",
        "id" if of("schedules") => "schedule",
        other => other,
    };
    let there = known.by_name.get(what).cloned().unwrap_or_default();
    let drawn = match name {
        // As far as it can be waited for here.
        "wait" => "[0-9]{1,2}ms".boxed(),
        _ => fitting(schema).prop_map(|value| plain(&value)).boxed(),
    };
    match there.is_empty() {
        true => drawn,
        false => prop_oneof![3 => proptest::sample::select(there), 1 => drawn].boxed(),
    }
}

/// Bodies that fit, and name what is there.
fn body(operation: &DocumentedOperation, known: &Known) -> Option<Drawing> {
    let schema = operation.body.as_ref()?;
    let types = ["kitchen-sink", "order-saga", "supervisor", "agent", "bosun.batch", "bosun.schedule"].map(Value::from);
    let (name, folder) = (operation.name().to_owned(), known.folder.clone());
    let batch = proptest::sample::select(known.by_name["batch"].clone());
    let asked = proptest::sample::select(known.by_name["asked"].clone());
    let known = (proptest::sample::select(types.to_vec()), asked, batch);
    let chosen = (fitting(schema), known, any::<bool>(), any::<u32>());
    Some(
        chosen
            .prop_map(move |(mut body, (of_type, asked, batch), is_known, number)| {
                match name.as_str() {
                    "startWorkflow" if is_known => body["workflow_type"] = of_type,
                    "startActivity" if is_known => body["activity_type"] = "echo".into(),
                    "answer" if is_known => body["id"] = asked.into(),
                    // One that is taken.
                    "startBatch" if is_known => body["batch_id"] = batch.into(),
                    // A few days: each of its times is a run.
                    "backfillSchedule" => {
                        let day = |n: u32| format!("2026-03-{:02}T00:00:00Z", 1 + n % 9);
                        (body["start_time"], body["end_time"]) = (day(number).into(), day(number / 9).into());
                    }
                    // Nowhere else on this machine.
                    "backupStore" => body["to"] = format!("{folder}/backup-{number}").into(),
                    _ => {}
                }
                body
            })
            .boxed(),
    )
}

/// Texts that no schema of a parameter lets through.
fn broken_parameter(name: &str, schema: &Value) -> Option<BoxedStrategy<String>> {
    let mut odd = vec!["x".to_owned(), "-".to_owned(), "1 2".to_owned(), "\u{7f}".to_owned(), "§".to_owned()];
    match (name, schema["type"].as_str()) {
        (_, Some("integer")) => {
            odd.extend(["-1", "1.5", "99999999999999999999"].map(str::to_owned));
            odd.extend(schema["maximum"].as_i64().map(|most| (most + 1).to_string()).filter(|_| name == "limit"));
        }
        (_, Some("boolean")) | ("run_id" | "cursor" | "wait", _) => {}
        // Nothing is no such word either.
        ("seen", _) => odd.extend(["", "0123456789abcdeF", "0123456789abcde"].map(str::to_owned)),
        _ if schema.get("enum").is_some() => {}
        _ => return None,
    }
    Some(proptest::sample::select(odd).boxed())
}

/// A request that fits the document.
fn request(operation: &DocumentedOperation, known: &Known) -> BoxedStrategy<Drawn> {
    let path: Vec<BoxedStrategy<(String, String)>> = operation
        .parameters("path")
        .into_iter()
        .map(|(name, schema)| {
            parameter(operation, &name, &schema, known).prop_map(move |text| (name.clone(), text)).boxed()
        })
        .collect();
    let query: Vec<BoxedStrategy<(String, Option<String>)>> = operation
        .parameters("query")
        .into_iter()
        .map(|(name, schema)| {
            let text = proptest::option::weighted(0.3, parameter(operation, &name, &schema, known));
            text.prop_map(move |text| (name.clone(), text)).boxed()
        })
        .collect();
    let key = operation.parameters("header").into_iter().map(|(_, schema)| schema).next();
    let key = key.map_or_else(
        || Just(None).boxed(),
        |schema| proptest::option::of(parameter(operation, "key", &schema, known)).boxed(),
    );
    let is_needed = operation.told["requestBody"]["required"] == true;
    let body = body(operation, known).map(|body| sometimes(is_needed, body));
    let body = body.unwrap_or_else(|| Just(None).boxed());
    let (method, template) = (operation.method.clone(), operation.path.clone());
    (path, query, key, body)
        .prop_map(move |(path, query, key, body)| {
            let query = query.into_iter().filter_map(|(name, text)| Some((name, text?))).collect();
            let body = body.map(|body| body.to_string());
            Drawn { method: method.clone(), template: template.clone(), path, query, key, body }
        })
        .boxed()
}

/// A request of which one thing does not fit.
fn broken(operation: &DocumentedOperation, known: &Known) -> BoxedStrategy<Drawn> {
    let good = request(operation, known);
    let mut ways: Vec<BoxedStrategy<Drawn>> = Vec::new();
    let unknown = |mut drawn: Drawn| {
        drawn.query.push(("zz_unknown".to_owned(), "1".to_owned()));
        drawn
    };
    ways.push(good.clone().prop_map(unknown).boxed());
    for (name, schema) in operation.parameters("query") {
        let Some(texts) = broken_parameter(&name, &schema) else { continue };
        let put = move |(mut drawn, text): (Drawn, String)| {
            drawn.query.retain(|(other, _)| *other != name);
            drawn.query.push((name.clone(), text));
            drawn
        };
        ways.push((good.clone(), texts).prop_map(put).boxed());
    }
    if let Some(schema) = operation.body.as_ref() {
        let with = |(mut drawn, body): (Drawn, String)| {
            drawn.body = Some(body);
            drawn
        };
        let torn = proptest::sample::select(vec!["{\"a\":", "[1,", "nul", "{'a': 1}", "\u{feff}{}x"]);
        ways.push((good.clone(), torn.prop_map(str::to_owned)).prop_map(with).boxed());
        // What takes any JSON has nothing that does not fit.
        if schema.get("properties").is_some() {
            ways.push((good.clone(), unfitting(schema).prop_map(|body| body.to_string())).prop_map(with).boxed());
        }
    }
    proptest::strategy::Union::new(ways).boxed()
}

fn dice(seed: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

/// What is refused because of the state of a run, or by the workflow that is named, though the request fits.
fn may_be_refused(said: &HttpAnswer) -> bool {
    if matches!(said.status, 403 | 404 | 409 | 413 | 429) {
        return true;
    }
    let body: Value = serde_json::from_slice(&said.body).unwrap_or_default();
    let (code, message) = (body["code"].as_str().unwrap_or_default(), body["message"].as_str().unwrap_or_default());
    // What a workflow takes, and what its history holds, no document can say.
    let by_history =
        ["the input of ", "batch: cannot read", "fork: ", "reset"].iter().any(|start| message.starts_with(start));
    let fields = body["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_input = |field: &Value| field["at"].as_str().is_some_and(|at| at == "input" || at.starts_with("input."));
    let by_input = !fields.is_empty() && fields.iter().all(of_input);
    // Nor what of a range comes first.
    let by_times = message.contains("it is before start_time");
    matches!(code, "unknown_query" | "query_failed" | "update_refused")
        || (code == "invalid" && by_history)
        || (code == "invalid_body" && (by_times || by_input))
        || (code == "bad_request" && message.starts_with("at: there is no event"))
}

impl Rig {
    fn say(&self, drawn: &Drawn, signed: bool, headers: &[&str]) -> HttpAnswer {
        send(&self.http, drawn, signed, headers).unwrap_or_else(|why| panic!("{drawn:?}: {why}"))
    }

    /// A request that fits. Returns how it was answered, and whether it was refused for its shape.
    fn fits(&mut self, operation: &DocumentedOperation) -> (Drawn, HttpAnswer) {
        let drawn = self.draw(&request(operation, &self.known.clone()));
        let said = self.say(&drawn, true, &[]);
        operation.check(&drawn, &said);
        (drawn, said)
    }

    /// A request that does not fit. Returns what was said to it, if it was taken.
    fn misfits(&mut self, operation: &DocumentedOperation) -> Option<String> {
        let drawn = self.draw(&broken(operation, &self.known.clone()));
        let said = self.say(&drawn, true, &[]);
        operation.check(&drawn, &said);
        (said.status < 400).then(|| format!("{}: {drawn:?}: {said:?}", operation.name()))
    }

    /// What other copies of Bosun say, in any words; who has no token; what the path is not for.
    fn strangers(&mut self, operation: &DocumentedOperation, methods: &[&str]) {
        let known = self.known.clone();
        for _ in 0..3 {
            let body = any_json().prop_map(|body| Some(body.to_string()));
            let exact = (request(operation, &known), body).prop_map(|(drawn, body)| Drawn { body, ..drawn });
            let drawn = self.draw(&exact);
            let said = self.say(&drawn, true, &["Accept: application/vnd.bosun+json"]);
            assert!(said.status < 500, "{drawn:?}: {said:?}");
        }
        let drawn = self.draw(&request(operation, &known));
        let said = self.say(&drawn, false, &[]);
        operation.check(&drawn, &said);
        assert_eq!(said.status, 401, "without a token: {drawn:?}: {said:?}");
        for method in methods {
            let other = Drawn { method: (*method).to_owned(), body: None, ..drawn.clone() };
            let said = self.say(&other, true, &[]);
            assert_eq!(said.status, 405, "{other:?}: {said:?}");
        }
    }
}

const USUAL_SEED: u64 = 17;

/// Operations are tried side by side by so many: a request waits for the machine more than it works, where other tests run.
const LANES: usize = 4;

/// What came of some operations.
#[derive(Default)]
struct LaneReport {
    done: usize,
    unfit: Vec<String>,
    taken: Vec<String>,
}

impl Rig {
    fn try_all(
        &mut self,
        operation: &DocumentedOperation,
        operations: &[DocumentedOperation],
        cases: u32,
    ) -> LaneReport {
        let mut report = LaneReport::default();
        for n in 0..cases {
            // What reads leaves everything as it was.
            if n == 0 || (n % 5 == 0 && operation.method != "GET") {
                self.refill();
            }
            let (drawn, said) = self.fits(operation);
            match said.status {
                200..300 => report.done += 1,
                _ if may_be_refused(&said) => {}
                _ => report.unfit.push(format!("{}: {drawn:?}: {said:?}", operation.name())),
            }
            report.taken.extend(self.misfits(operation));
        }
        let is_served =
            |method: &&str| operations.iter().any(|other| other.path == operation.path && other.method == *method);
        let others: Vec<&str> =
            ["GET", "POST", "PUT", "PATCH", "DELETE"].into_iter().filter(|one| !is_served(one)).collect();
        self.strangers(operation, &others);
        report
    }
}

#[test]
fn every_operation_answers_as_its_document_says() {
    every_operation(count_from_env("BOSUN_API_CASES", 10));
}

#[test]
#[ignore = "minutes: cargo full"]
fn every_operation_answers_so_however_often_it_is_asked() {
    every_operation(count_from_env("BOSUN_API_CASES", 20));
}

fn every_operation(cases: u32) {
    // The same requests each time, so that what is red is sure; BOSUN_SEED draws others.
    let seed = match std::env::var_os("BOSUN_SEED") {
        Some(_) => Chance::from_env("every_operation_answers_as_its_document_says").below(u64::MAX),
        None => USUAL_SEED,
    };
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(bosun().unwrap(), &["worker", "run", "--queue", "default"]);
    let (mut worker, http) = WorkerProcess::start(&program, &dir.path().join("data"), READY_MAX).unwrap();
    let document: Value = http.request("GET", "/api/v1/openapi.json", None).unwrap().json().unwrap();
    let operations = operations(&document);
    assert!(operations.len() > 40, "{}", operations.len());
    let folder = dir.path().join("backups").display().to_string();
    std::fs::create_dir(&folder).unwrap();
    let mut known = Known { folder, ..Known::default() };
    let names = ["go", "state", "waiting", "pause_v1", "extend_approval", "default"];
    known.by_name.insert("name", names.map(str::to_owned).into());
    known.by_name.insert("namespace", vec!["default".to_owned()]);
    known.by_name.insert("activity_id", vec!["1".to_owned()]);
    let lane = |lane: usize| {
        let http = Http::new(http.endpoint.clone(), PATIENCE);
        let (known, dice) = (known.clone(), dice(seed.wrapping_add(lane as u64)));
        let mut rig = Rig { http, known, dice, lane, runs: 0 };
        let mine = operations.iter().skip(lane).step_by(LANES);
        mine.map(|operation| rig.try_all(operation, &operations, cases)).collect::<Vec<_>>()
    };
    let lane = &lane;
    let reports: Vec<LaneReport> = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|nth| scope.spawn(move || lane(nth))).collect();
        let joined = lanes.into_iter().map(|lane| lane.join().unwrap_or_else(|why| std::panic::resume_unwind(why)));
        joined.flatten().collect()
    });
    let done: usize = reports.iter().map(|report| report.done).sum();
    let (unfit, taken): (Vec<_>, Vec<_>) = reports.into_iter().map(|report| (report.unfit, report.taken)).unzip();
    let (unfit, taken) = (unfit.concat(), taken.concat());
    assert!(unfit.is_empty(), "{} requests that fit were refused for their shape:\n{}", unfit.len(), unfit.join("\n"));
    assert!(taken.is_empty(), "{} requests that do not fit were taken:\n{}", taken.len(), taken.join("\n"));
    let all = operations.len();
    say(&format!("{all} operations, {cases} requests each that fit and that do not: {done} were carried out"));
    // It is well after all that.
    assert_eq!(http.request("GET", "/healthz", None).unwrap().status, 200);
    let verified: Value = http.request("POST", "/api/v1/store/verify", None).unwrap().json().unwrap();
    assert_eq!(verified["ok"], true, "{verified}");
    worker.kill().unwrap();
}
