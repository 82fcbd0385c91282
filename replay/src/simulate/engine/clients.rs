//! Simulated clients: what they ask for, in which words, and what their answers may be.
//!
//! Invariant: every request that changes something carries a request id of its own, so that it can be found in history
//! and sent again. What a client may rely on is checked when its answer arrives, or later against the log.

use std::time::Duration;

use bosun_engine::activity::TaskToken;
use bosun_engine::*;

use super::answers::{Answer, ClientReply, ClientRequest, SentRequest};
use super::world::{Checked, EngineWorld};

/// The kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientAct {
    Start,
    Signal,
    Result,
    SignalWithStart,
    Update,
    Query,
    Describe,
    Cancel,
    Terminate,
    Pause,
    Unpause,
    PauseActivity,
    Complete,
    Repeat,
    Delete,
    Reset,
    ChangeActivity,
}

impl ClientAct {
    /// All of them with their weights; the first three are known to every life.
    pub(super) const ALL: [(u32, ClientAct); 17] = [
        (4, ClientAct::Start),
        (4, ClientAct::Signal),
        (1, ClientAct::Result),
        (2, ClientAct::SignalWithStart),
        (2, ClientAct::Update),
        (1, ClientAct::Query),
        (1, ClientAct::Describe),
        (1, ClientAct::Cancel),
        (1, ClientAct::Terminate),
        (1, ClientAct::Pause),
        (2, ClientAct::Unpause),
        (1, ClientAct::PauseActivity),
        (2, ClientAct::Complete),
        (2, ClientAct::Repeat),
        (1, ClientAct::Delete),
        (2, ClientAct::Reset),
        (2, ClientAct::ChangeActivity),
    ];
}

impl EngineWorld<'_> {
    pub(super) fn client(&mut self, act: ClientAct) {
        match self.asked(act) {
            Some(ClientRequest::Delete { target }) => self.delete(&target),
            Some(ask) => self.ask(ask),
            None => {}
        }
    }

    /// Deleting needs no turn; it waits for a thread of the runtime, so it is waited for.
    fn delete(&mut self, target: &Target) {
        let client = self.worker.client();
        let deleted = self.worker.block_on(client.delete(target));
        self.note(format_args!("the run {:?} is deleted: {deleted:?}", target.run_id));
        // Also after an error: it may have come after the write.
        self.deleted.insert(target.workflow_id.clone());
        if matches!(deleted, Some(Ok(()))) {
            self.durable = self.durable.max(self.worker.journal().last_group());
            self.rare.hit("run deleted");
        }
    }

    pub(super) fn ask(&mut self, ask: ClientRequest) {
        let number = self.requests.len();
        self.note(format_args!("client {number} asks {}", text_of(&ask)));
        let (sent, incarnation) = (self.steps, self.incarnation);
        self.requests.push(SentRequest { ask: ask.clone(), sent, answer: None, answered: 0, incarnation });
        self.arrived.send(&self.worker, number, ask);
    }

    fn own_id(&self) -> RequestId {
        RequestId::of(format!("client-{}", self.requests.len()))
    }

    fn target(&mut self) -> Option<Target> {
        let starts = &self.plan.starts;
        let start = starts.get(self.choices.below(starts.len()))?;
        Some(Target::workflow(start.workflow_id.clone()))
    }

    fn signal_request(&mut self) -> Option<SignalRequest> {
        let at = self.choices.below(self.plan.signals.len());
        let (name, input) = self.plan.signals.get(at)?.clone();
        Some(SignalRequest { name, input, identity: None, request_id: Some(self.own_id()) })
    }

    fn start_request(&mut self) -> Option<Box<StartWorkflow>> {
        let at = self.choices.below(self.plan.starts.len());
        let mut start = self.plan.starts.get(at)?.clone();
        start.request_id = Some(self.own_id());
        start.id_conflict_policy = [
            IdConflictPolicy::Fail,
            IdConflictPolicy::UseExisting,
            IdConflictPolicy::Fail,
            IdConflictPolicy::TerminateExisting,
        ][self.choices.below(4)];
        Some(Box::new(start))
    }

    // long: one exhaustive match; a kind more is an arm more.
    fn asked(&mut self, act: ClientAct) -> Option<ClientRequest> {
        Some(match act {
            ClientAct::Start => ClientRequest::Start { start: self.start_request()?, signal: None },
            ClientAct::SignalWithStart => {
                let start = self.start_request()?;
                let mut signal = self.signal_request()?;
                signal.request_id = start.request_id.clone();
                ClientRequest::Start { start, signal: Some(signal) }
            }
            ClientAct::Signal => ClientRequest::Signal { target: self.target()?, signal: self.signal_request()? },
            ClientAct::Result => ClientRequest::Result { target: self.target()? },
            ClientAct::Update => {
                let at = self.choices.below(self.plan.updates.len());
                let (name, input) = self.plan.updates.get(at)?.clone();
                let wait = [UpdateWait::Completed, UpdateWait::Accepted][self.choices.below(2)];
                let update_id = UpdateId::of(self.own_id().as_str());
                let update = UpdateRequest { update_id, name, input, identity: None, wait };
                ClientRequest::Update { target: self.target()?, update }
            }
            ClientAct::Query => {
                let at = self.choices.below(self.plan.queries.len());
                let (name, input) = self.plan.queries.get(at)?.clone();
                ClientRequest::Query { target: self.target()?, name, input }
            }
            ClientAct::Describe => ClientRequest::Describe { target: self.target()? },
            ClientAct::Cancel => ClientRequest::Cancel { target: self.target()?, request_id: self.own_id() },
            ClientAct::Terminate => ClientRequest::Terminate { target: self.target()? },
            ClientAct::Pause => ClientRequest::Pause { target: self.target()? },
            ClientAct::Unpause => ClientRequest::Unpause { target: self.target()? },
            ClientAct::Reset => ClientRequest::Reset(self.reset_request()?),
            ClientAct::ChangeActivity => {
                let (target, activity) = self.activity_under_way()?;
                ClientRequest::ChangeActivity { target, activity, update: self.activity_update() }
            }
            ClientAct::PauseActivity => {
                let (target, activity) = self.activity_under_way()?;
                self.paused_activities.push((target.clone(), activity.clone()));
                ClientRequest::PauseActivity { target, activity }
            }
            ClientAct::Complete => self.completion()?,
            ClientAct::Repeat => {
                let known: Vec<&SentRequest> = self.requests.iter().filter(|sent| sent.ask.is_repeatable()).collect();
                let ask = known.get(self.choices.below(known.len()))?.ask.clone();
                self.rare.hit("request repeated");
                ask
            }
            ClientAct::Delete => {
                let closed = self.requests.iter().rev().find_map(|sent| match &sent.answer {
                    Some(Ok(ClientReply::Ended(ended))) => Some((ended.workflow_id.clone(), ended.run_id)),
                    _ => None,
                });
                let (workflow_id, run_id) = closed?;
                ClientRequest::Delete { target: Target::run(workflow_id, run_id) }
            }
        })
    }

    fn activity_under_way(&mut self) -> Option<(Target, ActivityId)> {
        let at = self.choices.below(self.staged.len());
        let task = self.staged.get(at)?.context.task();
        Some((Target::run(task.workflow_id.clone(), task.run_id), task.activity_id.clone()))
    }

    fn activity_update(&mut self) -> Box<ActivityUpdate> {
        Box::new(match self.choices.below(4) {
            0 => ActivityUpdate { retry_now: true, ..ActivityUpdate::default() },
            1 => ActivityUpdate { reset: true, ..ActivityUpdate::default() },
            2 => ActivityUpdate { start_to_close: Some(Duration::from_secs(1)), ..ActivityUpdate::default() },
            _ => ActivityUpdate { maximum_attempts: Some(5), ..ActivityUpdate::default() },
        })
    }

    /// Of the newest run of an id, or of one that a start has made: to its beginning, its last turn, or some event.
    fn reset_request(&mut self) -> Option<Box<ResetRequest>> {
        let mut target = self.target()?;
        let started = self.requests.iter().filter_map(|sent| match &sent.answer {
            Some(Ok(ClientReply::Started(started))) => Some(started.run_id),
            _ => None,
        });
        let started: Vec<RunId> = started.collect();
        let [how, event] = [self.choices.next(), self.choices.next()].map(usize::from);
        if how % 3 == 1
            && let Some(run) = started.get(event % started.len().max(1))
        {
            target.run_id = Some(*run);
        }
        let to = match how / 3 % 4 {
            0 => ResetTo::LastTurn,
            1 => ResetTo::FirstTurn,
            _ => ResetTo::Event(EventId(1 + (event / 8 % 40) as u64)),
        };
        let reapply = [ResetReapply::All, ResetReapply::All, ResetReapply::Signal, ResetReapply::None][how / 12 % 4];
        let mut request = ResetRequest::new(target, to).reapply(reapply);
        request.request_id = Some(self.own_id());
        Some(Box::new(request))
    }

    /// An attempt that runs, or one that is over, is completed (or heard of) from outside.
    fn completion(&mut self) -> Option<ClientRequest> {
        let at = self.choices.below(self.tokens.len());
        let (token, _) = self.tokens.iter().nth(at)?;
        let token = *token;
        let completion = match self.choices.below(4) {
            0 => ActivityCompletion::Complete(Payload::null()),
            1 => ActivityCompletion::Heartbeat(Some(Payload::null())),
            2 => ActivityCompletion::Fail(Failure::application("Outside", "from outside")),
            _ => ActivityCompletion::Cancel(None),
        };
        Some(ClientRequest::Complete { token, completion })
    }

    /// Takes in what was answered.
    pub(super) fn take_answers(&mut self) -> Checked {
        for (number, answer) in self.arrived.take() {
            self.note(format_args!("client {number} hears {}", heard(&answer)));
            let incarnation = self.requests[number].incarnation;
            if incarnation != self.incarnation {
                return self.broken("G1", format!("client {number} hears from a worker that has crashed"));
            }
            if self.failed && !self.durable_in_flight && answer.is_ok() {
                return self.broken("G5", format!("client {number} was acknowledged after the log had failed"));
            }
            self.judge(number, &answer)?;
            let request = &mut self.requests[number];
            (request.answered, request.answer) = (self.steps, Some(answer));
        }
        Ok(())
    }

    /// What an answer alone shows.
    fn judge(&mut self, number: usize, answer: &Answer) -> Checked {
        let ask = self.requests[number].ask.clone();
        match (&ask, answer) {
            (ClientRequest::Start { signal, .. }, Ok(ClientReply::Started(started))) => {
                if signal.is_some() {
                    self.rare.hit("signal with start");
                }
                if !started.newly_started {
                    self.rare.hit("start found its own run");
                }
                self.same_start(number, started)?;
            }
            (ClientRequest::Reset(_), Ok(ClientReply::Reset(done))) => {
                self.rare.hit(if done.newly_started { "run reset" } else { "reset found its own run" });
                self.same_reset(number, done)?;
            }
            (ClientRequest::Reset(_), Err(Rejection::Invalid { .. })) => self.rare.hit("reset refused"),
            (ClientRequest::Start { .. }, Err(Rejection::AlreadyOpen { .. })) => self.rare.hit("start refused: open"),
            (_, Err(Rejection::Overloaded { .. })) => self.rare.hit("request refused: overloaded"),
            (_, Err(Rejection::StorageFailed { .. } | Rejection::StorageFull { .. })) => {
                self.rare.hit("request refused after a storage error");
            }
            (ClientRequest::Complete { token, .. }, Ok(_)) => {
                let sent = self.requests[number].sent;
                let later = |newer: &TaskToken| newer.run_id == token.run_id && newer.seq == token.seq && newer > token;
                if self.tokens.iter().any(|(newer, started)| later(newer) && *started < sent) {
                    return self.broken("G20", format!("{token} is over and was heard"));
                }
                self.rare.hit("completed from outside");
            }
            (ClientRequest::Complete { .. }, Err(Rejection::StaleAttempt { .. })) => self.rare.hit("zombie refused"),
            (ClientRequest::Update { .. }, Err(Rejection::UpdateRefused { .. })) => self.rare.hit("update refused"),
            (ClientRequest::Query { .. }, Ok(_)) => self.rare.hit("query answered"),
            _ => {}
        }
        Ok(())
    }

    /// E26, G17: a reset that is asked for again finds the run it made, unless a start of the id came between.
    fn same_reset(&self, number: usize, done: &ResetDone) -> Checked {
        let ask = |sent: &SentRequest| match &sent.ask {
            ClientRequest::Reset(request) => Some(request.clone()),
            _ => None,
        };
        let request = ask(&self.requests[number]);
        let is_start = |sent: &SentRequest| matches!(&sent.ask, ClientRequest::Start { start, .. } if start.workflow_id == done.workflow_id);
        let since = self.requests.iter().position(|sent| ask(sent) == request).unwrap_or(number);
        if self.deleted.contains(&done.workflow_id) || self.requests[since..].iter().any(is_start) {
            return Ok(());
        }
        let other = self.requests.iter().filter(|sent| ask(sent) == request).find_map(|sent| match &sent.answer {
            Some(Ok(ClientReply::Reset(before))) if before.run_id != done.run_id => before.run_id,
            _ => None,
        });
        match other {
            Some(before) => self.broken("G17", format!("one reset has made the runs {before} and {:?}", done.run_id)),
            None => Ok(()),
        }
    }

    /// G17: a start repeated with its request id finds the run it made, unless another start came between.
    fn same_start(&self, number: usize, started: &Started) -> Checked {
        let ClientRequest::Start { start, .. } = &self.requests[number].ask else { return Ok(()) };
        let mut of_id = self.requests.iter().filter_map(|other| match &other.ask {
            ClientRequest::Start { start: other_start, .. } if other_start.workflow_id == start.workflow_id => {
                Some((other_start, &other.answer))
            }
            _ => None,
        });
        if self.deleted.contains(&start.workflow_id)
            || of_id.clone().any(|(other, _)| other.request_id != start.request_id)
        {
            return Ok(());
        }
        let other_run = of_id.find_map(|(_, answer)| match answer {
            Some(Ok(ClientReply::Started(before))) if before.newly_started && started.newly_started => {
                (before.run_id != started.run_id).then_some(before.run_id)
            }
            _ => None,
        });
        match other_run {
            Some(before) => {
                let why = format!("one request has started {before} and {}", started.run_id);
                self.broken("G17", why)
            }
            None => Ok(()),
        }
    }
}

fn text_of(ask: &ClientRequest) -> String {
    match ask {
        ClientRequest::Start { start, signal } => {
            let with = if signal.is_some() { " with a signal" } else { "" };
            let policy = start.id_conflict_policy;
            format!("start {}{with}, {policy:?}, request {:?}", start.workflow_id, start.request_id)
        }
        other => format!("{other:?}"),
    }
}

fn heard(answer: &Answer) -> String {
    match answer {
        Ok(ClientReply::Described(seen)) => format!("{} with {} events", seen.info.status, seen.info.history.events),
        Ok(reply) => format!("{reply:?}"),
        Err(why) => format!("no: {why}"),
    }
}
