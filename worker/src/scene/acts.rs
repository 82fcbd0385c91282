//! People at work: whether it is time for an act, and the act itself.
//!
//! Invariant: an act is done once, also over a crash: it counts as done before it is sent, and no crash comes between that
//! and the commit. Conditions are looked at when nothing else can happen at a moment. What people may do is theirs to
//! know: the run refuses what it does not allow, and a refusal that nobody expected is a complaint.

use bosun_engine::*;
use serde_json::{Value, json};

use super::addressed::PLAN;
use super::life::{BEGIN, Life, Stuck};
use super::matcher::{Matcher, check_at, shown, text};
use super::names::or_near;
use super::outside::{Complaint, CueState};
use super::people::{TimedAct, When};
use crate::agent::AGENT;
use crate::agent::workflow::SIGNAL_APPROVAL;
use crate::supervisor::run::{SUPERVISOR, signals};

/// Who acts: those whose time has come, or also those whom anything that is so reminds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reminded {
    ByTime,
    ByAnything,
}

/// What an act led to: nothing to say, or the answer of an update.
type Done = Result<Option<Value>, String>;

impl Life<'_> {
    /// When the next act is due whose moment is known.
    pub(super) fn next_act(&self) -> Option<Timestamp> {
        let of = |(cue, state): (&TimedAct, &CueState)| match (state, &cue.when) {
            (CueState::Armed { due, .. }, _) => Some(*due),
            (CueState::Waits, When::At(at)) => Some(BEGIN.plus(*at)),
            (CueState::Waits | CueState::Done, _) => None,
        };
        self.scene.people.iter().zip(&self.outside.cues).filter_map(of).min()
    }

    /// One act that is due. Whether there was one.
    pub(super) fn somebody_acts(&mut self, reminded: Reminded) -> Result<bool, Stuck> {
        let now = self.now();
        let looked_at = Some((self.outside.commits, now));
        let look = reminded == Reminded::ByAnything && self.looked_at != looked_at;
        if look {
            self.looked_at = looked_at;
        }
        let scene = self.scene;
        for (place, cue) in scene.people.iter().enumerate() {
            let of = match (&self.outside.cues[place], &cue.when) {
                (CueState::Armed { due, of }, _) if *due <= now => of.clone(),
                (CueState::Waits, When::At(at)) if BEGIN.plus(*at) <= now => Value::Null,
                (CueState::Waits, When::At(_)) | (CueState::Armed { .. } | CueState::Done, _) => continue,
                (CueState::Waits, _) if !look => continue,
                (CueState::Waits, _) => {
                    let Some(of) = self.holds(cue) else { continue };
                    if let Some(name) = of["takes"].as_str() {
                        self.outside.taken.push((name.to_owned(), of.clone()));
                    }
                    if !cue.after.is_zero() {
                        self.outside.cues[place] = CueState::Armed { due: now.plus(cue.after), of };
                        continue;
                    }
                    of
                }
            };
            self.outside.cues[place] = CueState::Done;
            self.looked_at = None;
            let done = self.act(cue, &of)?;
            self.judge_act(cue, done);
            return Ok(true);
        }
        Ok(false)
    }

    /// What a condition is true of, if it is.
    fn holds(&mut self, cue: &TimedAct) -> Option<Value> {
        match &cue.when {
            When::At(_) => None,
            When::Approval(named) => self.waiting("pending_approvals", named.as_deref(), cue),
            When::Question(named) => self.waiting("pending_interrupts", named.as_deref(), cue),
            When::Plan(version) => self.plan_up(*version, cue),
            When::Query { query, input, at, is } => {
                let why = match self.query(&super::judge::query_name(query), input.clone()) {
                    Ok(answer) => check_at(is, &answer, at).err().map(|why| why.told()),
                    Err(why) => Some(format!("the query {query} is refused: {why}")),
                };
                let Some(why) = why else { return Some(Value::Null) };
                self.outside.not_yet.insert(cue.path.clone(), why);
                None
            }
            When::Call(expect) => {
                let fits = self.attempts.iter().any(|one| expect.fits(&one.made));
                fits.then_some(Value::Null)
            }
        }
    }

    /// What waits for a person in any open run, and that nobody sees to yet in this way.
    fn waiting(&mut self, query: &str, named: Option<&str>, cue: &TimedAct) -> Option<Value> {
        let mut runs: Vec<(Target, &str)> =
            self.outside.open(SUPERVISOR).into_iter().map(|target| (target, query)).collect();
        if query == "pending_approvals" {
            runs.extend(self.outside.open(AGENT).into_iter().map(|target| (target, "approvals")));
        }
        for (target, query) in runs {
            let Ok(asked) = self.query_of(target.clone(), query, Value::Null) else { continue };
            for one in asked.as_array().into_iter().flatten() {
                let run = target.run_id.map(|run| run.to_string()).unwrap_or_default();
                // An id that names its run stays the same when that goes on in a new one.
                let id = text(&one["id"]);
                let takes = taken(cue, if id.contains('/') { id } else { format!("{run}/{id}") });
                let fits = named.is_none_or(|name| names(one, name));
                if let Some(name) = named.filter(|_| !fits) {
                    self.outside.not_yet.insert(cue.path.clone(), asked_otherwise(one, name));
                }
                if fits && !self.outside.is_taken(&takes) {
                    return Some(
                        json!({ "takes": takes, "target": target, "request": one, "agent": query == "approvals" }),
                    );
                }
            }
        }
        None
    }

    fn plan_up(&mut self, version: Option<u64>, cue: &TimedAct) -> Option<Value> {
        for target in self.outside.open(SUPERVISOR) {
            let Ok(review) = self.query_of(target.clone(), "plan_review", Value::Null) else { continue };
            let takes = taken(cue, format!("{}{PLAN}{}", target.workflow_id, review["version"]));
            let fits = review["status"] == "reviewing" && version.is_none_or(|version| review["version"] == version);
            if fits && !self.outside.is_taken(&takes) {
                return Some(json!({ "takes": takes, "target": target, "request": review }));
            }
        }
        None
    }

    // long: one arm an act.
    fn act(&mut self, cue: &TimedAct, of: &Value) -> Result<Done, Stuck> {
        let of = &self.meant(cue, of)?;
        let target = match self.addressee(cue, of) {
            Ok(target) => target,
            Err(why) => return Ok(Err(why)),
        };
        let given = |key: &str| cue.with.get(key).cloned().unwrap_or_default();
        let reason = || cue.with.get("reason").map(text).unwrap_or_default();
        let steer =
            || without_nulls(json!({ "reason": reason(), "requested_by": cue.by, "timeout": given("timeout") }));
        Ok(match cue.act.as_str() {
            "kill" | "restart" => {
                self.kill()?;
                Ok(None)
            }
            "signal" => self.signal(target, &text(&given("name")), given("input"), cue),
            "update" => self.update(target, &text(&given("name")), given("input"), cue),
            "approve" | "reject" | "modify" => match self.decision(cue, of) {
                Some((_, input)) if cue.wants_word() && (of["agent"] != true || cue.to.is_some()) => {
                    self.update(target, "respond_approval", input, cue)
                }
                Some((name, input)) => self.signal(target, name, input, cue),
                None => Err("nobody waits for an approval".to_owned()),
            },
            "answer" => {
                let id = self.request_id(of, "pending_interrupts");
                let input =
                    without_nulls(json!({ "interrupt_id": id, "resume": given("answer"), "update": given("state"),
                    "shown": given("shown") }));
                match id.is_null() {
                    true => Err("nobody has asked a question".to_owned()),
                    false if cue.wants_word() => self.update(target, "respond_interrupt", input, cue),
                    false => self.signal(target, "interrupt_resume_v1", input, cue),
                }
            }
            "approve_plan" | "reject_plan" | "feedback" | "plan_feedback" | "revise" | "revise_plan" => {
                let (name, mut input) = self.plan_act(cue, of);
                input["of"] = self.plan_of(cue, of);
                let input = without_nulls(input);
                self.update(target, name, input, cue)
            }
            "pause" => self.steer(target, "pause_v1", steer(), cue),
            "resume" => self.steer(target, "resume_v1", steer(), cue),
            "takeover" => self.signal(target, "human_takeover_v1", steer(), cue),
            "release" => self.signal(target, "human_release_v1", steer(), cue),
            "complete" => self.update(
                target,
                "complete_task_manually",
                json!({ "task_id": given("task"), "result": given("result") }),
                cue,
            ),
            "cancel_task" => self.update(
                target,
                "cancel_task",
                without_nulls(json!({ "task_id": given("task"), "reason": given("reason") })),
                cue,
            ),
            "cancel" => {
                let (reason, by) = (reason(), identity(cue));
                self.asked_of(move |client| async move { client.cancel(&target, reason, by, None).await })
            }
            "terminate" => {
                let (reason, by) = (reason(), identity(cue));
                self.asked_of(move |client| async move { client.terminate(&target, reason, by).await })
            }
            other => Err(format!("nobody can `{other}`")),
        })
    }

    /// The id of what is asked: that of the condition, or the oldest there is.
    fn request_id(&mut self, of: &Value, query: &str) -> Value {
        match &of["request"]["id"] {
            Value::Null => self.query(query, Value::Null).map(|all| all[0]["id"].clone()).unwrap_or_default(),
            id => id.clone(),
        }
    }

    /// The signal of a decision about an approval, with what was shown; none if there is nothing to decide.
    fn decision(&mut self, cue: &TimedAct, of: &Value) -> Option<(&'static str, Value)> {
        let mut request = of["request"].clone();
        if request.is_null() {
            request = self.query("pending_approvals", Value::Null).map(|all| all[0].clone()).unwrap_or_default();
        }
        if request["id"].is_null() {
            return None;
        }
        let given = |key: &str| cue.with.get(key).cloned().unwrap_or_default();
        let shown = |key: &str| if given("shown").is_null() { request[key].clone() } else { given("shown") };
        let comment = if given("comment").is_null() { given("reason") } else { given("comment") };
        let approved = match cue.act.as_str() {
            "modify" => given("feedback").is_null(),
            act => act == "approve",
        };
        if of["agent"] == true && cue.to.is_none() {
            let reason = text(&if given("feedback").is_null() { comment } else { given("feedback") });
            let input = json!({ "id": request["id"], "hash": shown("hash"), "approved": approved, "reason": reason,
                "by": cue.by, "arguments": request["arguments"] });
            return Some((SIGNAL_APPROVAL, input));
        }
        let id = match (&of["agent"], &of["target"]["run_id"]) {
            // Agents count their own approvals; the run makes the id one of all.
            (Value::Bool(true), run) => json!(format!("{}/{}", text(run), text(&request["id"]))),
            _ => request["id"].clone(),
        };
        let input = json!({ "approval_id": id, "approved": approved, "approver": cue.by,
            "comment": comment, "modified_action": given("action"), "feedback": given("feedback"),
            "shown": shown("shown") });
        Some(("approval_response_v1", without_nulls(input)))
    }

    /// The update of a decision about a plan.
    fn plan_act(&mut self, cue: &TimedAct, of: &Value) -> (&'static str, Value) {
        let mut review = of["request"].clone();
        if review.is_null() {
            let target = self.addressee(cue, of).ok();
            let asked = target.and_then(|target| self.query_of(target, "plan_review", Value::Null).ok());
            review = asked.unwrap_or_default();
        }
        let given = |key: &str| cue.with.get(key).cloned().unwrap_or_default();
        let version = cue.with.get("version").cloned().unwrap_or_else(|| review["version"].clone());
        let message = cue.with.get("feedback").or_else(|| cue.with.get("message")).cloned();
        match (cue.act.as_str(), message) {
            ("feedback" | "plan_feedback", message) => {
                ("plan_feedback", json!({ "version": version, "message": message }))
            }
            // As with an approval: rejected with feedback is to be done again, better.
            ("reject_plan", Some(message)) => ("plan_feedback", json!({ "version": version, "message": message })),
            ("revise" | "revise_plan", _) => ("revise_plan", json!({ "version": version, "tasks": given("tasks") })),
            (act, _) => {
                let comment = if given("comment").is_null() { given("reason") } else { given("comment") };
                let input = json!({ "version": version, "approved": act == "approve_plan", "approver": cue.by,
                    "comment": comment, "shown": cue.with.get("shown").unwrap_or(&review["hash"]) });
                ("approve_plan", without_nulls(input))
            }
        }
    }

    /// A supervisor is paused by its own signals, any other run by the engine.
    fn steer(&mut self, target: Target, signal: &str, input: Value, cue: &TimedAct) -> Done {
        if self.scene.workflow_type.as_str() == SUPERVISOR {
            return self.signal(target, signal, input, cue);
        }
        let (reason, by, pause) = (text(&input["reason"]), identity(cue), signal == "pause_v1");
        self.asked_of(move |client| async move {
            if pause { client.pause(&target, reason, by).await } else { client.unpause(&target, reason, by).await }
        })
    }

    fn asked_of<F>(&mut self, request: impl FnOnce(Client) -> F) -> Done
    where
        F: Future<Output = Result<(), Rejection>> + Send + 'static,
    {
        self.ask(request).map(|()| None).map_err(|why| why.to_string())
    }

    fn signal(&mut self, target: Target, name: &str, input: Value, cue: &TimedAct) -> Done {
        let known = signals();
        if cue.act == "signal" && self.scene.spec.is_some() && !known.contains(&name) {
            let hint = or_near(name, &known);
            return Err(format!("a supervisor hears no signal `{name}`{hint}; there are: {}", known.join(", ")));
        }
        let name = SignalName::new(name).map_err(|why| why.to_string())?;
        let input = Payload::encode(&input).map_err(|why| why.to_string())?;
        let signal = SignalRequest { name, input, identity: identity(cue), request_id: None };
        self.asked_of(move |client| async move { client.signal(&target, signal).await })
    }

    fn update(&mut self, target: Target, name: &str, input: Value, cue: &TimedAct) -> Done {
        let request = UpdateRequest {
            update_id: UpdateId::of(cue.path.replace(['[', ']'], "-")),
            name: UpdateName::new(name).map_err(|why| why.to_string())?,
            input: Payload::encode(&input).map_err(|why| why.to_string())?,
            identity: identity(cue),
            wait: UpdateWait::Completed,
        };
        let answer = self.ask(move |client| async move { client.update(&target, request).await });
        // The run's own words: the id of the update is the runner's.
        let own = |why: Rejection| match why {
            Rejection::UpdateRefused { failure, .. } => failure.message,
            other => other.to_string(),
        };
        match answer.map_err(own)? {
            UpdateOutcome::Completed(Ok(answer)) => Ok(Some(answer.to_json())),
            UpdateOutcome::Completed(Err(why)) => Err(why.message),
            UpdateOutcome::Accepted => Ok(None),
        }
    }

    /// Complains about a refusal that nobody expected, and about an answer that is another one.
    fn judge_act(&mut self, cue: &TimedAct, done: Done) {
        let mut complain = |at: &str, expected: String, seen: String| {
            self.outside.complaints.push(Complaint::new(format!("{}{at}", cue.path), expected, seen));
        };
        match (done, &cue.refused) {
            (Err(why), None) => complain("", format!("{} is accepted", cue.shown()), format!("refused: {why}")),
            (Err(why), Some(expected)) => {
                if let Err(why) = expected.check(Some(&why.into()), "refused") {
                    complain(".refused", why.expected, why.seen);
                }
            }
            (Ok(answer), Some(expected)) => {
                complain(".refused", expected.to_string(), format!("accepted: {}", shown(answer.as_ref())))
            }
            (Ok(answer), None) => {
                let checked = cue.answers.as_ref().map(|is: &Matcher| is.check(answer.as_ref(), "answers"));
                if let Some(Err(why)) = checked {
                    complain(&format!(".{}", why.at), why.expected, why.seen);
                }
            }
        }
    }
}

/// What an act takes of what is asked, so that no other act does: the answer; else what it does because of it, once.
fn taken(cue: &TimedAct, asked: String) -> String {
    if cue.is_answer() { asked } else { format!("{asked} {}", cue.act) }
}

/// Whether a name means a request: by id, action, tool, task or scope, or by a part of what it is about.
pub(super) fn names(request: &Value, name: &str) -> bool {
    let keys = ["id", "action", "tool", "task", "task_id", "agent"];
    let scope = || {
        request["scope"].as_str() == Some(name)
            || request["scope"].get(name).is_some()
            || request["scope"]["kind"] == name
    };
    keys.iter().any(|key| !request[*key].is_null() && text(&request[*key]) == name)
        || request["payload"]["agent"].as_str() == Some(name)
        || scope()
        || text(&request["id"]).ends_with(&format!("/{name}"))
}

/// What was asked instead of what a condition names.
fn asked_otherwise(request: &Value, name: &str) -> String {
    let keys = ["id", "action", "tool", "task", "task_id", "agent"];
    let known: Vec<String> = keys.iter().map(|key| text(&request[*key])).filter(|text| !text.is_empty()).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    format!("what was asked is not `{name}`{}; it has: {}", or_near(name, &known), known.join(", "))
}

fn identity(cue: &TimedAct) -> Option<Identity> {
    Identity::new(cue.by.clone()).ok()
}

fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(map) = &mut value {
        map.retain(|_, value| !value.is_null());
    }
    value
}
