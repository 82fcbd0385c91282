//! What is under way between commits: attempts, messages between runs, and what the client does.
//!
//! Invariant: an effect becomes something under way exactly once, in the order of release; a crash loses all of it
//! (attempts may still speak as zombies), and recovery asks for it again. Who is told what is the shell's rule, the same
//! as in the service; what it means is decided by the run machine.

use bosun_engine::machine::Effect;
use bosun_engine::*;

use super::finding::Violation;
use super::world::{DeliveryOrder, InputOutcome, World, run_is_closed, started_of};

/// Something that has been released and has not arrived.
#[derive(Debug, Clone)]
pub(super) enum PendingWork {
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
        answer: Option<(RunId, Seq, ExternalKind)>,
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

impl PendingWork {
    /// The workflow id to whose mailbox it goes.
    fn target(&self) -> Option<&WorkflowId> {
        match self {
            PendingWork::StartChild { start, .. } => Some(&start.workflow_id),
            PendingWork::WatchChild { workflow_id, .. } | PendingWork::ToOther { workflow_id, .. } => Some(workflow_id),
            PendingWork::Attempt { .. }
            | PendingWork::Slot { .. }
            | PendingWork::ToRun { .. }
            | PendingWork::MockEnds { .. } => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExternalKind {
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
            Effect::RunActivity(task) => PendingWork::Attempt { task, cancel: false },
            Effect::QueueActivity { seq, attempt, .. } => PendingWork::Slot { run, seq, attempt },
            Effect::CancelActivity { seq, attempt } => return self.cancel_attempt(run, seq, attempt),
            Effect::StartChild { seq, run_id, start } => PendingWork::StartChild { parent: run, seq, run_id, start },
            Effect::WatchChild { seq, workflow_id, .. } => PendingWork::WatchChild { parent: run, seq, workflow_id },
            Effect::CancelChild { seq, workflow_id, reason, request_id, .. } => {
                let input = Input::RequestCancel { reason, identity: None, request_id: Some(request_id) };
                PendingWork::ToOther {
                    workflow_id,
                    run_id: None,
                    input,
                    answer: Some((run, seq, ExternalKind::Cancel)),
                }
            }
            Effect::ParentClosed { workflow_id, policy, .. } => {
                let Some(input) = close_input(run, policy) else { return };
                PendingWork::ToOther { workflow_id, run_id: None, input, answer: None }
            }
            Effect::SignalExternal { seq, target, signal } => PendingWork::ToOther {
                workflow_id: target.workflow_id,
                run_id: target.run_id,
                input: Input::Signal(signal),
                answer: Some((run, seq, ExternalKind::Signal)),
            },
            Effect::CancelExternal { seq, target, reason, request_id } => PendingWork::ToOther {
                workflow_id: target.workflow_id,
                run_id: target.run_id,
                input: Input::RequestCancel { reason, identity: None, request_id: Some(request_id) },
                answer: Some((run, seq, ExternalKind::Cancel)),
            },
            Effect::NotifyParent { parent, outcome } => {
                let input = Input::ChildClosed { seq: parent.seq, run_id: run, outcome };
                PendingWork::ToRun { run: parent.run_id, input }
            }
            Effect::ResolveUpdate { .. } | Effect::Closed { .. } => return,
        };
        self.under_way.push(item);
    }

    fn cancel_attempt(&mut self, run: RunId, seq: Seq, attempt: Attempt) {
        for item in &mut self.under_way {
            if let PendingWork::Attempt { task, cancel } = item
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
                PendingWork::Attempt { task, .. } => self.zombies.push((task.run_id, task.seq, task.attempt)),
                // Nobody's worker but the mock's own.
                PendingWork::MockEnds { .. } => self.under_way.push(item),
                _ => {}
            }
        }
        self.running = 0;
    }

    /// A child whose parent has closed while nobody could tell it.
    pub(super) fn adopt_orphan(&mut self, run_id: RunId) -> Result<(), Violation> {
        let Some(started) = self.runs.get(&run_id).and_then(started_of) else { return Ok(()) };
        let (workflow_id, parent) = (started.workflow_id.clone(), started.parent.clone());
        let Some(parent) = parent else { return Ok(()) };
        let closed = self.runs.get(&parent.run_id).is_some_and(run_is_closed);
        let input = close_input(parent.run_id, parent.close_policy).filter(|_| closed);
        if let Some(input) = input {
            self.rare.hit("child told after a crash that its parent has closed");
            self.under_way.push(PendingWork::ToOther { workflow_id, run_id: None, input, answer: None });
        }
        Ok(())
    }

    /// What may arrive now: messages to one workflow id keep their order, as in the mailbox of its shard.
    fn may_arrive(&self, at: usize) -> bool {
        let target = self.under_way[at].target();
        target.is_none() || self.under_way[..at].iter().all(|earlier| earlier.target() != target)
    }

    pub(super) fn pick(&self, pick: u16, wanted: impl Fn(&PendingWork) -> bool) -> Option<usize> {
        let wanted = |at: &usize| wanted(&self.under_way[*at]) && self.may_arrive(*at);
        let wanted: Vec<usize> = (0..self.under_way.len()).filter(wanted).collect();
        wanted.get(usize::from(pick) % wanted.len().max(1)).copied()
    }

    /// Something arrives, `times` times.
    pub(super) fn deliver(&mut self, pick: u16, result: u16, times: u8) -> Result<(), Violation> {
        let free = self.has_slot();
        let Some(at) = self.pick(pick, |item| free || !matches!(item, PendingWork::Slot { .. })) else { return Ok(()) };
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
    pub(super) fn deliver_any(&mut self) -> Result<bool, Violation> {
        let mut can = (0..self.under_way.len()).filter(|at| self.may_arrive(*at));
        let at = match self.order {
            DeliveryOrder::Fifo => can.next(),
            DeliveryOrder::Lifo => can.next_back(),
        };
        let Some(at) = at else { return Ok(false) };
        let item = self.under_way.remove(at);
        if self.duplicates {
            self.arrive(item.clone(), 0, false)?;
            self.arrive(item, 0, true)?;
        } else {
            self.arrive(item, 0, false)?;
        }
        Ok(true)
    }

    fn has_slot(&self) -> bool {
        self.plan.slots == 0 || self.healing || self.running < usize::from(self.plan.slots)
    }

    // long: one arm for each thing that can be under way.
    fn arrive(&mut self, item: PendingWork, result: usize, again: bool) -> Result<(), Violation> {
        match item {
            PendingWork::Attempt { task, cancel } => self.attempt_ends(&task, cancel, result, again),
            PendingWork::Slot { run, seq, attempt } => {
                let before = self.under_way.len();
                self.running += 1;
                self.input(run, Input::StartActivity { seq, attempt })?;
                if self.under_way.len() == before {
                    self.running = self.running.saturating_sub(1);
                }
                Ok(())
            }
            PendingWork::StartChild { parent, seq, run_id, start } => self.start_child(parent, seq, run_id, *start),
            PendingWork::WatchChild { parent, seq, workflow_id } => {
                self.look_at_child(parent, seq, &workflow_id);
                Ok(())
            }
            PendingWork::ToOther { workflow_id, run_id, input, answer } => {
                let target = run_id.or_else(|| self.newest.get(&workflow_id).copied());
                let reached = match (target.filter(|id| self.runs.contains_key(id)), self.mocks.get_mut(&workflow_id)) {
                    (Some(run), _) => match self.input(run, input)? {
                        InputOutcome::Accepted { .. } => Ok(()),
                        InputOutcome::Refused(why) => Err(why.to_string()),
                        InputOutcome::Crashed => return Ok(()),
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
                        ExternalKind::Signal => Input::SignalDelivered { seq, result },
                        ExternalKind::Cancel => Input::CancelDelivered { seq, result },
                    };
                    self.under_way.push(PendingWork::ToRun { run, input });
                }
                Ok(())
            }
            PendingWork::ToRun { run, input } => {
                if self.runs.contains_key(&run) {
                    self.input(run, input)?;
                }
                Ok(())
            }
            PendingWork::MockEnds { workflow_id } => {
                self.mock_ends(&workflow_id, result);
                Ok(())
            }
        }
    }

    fn start_child(&mut self, parent: RunId, seq: Seq, run_id: RunId, start: StartWorkflow) -> Result<(), Violation> {
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
                InputOutcome::Accepted { .. } => Ok(run_id),
                InputOutcome::Refused(why) => Err(Failure::application("ChildWorkflowNotStarted", why.to_string())),
                InputOutcome::Crashed => return Ok(()),
            }
        } else {
            let workflow_type = start.workflow_type;
            let mock = Mock { workflow_type, parent, seq, run_id, cancel: false, end: None };
            self.mocks.insert(workflow_id.clone(), mock);
            self.under_way.push(PendingWork::MockEnds { workflow_id });
            Ok(run_id)
        };
        self.under_way.push(PendingWork::ToRun { run: parent, input: Input::ChildStarted { seq, result } });
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
        self.under_way.push(PendingWork::ToRun { run: mock.parent, input });
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
            self.under_way.push(PendingWork::ToRun { run: parent, input });
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
