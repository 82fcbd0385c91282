//! The interpreter of the kitchen sink: one step after the other, with the authoring API that everybody has.
//!
//! Invariant: all that steps share are the variables; a failure, a cancellation and continue-as-new leave every level of
//! steps at once, and only `try` and `saga` act on their way out.

use std::rc::Rc;

use bosun_engine::workflow::{
    FAILURE_CONTINUE_AS_NEW, LocalBoxFuture, Saga, StateCell, WfContext, branch, join_all, race, with_timeout,
};
use bosun_engine::{ExternalTarget, Failure, Payload, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::INVALID_PROGRAM;
use super::attributes::{attributes_of, memo_of};
use super::program::{Op, ProgramStep, Save, SinkProgram, Steps, workflow_id};
use super::room::{DEPTH_MAX, VALUE_BYTES_MAX, spend, too_deep, weigh};
use crate::supervisor::FieldError;
use crate::supervisor::people::signature::{is_answer, is_believed};
use crate::{batch, notify, schedule};

/// What a program may reach: schedules, batches and notifications are for their own verbs, which know who asks.
fn for_programs(context: &WfContext, target: ExternalTarget) -> Result<ExternalTarget, Failure> {
    let id = target.workflow_id.as_str();
    let is_own = [schedule::ID_PREFIX, batch::ID_PREFIX, notify::ID_PREFIX].iter().any(|own| id.starts_with(own));
    if is_own && context.patched("own-runs-are-for-their-verbs") {
        let why = format!("{id} is a run of Bosun's own: its own verbs reach it, and no program");
        return Err(Failure::application("NotForPrograms", why).non_retryable());
    }
    Ok(target)
}

/// The workflow.
pub async fn kitchen_sink(context: WfContext, input: Value) -> Result<Value, Failure> {
    let program = SinkProgram::read(&input).map_err(|why| invalid(&why))?;
    let interpreter = Interpreter {
        vars: context.state("vars", program.vars),
        position: context.state("position", String::new()),
        program: Rc::new(input),
    };
    interpreter.answer(&context);
    let flow = interpreter.clone().run(context.clone(), program.steps).await?;
    // Also when the program went on after a cancellation, its updates get their answers.
    context.detached_scope().all_handlers_finished().await?;
    Ok(match flow {
        Flow::Return(value) => value,
        Flow::Next => Value::Object(interpreter.vars.get()),
    })
}

fn invalid(why: &FieldError) -> Failure {
    Failure::application(INVALID_PROGRAM, why.to_string()).non_retryable()
}

/// Whether the steps go on.
enum Flow {
    Next,
    Return(Value),
}

#[derive(Clone)]
struct Interpreter {
    vars: StateCell<Map<String, Value>>,
    position: StateCell<String>,
    /// Shared: every branch has its interpreter.
    program: Rc<Value>,
}

#[derive(Deserialize)]
struct SetVar {
    name: String,
    value: Value,
}

impl Interpreter {
    fn answer(&self, context: &WfContext) {
        let (vars, position, changed) = (self.vars.clone(), self.position.clone(), self.vars.clone());
        context.on_query("vars", move |_: Value| Ok(Value::Object(vars.get())));
        context.on_query("position", move |_: Value| Ok(position.get()));
        let validate = |set: &SetVar| {
            let plain = !set.name.is_empty() && !set.name.contains(['$', '.']);
            let why = || Failure::application("InvalidName", format!("{:?} cannot name a variable", set.name));
            if plain { Ok(()) } else { Err(why()) }
        };
        context.on_update("set_var", validate, move |_, set: SetVar| {
            let changed = changed.clone();
            async move {
                let before = changed.read(|vars| vars.get(&set.name).cloned());
                changed.write(|vars| drop(vars.insert(set.name, set.value)));
                Ok(before.unwrap_or_default())
            }
        });
    }

    /// The future is boxed: steps contain steps.
    fn run(self, context: WfContext, steps: Steps) -> LocalBoxFuture<Result<Flow, Failure>> {
        Box::pin(async move {
            for step in steps.iter() {
                self.position.set(step.path.clone());
                if let Flow::Return(value) = self.step(&context, step).await? {
                    return Ok(Flow::Return(value));
                }
            }
            Ok(Flow::Next)
        })
    }

    fn save(&self, save: &Save, value: Value) -> Flow {
        if let Some(name) = save {
            self.vars.write(|vars| drop(vars.insert(name.clone(), value)));
        }
        Flow::Next
    }

    /// A value with its references resolved, each of which may stand for much: no program fills the memory.
    fn value(&self, value: &Value) -> Result<Value, Failure> {
        let mut room = VALUE_BYTES_MAX;
        self.resolve(value, DEPTH_MAX, &mut room)
    }

    fn resolve(&self, value: &Value, depth: usize, room: &mut usize) -> Result<Value, Failure> {
        let deeper = depth.checked_sub(1).ok_or_else(too_deep)?;
        spend(room, value)?;
        match value {
            Value::String(text) => match text.strip_prefix('$') {
                None => Ok(value.clone()),
                Some(rest) if rest.starts_with('$') => Ok(Value::String(rest.to_owned())),
                Some(name) => {
                    let found = self.lookup(name);
                    weigh(&found, depth, room)?;
                    Ok(found)
                }
            },
            Value::Array(list) => list.iter().map(|value| self.resolve(value, deeper, room)).collect(),
            Value::Object(map) => {
                map.iter().map(|(key, value)| Ok((key.clone(), self.resolve(value, deeper, room)?))).collect()
            }
            other => Ok(other.clone()),
        }
    }

    /// `name`, or `name.field.0`; what is not there is `null`.
    fn lookup(&self, name: &str) -> Value {
        self.vars
            .read(|vars| {
                let mut segments = name.split('.');
                let first = segments.next().and_then(|name| vars.get(name));
                let found = segments.try_fold(first?, |value, key| match value {
                    Value::Array(list) => list.get(key.parse::<usize>().ok()?),
                    other => other.get(key),
                });
                found.cloned()
            })
            .unwrap_or_default()
    }

    // One arm a step, in the order of the table in the module's documentation; longer than usual for that reason.
    // long: one exhaustive match; a variant more is a line more.
    async fn step(&self, context: &WfContext, step: &ProgramStep) -> Result<Flow, Failure> {
        match &step.act {
            Op::Activity { activity_type, input, options, save } => {
                let options = options.as_ref().clone();
                let result = context.activity::<Value>(activity_type.clone(), &self.value(input)?, options).await?;
                return Ok(self.save(save, result));
            }
            Op::Timer { after, summary: None } => context.timer(*after).await?,
            Op::Timer { after, summary: Some(summary) } => context.labelled_timer(*after, summary).await?,
            Op::SleepUntil(at) => {
                let at = self.value(at)?;
                let ms = at.as_i64().ok_or_else(|| wrong(step, format!("{at} is no moment in milliseconds")))?;
                context.sleep_until(Timestamp::from_millis(ms)).await?;
            }
            Op::WaitSignal { name, timeout, save } => {
                let name = name.as_str().to_owned();
                let wait = move |context: WfContext| async move {
                    context.signal_channel::<Value>(name.as_str()).recv().await
                };
                let received = match timeout {
                    Some(limit) => with_timeout(context, *limit, wait).await?.transpose()?,
                    None => Some(wait(context.clone()).await?),
                };
                return Ok(self.save(save, received.unwrap_or_default()));
            }
            Op::DrainSignals { name, save } => {
                let drained = context.signal_channel::<Value>(name.as_str()).drain();
                return Ok(self.save(save, drained.into_iter().collect::<Result<_, _>>()?));
            }
            Op::WaitVar { name, equals } => {
                let (vars, name, equals) = (self.vars.clone(), name.clone(), self.value(equals)?);
                context.wait_until(move || vars.read(|vars| vars.get(&name) == Some(&equals))).await?;
            }
            Op::Child { .. } | Op::Signal { .. } | Op::CancelWorkflow { .. } => {
                return self.other_runs(context, step).await;
            }
            Op::Parallel(branches) => return self.parallel(context, branches).await,
            Op::Race { branches, save } => {
                let branches = branches.iter().cloned().map(|steps| {
                    let interpreter = self.clone();
                    branch(move |context| interpreter.run(context, steps))
                });
                let (winner, flow) = race(context, branches.collect()).await;
                self.save(save, winner.into());
                return flow;
            }
            Op::Loop { times, save, steps } => {
                for i in 0..*times {
                    self.save(save, i.into());
                    if let Flow::Return(value) = self.clone().run(context.clone(), steps.clone()).await? {
                        return Ok(Flow::Return(value));
                    }
                }
            }
            Op::If { var, equals, then, otherwise } => {
                let chosen = if self.lookup(var) == self.value(equals)? { then } else { otherwise };
                return self.clone().run(context.clone(), chosen.clone()).await;
            }
            Op::Try { steps, catch, always, save } => {
                return self.attempt(context, steps, catch.as_ref(), always, save).await;
            }
            Op::Saga(pairs) => return self.saga(context, pairs).await,
            Op::SideEffect { value, save } => {
                let value = self.value(value)?;
                let value = context.side_effect(|| value);
                return Ok(self.save(save, value));
            }
            Op::Random(name) => return Ok(self.save(&Some(name.clone()), context.random_u64().into())),
            Op::Uuid(name) => return Ok(self.save(&Some(name.clone()), context.uuid().to_string().into())),
            Op::Now(name) => {
                let ms = context.now().as_micros() / 1_000;
                return Ok(self.save(&Some(name.clone()), ms.into()));
            }
            Op::Patch { id, new, old } => {
                let chosen = if context.patched(id.as_str()) { new } else { old };
                return self.clone().run(context.clone(), chosen.clone()).await;
            }
            Op::DeprecatePatch(id) => context.deprecate_patch(id.as_str()),
            Op::Upsert(attributes) => context.upsert_search_attributes(attributes_of(step, &self.value(attributes)?)?),
            Op::Memo(memo) => context.upsert_memo(memo_of(step, &self.value(memo)?)?),
            Op::Set(changes) => match self.value(changes)? {
                Value::Object(changes) => self.vars.write(|vars| vars.extend(changes)),
                other => return Err(wrong(step, format!("expected a mapping, found {other}"))),
            },
            Op::WaitCancel(name) => {
                let reason = context.cancellation().await;
                return Ok(self.save(&Some(name.clone()), reason.into()));
            }
            Op::ContinueAsNew(next) => {
                return context.continue_as_new(&self.next_program(next)?, Default::default());
            }
            Op::Fail { failure_type, message, non_retryable, details } => {
                return Err(self.failure(failure_type, message, *non_retryable, details.as_ref())?);
            }
            Op::Return(value) => return Ok(Flow::Return(self.value(value)?)),
        }
        Ok(Flow::Next)
    }

    async fn other_runs(&self, context: &WfContext, step: &ProgramStep) -> Result<Flow, Failure> {
        let target = |id: &Value| {
            let workflow_id = workflow_id(&step.path, &self.value(id)?).map_err(|why| invalid(&why))?;
            Ok::<_, Failure>(ExternalTarget { workflow_id, run_id: None })
        };
        match &step.act {
            Op::Child { workflow_type, id, input, options, wait, save } => {
                let id = match id {
                    Some(id) => target(id)?.workflow_id,
                    None => {
                        let id = format!("{}/{}", context.workflow_id(), context.uuid());
                        workflow_id(&step.path, &id.into()).map_err(|why| invalid(&why))?
                    }
                };
                let options = options.as_ref().clone();
                // A program is not resolved: its references are the child's own.
                let input =
                    if workflow_type.as_str() == super::KITCHEN_SINK { input.clone() } else { self.value(input)? };
                let child = context.child_workflow::<Value>(workflow_type.clone(), id, &input, options);
                if !*wait {
                    let run_id = child.started().await?;
                    return Ok(self.save(save, run_id.to_string().into()));
                }
                Ok(self.save(save, child.await?))
            }
            Op::Signal { workflow_id, name, input } => {
                // Whoever may start a program is not thereby whoever it would say that they are.
                let named = is_believed(name.as_str()) && context.patched("signals-in-the-name-of-people");
                // They were refused later: a history of before has sent them.
                if named || is_answer(name.as_str()) && context.patched("answers-in-the-name-of-people") {
                    // In the words of the histories that have it.
                    let says = if named { "says who sends it" } else { "is what a person says" };
                    let why = format!("{name} {says}, and is believed: people send it by `bosun`, and no program");
                    return Err(Failure::application("SignalOfPeople", why).non_retryable());
                }
                context
                    .signal_external(for_programs(context, target(workflow_id)?)?, name.as_str(), &self.value(input)?)
                    .await?;
                Ok(Flow::Next)
            }
            Op::CancelWorkflow { workflow_id, reason } => {
                context.cancel_external(for_programs(context, target(workflow_id)?)?, reason).await?;
                Ok(Flow::Next)
            }
            _ => Ok(Flow::Next),
        }
    }

    async fn parallel(&self, context: &WfContext, branches: &[Steps]) -> Result<Flow, Failure> {
        let running = branches.iter().map(|steps| self.clone().run(context.nested_scope(), steps.clone()));
        let ends = join_all(running.collect::<Vec<_>>()).await;
        let mut returned = Flow::Next;
        for end in ends {
            if let Flow::Return(value) = end?
                && matches!(returned, Flow::Next)
            {
                returned = Flow::Return(value);
            }
        }
        Ok(returned)
    }

    async fn attempt(
        &self,
        context: &WfContext,
        steps: &Steps,
        catch: Option<&Steps>,
        always: &Steps,
        save: &Save,
    ) -> Result<Flow, Failure> {
        let mut outcome = self.clone().run(context.clone(), steps.clone()).await;
        if let (Err(failure), Some(catch)) = (&outcome, catch)
            && failure.type_name() != FAILURE_CONTINUE_AS_NEW
            && !(failure.is_canceled() && context.is_canceled())
        {
            self.save(save, json!({ "type": failure.type_name(), "message": failure.root().message }));
            outcome = self.clone().run(context.clone(), catch.clone()).await;
        }
        let always = self.clone().run(context.detached_scope(), always.clone()).await;
        match (outcome, always?) {
            (Ok(_), Flow::Return(value)) => Ok(Flow::Return(value)),
            (outcome, _) => outcome,
        }
    }

    async fn saga(&self, context: &WfContext, pairs: &[(Steps, Steps)]) -> Result<Flow, Failure> {
        Saga::run(context, |saga| async move {
            for (steps, undo) in pairs {
                let (interpreter, undo) = (self.clone(), undo.clone());
                saga.compensate_with(
                    "undo",
                    move |context| async move { interpreter.run(context, undo).await.map(drop) },
                );
                if let Flow::Return(value) = self.clone().run(context.clone(), steps.clone()).await? {
                    return Ok(Flow::Return(value));
                }
            }
            Ok(Flow::Next)
        })
        .await
    }

    /// The same program unless the step has one, and the variables of now with its changes.
    fn next_program(&self, next: &Value) -> Result<Value, Failure> {
        let steps = next.get("steps").or(self.program.get("steps")).cloned().unwrap_or_default();
        let mut vars = self.vars.get();
        if let Some(Value::Object(changes)) = next.get("vars").map(|changes| self.value(changes)).transpose()? {
            vars.extend(changes);
        }
        Ok(json!({ "steps": steps, "vars": vars }))
    }

    fn failure(
        &self,
        failure_type: &str,
        message: &Value,
        non_retryable: bool,
        details: Option<&Value>,
    ) -> Result<Failure, Failure> {
        let message = match self.value(message)? {
            Value::String(text) => text,
            Value::Null => "the program failed here".to_owned(),
            other => other.to_string(),
        };
        let mut failure = Failure::application(failure_type, message);
        if let Some(details) = details {
            failure = failure.with_details(Payload::encode(&self.value(details)?)?);
        }
        Ok(if non_retryable { failure.non_retryable() } else { failure })
    }
}

/// A value that turned out wrong when the step began.
pub(super) fn wrong(step: &ProgramStep, why: String) -> Failure {
    invalid(&FieldError::at(step.path.clone(), why))
}
