//! What is under way between commits: attempts, messages between runs, and what the client does.
//!
//! Invariant: an effect becomes something under way exactly once, in the order of release; a crash loses all of it
//! (attempts may still speak as zombies), and recovery asks for it again. Who is told what is the shell's rule, the same
//! as in the service; what it means is decided by the run machine.

use bosun_engine::machine::Effect;
use bosun_engine::*;

use super::finding::Finding;
use super::world::{Answer, Order, Sent, World, run_is_closed, started_of};

/// Something that has been released and has not arrived.
#[derive(Debug, Clone)]
pub(super) enum UnderWay {
    Attempt {
        task: Box<ActivityTask>,
        cancel: bool,
    },
    /// An attempt that waits for a slot.
    Slot {
        run: RunId,
        seq: Seq,
        attempt: Attempt,
    },
    StartChild {
        parent: RunId,
        seq: Seq,
        run_id: RunId,
        start: Box<StartWorkflow>,
    },
    WatchChild {
        parent: RunId,
        seq: Seq,
        workflow_id: WorkflowId,
    },
    /// To the newest run of an id. `answer` says to whom, and as what, the delivery is told.
    ToOther {
        workflow_id: WorkflowId,
        run_id: Option<RunId>,
        input: Input,
        answer: Option<(RunId, Seq, Told)>,
    },
    /// To exactly this run.
    ToRun {
        run: RunId,
        input: Input,
    },
    /// A child whose code is not here comes to its end.
    MockEnds {
        workflow_id: WorkflowId,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Signal,
    Cancel,
}

/// A child workflow of a type that is not in the registry: it begins, and ends as the plan says.
#[derive(Debug, Clone)]
pub(super) struct Mock {
    workflow_type: WorkflowType,
    parent: RunId,
    seq: Seq,
    run_id: RunId,
    cancel: bool,
    end: Option<CloseOutcome>,
}

impl World<'_> {
    /// An effect of a durable decision. One arm an effect.
    pub(super) fn release(&mut self, run: RunId, effect: Effect) {
        let item = match effect {
            Effect::RunActivity(task) => UnderWay::Attempt { task, cancel: false },
            Effect::QueueActivity { seq, attempt, .. } => UnderWay::Slot { run, seq, attempt },
            Effect::CancelActivity { seq, attempt } => return self.cancel_attempt(run, seq, attempt),
            Effect::StartChild { seq, run_id, start } => UnderWay::StartChild { parent: run, seq, run_id, start },
            Effect::WatchChild { seq, workflow_id, .. } => UnderWay::WatchChild { parent: run, seq, workflow_id },
            Effect::CancelChild { seq, workflow_id, reason, request_id, .. } => {
                let input = Input::RequestCancel { reason, identity: None, request_id: Some(request_id) };
                UnderWay::ToOther { workflow_id, run_id: None, input, answer: Some((run, seq, Told::Cancel)) }
            }
            Effect::ParentClosed { workflow_id, policy, .. } => {
                let Some(input) = close_input(run, policy) else { return };
                UnderWay::ToOther { workflow_id, run_id: None, input, answer: None }
            }
            Effect::SignalExternal { seq, target, signal } => UnderWay::ToOther {
                workflow_id: target.workflow_id,
                run_id: target.run_id,
                input: Input::Signal(signal),
                answer: Some((run, seq, Told::Signal)),
            },
            Effect::CancelExternal { seq, target, reason, request_id } => UnderWay::ToOther {
                workflow_id: target.workflow_id,
                run_id: target.run_id,
                input: Input::RequestCancel { reason, identity: None, request_id: Some(request_id) },
                answer: Some((run, seq, Told::Cancel)),
            },
            Effect::NotifyParent { parent, outcome } => {
                let input = Input::ChildClosed { seq: parent.seq, run_id: run, outcome };
                UnderWay::ToRun { run: parent.run_id, input }
            }
            Effect::ResolveUpdate { .. } | Effect::Closed { .. } => return,
        };
        self.under_way.push(item);
    }

    fn cancel_attempt(&mut self, run: RunId, seq: Seq, attempt: Attempt) {
        for item in &mut self.under_way {
            if let UnderWay::Attempt { task, cancel } = item
                && (task.run_id, task.seq, task.attempt) == (run, seq, attempt)
            {
                *cancel = true;
            }
        }
    }

    /// The worker is gone: nothing that was under way arrives, except that attempts may still speak.
    pub(super) fn lose_what_is_under_way(&mut self) {
        for item in std::mem::take(&mut self.under_way) {
            match item {
                UnderWay::Attempt { task, .. } => self.zombies.push((task.run_id, task.seq, task.attempt)),
                // Nobody's worker but the mock's own.
                UnderWay::MockEnds { .. } => self.under_way.push(item),
                _ => {}
            }
        }
        self.running = 0;
    }

    /// A child whose parent has closed while nobody could tell it.
    pub(super) fn adopt_orphan(&mut self, run_id: RunId) -> Result<(), Finding> {
        let Some(started) = self.runs.get(&run_id).and_then(started_of) else { return Ok(()) };
        let (workflow_id, parent) = (started.workflow_id.clone(), started.parent.clone());
        let Some(parent) = parent else { return Ok(()) };
        let closed = self.runs.get(&parent.run_id).is_some_and(run_is_closed);
        let input = close_input(parent.run_id, parent.close_policy).filter(|_| closed);
        if let Some(input) = input {
            self.rare.hit("child told after a crash that its parent has closed");
            self.under_way.push(UnderWay::ToOther { workflow_id, run_id: None, input, answer: None });
        }
        Ok(())
    }

    fn pick(&self, pick: u16, wanted: impl Fn(&UnderWay) -> bool) -> Option<usize> {
        let wanted: Vec<usize> = (0..self.under_way.len()).filter(|at| wanted(&self.under_way[*at])).collect();
        wanted.get(usize::from(pick) % wanted.len().max(1)).copied()
    }

    /// Something arrives, `times` times.
    pub(super) fn deliver(&mut self, pick: u16, result: u16, times: u8) -> Result<(), Finding> {
        let free = self.has_slot();
        let Some(at) = self.pick(pick, |item| free || !matches!(item, UnderWay::Slot { .. })) else { return Ok(()) };
        if at > 0 {
            self.rare.hit("delivered out of order");
        }
        let item = self.under_way.remove(at);
        for time in 0..times {
            self.arrive(item.clone(), usize::from(result), time > 0)?;
        }
        Ok(())
    }

    /// The next one in the order of the world, successfully. Says whether there was one.
    pub(super) fn deliver_any(&mut self) -> Result<bool, Finding> {
        let at = match self.order {
            Order::Fifo if !self.under_way.is_empty() => 0,
            Order::Lifo if !self.under_way.is_empty() => self.under_way.len() - 1,
            Order::Fifo | Order::Lifo => return Ok(false),
        };
        let item = self.under_way.remove(at);
        self.arrive(item, 0, false)?;
        Ok(true)
    }

    fn has_slot(&self) -> bool {
        self.plan.slots == 0 || self.healing || self.running < usize::from(self.plan.slots)
    }

    // long: one arm for each thing that can be under way.
    fn arrive(&mut self, item: UnderWay, result: usize, again: bool) -> Result<(), Finding> {
        match item {
            UnderWay::Attempt { task, cancel } => self.attempt_ends(&task, cancel, result, again),
            UnderWay::Slot { run, seq, attempt } => {
                let before = self.under_way.len();
                self.running += 1;
                self.input(run, Input::StartActivity { seq, attempt })?;
                if self.under_way.len() == before {
                    self.running = self.running.saturating_sub(1);
                }
                Ok(())
            }
            UnderWay::StartChild { parent, seq, run_id, start } => self.start_child(parent, seq, run_id, *start),
            UnderWay::WatchChild { parent, seq, workflow_id } => {
                self.look_at_child(parent, seq, &workflow_id);
                Ok(())
            }
            UnderWay::ToOther { workflow_id, run_id, input, answer } => {
                let target = run_id.or_else(|| self.newest.get(&workflow_id).copied());
                let reached = match (target.filter(|id| self.runs.contains_key(id)), self.mocks.get_mut(&workflow_id)) {
                    (Some(run), _) => match self.input(run, input)? {
                        Answer::Accepted { .. } => Ok(()),
                        Answer::Refused(why) => Err(why.to_string()),
                        Answer::Crashed => return Ok(()),
                    },
                    (None, Some(mock)) if mock.end.is_none() => {
                        mock.cancel |= !matches!(input, Input::Signal(_));
                        Ok(())
                    }
                    // Somebody outside the simulation: reached, or not, as the plan picks.
                    (None, Some(_)) => Err("it has ended".to_owned()),
                    (None, None) if result.is_multiple_of(2) => Ok(()),
                    (None, None) => Err("no such workflow".to_owned()),
                };
                if let Some((run, seq, told)) = answer {
                    let result = reached.map_err(|why| Failure::application("ExternalWorkflowNotReached", why));
                    let input = match told {
                        Told::Signal => Input::SignalDelivered { seq, result },
                        Told::Cancel => Input::CancelDelivered { seq, result },
                    };
                    self.under_way.push(UnderWay::ToRun { run, input });
                }
                Ok(())
            }
            UnderWay::ToRun { run, input } => {
                if self.runs.contains_key(&run) {
                    self.input(run, input)?;
                }
                Ok(())
            }
            UnderWay::MockEnds { workflow_id } => {
                self.mock_ends(&workflow_id, result);
                Ok(())
            }
        }
    }

    fn attempt_ends(&mut self, task: &ActivityTask, cancel: bool, result: usize, again: bool) -> Result<(), Finding> {
        if !again {
            self.running = self.running.saturating_sub(1);
        }
        let Some(outcome) = self.outcome_of(task, cancel, result)? else { return Ok(()) };
        let input = Input::ActivityOutcome { seq: task.seq, attempt: task.attempt, outcome, identity: None };
        let wants = self.runs.get(&task.run_id).and_then(|run| run.execution.as_ref());
        let token = TaskToken { run_id: task.run_id, seq: task.seq, attempt: task.attempt };
        let late = wants.is_some_and(|execution| !execution.run().is_under_way(token));
        match self.input(task.run_id, input)? {
            // What a paused run keeps is an answer too, and it is kept once.
            Answer::Accepted { events } if again && events > 0 => Err(twice(task)),
            Answer::Accepted { .. } | Answer::Crashed => Ok(()),
            Answer::Refused(_) => {
                self.rare.hit(match (again, late) {
                    (true, _) => "duplicate completion refused",
                    (false, true) => "late completion refused",
                    (false, false) => "completion refused",
                });
                Ok(())
            }
        }
    }

    /// How the attempt ends. When the world heals it succeeds, or fails for good.
    fn outcome_of(
        &mut self,
        task: &ActivityTask,
        cancel: bool,
        result: usize,
    ) -> Result<Option<ActivityOutcome>, Finding> {
        let outcomes = self.plan.results_of(&task.activity_type);
        if outcomes.is_empty() {
            let why = format!(
                "the workflow schedules the activity {}, and the test gives no results for it",
                task.activity_type
            );
            return Err(Finding::Setup { why });
        }
        if cancel && result % 3 == 1 {
            self.rare.hit("activity stopped when it was canceled");
            return Ok(Some(ActivityOutcome::Canceled(None)));
        }
        if !self.healing {
            let outcome = outcomes[result % outcomes.len()].clone();
            if let ActivityOutcome::Failed(_) = outcome {
                self.rare.hit("attempt failed");
            }
            return Ok(Some(outcome));
        }
        let good: Vec<&ActivityOutcome> =
            outcomes.iter().filter(|outcome| matches!(outcome, ActivityOutcome::Completed(_))).collect();
        // The same activity gets the same result, whatever the order of arrival.
        let which = usize::from(task.input.digest()[0]) % good.len().max(1);
        Ok(Some(match good.get(which) {
            Some(outcome) => (*outcome).clone(),
            None => match outcomes[0].clone() {
                ActivityOutcome::Failed(failure) => ActivityOutcome::Failed(failure.non_retryable()),
                other => other,
            },
        }))
    }

    pub(super) fn lose(&mut self, pick: u16) {
        // Only what some timeout ends may be lost; the other close timeout is always there.
        let Some(at) = self.pick(pick, |item| matches!(item, UnderWay::Attempt { .. })) else { return };
        if let UnderWay::Attempt { task, .. } = self.under_way.remove(at) {
            self.zombies.push((task.run_id, task.seq, task.attempt));
            self.running = self.running.saturating_sub(1);
            self.rare.hit("attempt lost");
        }
    }

    /// An attempt whose worker is gone tells its end. It counts only while it is still the attempt under way (G20).
    pub(super) fn zombie(&mut self, pick: u16, result: u16) -> Result<(), Finding> {
        if self.zombies.is_empty() {
            return Ok(());
        }
        let (run_id, seq, attempt) = self.zombies[usize::from(pick) % self.zombies.len()];
        if !self.runs.contains_key(&run_id) {
            return Ok(());
        }
        let execution = self.load(run_id)?;
        let current = execution.run().is_under_way(TaskToken { run_id, seq, attempt });
        let paused = execution.run().is_paused();
        let named = execution.run().pending_activities().into_iter().find(|activity| activity.seq == seq);
        if let Some(run) = self.runs.get_mut(&run_id) {
            run.execution = Some(execution);
        }
        let results = named.map_or(Vec::new(), |activity| self.plan.results_of(&activity.activity_type).to_vec());
        let outcome = results.get(usize::from(result) % results.len().max(1)).cloned();
        let outcome = outcome.unwrap_or(ActivityOutcome::Completed(Payload::null()));
        match self.input(run_id, Input::ActivityOutcome { seq, attempt, outcome, identity: None })? {
            Answer::Accepted { events } if !current && !paused && events > 0 => Err(Finding::Guarantee {
                id: "G20",
                why: format!("attempt {attempt} of activity {seq} was over, and its completion was accepted"),
            }),
            Answer::Refused(_) => {
                self.rare.hit("zombie refused");
                Ok(())
            }
            Answer::Accepted { .. } | Answer::Crashed => Ok(()),
        }
    }

    pub(super) fn heartbeat(&mut self, pick: u16) -> Result<(), Finding> {
        let Some(at) = self.pick(pick, |item| matches!(item, UnderWay::Attempt { .. })) else { return Ok(()) };
        let UnderWay::Attempt { task, .. } = &self.under_way[at] else { return Ok(()) };
        let input = Input::Heartbeat { seq: task.seq, attempt: task.attempt, details: Some(Payload::null()) };
        let run_id = task.run_id;
        self.input(run_id, input).map(drop)
    }

    fn start_child(&mut self, parent: RunId, seq: Seq, run_id: RunId, start: StartWorkflow) -> Result<(), Finding> {
        let workflow_id = start.workflow_id.clone();
        let mock = self.mocks.get(&workflow_id);
        let repeated = self.runs.contains_key(&run_id) || mock.is_some_and(|mock| mock.run_id == run_id);
        let open =
            self.newest.get(&workflow_id).and_then(|id| self.runs.get(id)).is_some_and(|run| !run_is_closed(run))
                || mock.is_some_and(|mock| mock.end.is_none());
        let result = if repeated {
            self.rare.hit("child start repeated");
            Ok(run_id)
        } else if open {
            let failure = Failure::application("ChildWorkflowNotStarted", format!("a run of {workflow_id} is open"));
            Err(failure.non_retryable())
        } else if self.registry().contains(&start.workflow_type) {
            match self.start_run(run_id, start)? {
                Answer::Accepted { .. } => Ok(run_id),
                Answer::Refused(why) => Err(Failure::application("ChildWorkflowNotStarted", why.to_string())),
                Answer::Crashed => return Ok(()),
            }
        } else {
            let workflow_type = start.workflow_type;
            let mock = Mock { workflow_type, parent, seq, run_id, cancel: false, end: None };
            self.mocks.insert(workflow_id.clone(), mock);
            self.under_way.push(UnderWay::MockEnds { workflow_id });
            Ok(run_id)
        };
        self.under_way.push(UnderWay::ToRun { run: parent, input: Input::ChildStarted { seq, result } });
        Ok(())
    }

    fn mock_ends(&mut self, workflow_id: &WorkflowId, result: usize) {
        let Some(mock) = self.mocks.get_mut(workflow_id) else { return };
        let outcome = match self.plan.children.get(&mock.workflow_type).map(Vec::as_slice) {
            _ if mock.cancel => CloseOutcome::Canceled(None),
            Some(ends) if !ends.is_empty() => ends[result % ends.len()].clone(),
            Some(_) | None => CloseOutcome::Completed(Payload::null()),
        };
        mock.end = Some(outcome.clone());
        let input = Input::ChildClosed { seq: mock.seq, run_id: mock.run_id, outcome };
        self.under_way.push(UnderWay::ToRun { run: mock.parent, input });
    }

    /// After a restart a parent asks what has become of its child.
    fn look_at_child(&mut self, parent: RunId, seq: Seq, workflow_id: &WorkflowId) {
        let newest = self.newest.get(workflow_id).copied();
        let ended = newest.and_then(|id| {
            let run = self.runs.get(&id)?;
            super::guarantees::outcome_of(&run.turns).map(|outcome| (id, outcome))
        });
        let mock = self.mocks.get(workflow_id).and_then(|mock| Some((mock.run_id, mock.end.clone()?)));
        if let Some((run_id, outcome)) = ended.or(mock) {
            let input = Input::ChildClosed { seq, run_id, outcome };
            self.under_way.push(UnderWay::ToRun { run: parent, input });
        }
    }
}

/// What the client does.
impl World<'_> {
    /// A request that the client repeats until it is answered; what was answered is never lost (G1, G13).
    fn send(&mut self, input: Input) -> Result<(), Finding> {
        self.sent.push(Sent { input: input.clone(), answer: None });
        self.try_send(self.sent.len() - 1)
    }

    fn try_send(&mut self, at: usize) -> Result<(), Finding> {
        let (Some(run_id), Some(sent)) = (self.main_run(), self.sent.get(at)) else { return Ok(()) };
        let input = sent.input.clone();
        let answer = match self.input(run_id, input)? {
            Answer::Accepted { .. } => Some(Ok(())),
            Answer::Refused(why) => Some(Err(why)),
            // The restart sends it again by itself.
            Answer::Crashed => return Ok(()),
        };
        self.sent[at].answer = answer;
        Ok(())
    }

    /// After a restart, what was not answered is sent again under the same request id.
    pub(super) fn resend(&mut self) -> Result<(), Finding> {
        for at in 0..self.sent.len() {
            if self.sent[at].answer.is_none() {
                self.rare.hit("request repeated after a crash");
                self.try_send(at)?;
            }
        }
        Ok(())
    }

    fn request_id(&self) -> RequestId {
        RequestId::of(format!("client-{}", self.sent.len()))
    }

    pub(super) fn signal(&mut self, pick: u16) -> Result<(), Finding> {
        if self.plan.signals.is_empty() {
            return Ok(());
        }
        let (name, input) = self.plan.signals[usize::from(pick) % self.plan.signals.len()].clone();
        let request_id = Some(self.request_id());
        self.send(Input::Signal(WorkflowExecutionSignaled { name, input, identity: None, request_id }))
    }

    pub(super) fn cancel(&mut self) -> Result<(), Finding> {
        let request_id = Some(self.request_id());
        self.send(Input::RequestCancel { reason: "simulated".into(), identity: None, request_id })
    }

    pub(super) fn update(&mut self, pick: u16) -> Result<(), Finding> {
        if self.plan.updates.is_empty() {
            return Ok(());
        }
        let (name, input) = self.plan.updates[usize::from(pick) % self.plan.updates.len()].clone();
        let update_id = UpdateId::of(format!("update-{}", self.sent.len()));
        self.send(Input::Update { update_id, name, input, identity: None })
    }

    /// The last request again: it must change nothing.
    pub(super) fn repeat(&mut self) -> Result<(), Finding> {
        let Some((run_id, sent)) = self.main_run().zip(self.sent.last().cloned()) else { return Ok(()) };
        // An update is known in its own run only, as in Temporal.
        if !matches!(sent.answer, Some(Ok(()))) || matches!(sent.input, Input::Update { .. }) {
            return Ok(());
        }
        match self.input(run_id, sent.input)? {
            Answer::Accepted { events } if events > 0 => {
                Err(Finding::Guarantee { id: "G13", why: "a repeated request was carried out again".into() })
            }
            Answer::Accepted { .. } | Answer::Refused(_) | Answer::Crashed => {
                self.rare.hit("repeated request recognised");
                Ok(())
            }
        }
    }

    /// A query changes nothing, not even in a way that only shows later.
    pub(super) fn query(&mut self, pick: u16) -> Result<(), Finding> {
        let (Some(run_id), false) = (self.main_run(), self.plan.queries.is_empty()) else { return Ok(()) };
        let (name, input) = self.plan.queries[usize::from(pick) % self.plan.queries.len()].clone();
        let mut execution = self.load(run_id)?;
        let before = execution.state_json();
        let answer = execution.query(&name, &input);
        let after = execution.state_json();
        if let Some(run) = self.runs.get_mut(&run_id) {
            run.execution = Some(execution);
        }
        self.doubts.calls()?;
        match answer {
            Err(Rejection::Query(QueryError::Mutated { name, what })) => {
                Err(Finding::QueryMutates { query: name, what })
            }
            Err(Rejection::Query(QueryError::Unknown { name, known })) => {
                let why = format!("the workflow does not answer the query {name}; it answers: {}", known.join(", "));
                Err(Finding::Setup { why })
            }
            _ if before != after => Err(Finding::QueryMutates { query: name, what: "its state".into() }),
            _ => {
                self.rare.hit("query answered");
                Ok(())
            }
        }
    }
}

fn close_input(parent: RunId, policy: ParentClosePolicy) -> Option<Input> {
    let reason = "the parent workflow has closed".to_owned();
    match policy {
        ParentClosePolicy::Abandon => None,
        ParentClosePolicy::Terminate => Some(Input::Terminate { reason, identity: None }),
        ParentClosePolicy::RequestCancel => Some(Input::RequestCancel {
            reason,
            identity: None,
            request_id: Some(RequestId::of(format!("parent-closed:{parent}"))),
        }),
    }
}

fn twice(task: &ActivityTask) -> Finding {
    let why = format!("the end of attempt {} of activity {} was accepted twice", task.attempt, task.seq);
    Finding::Guarantee { id: "G12", why }
}
