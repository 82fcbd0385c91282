//! What must hold of a simulated life of the engine, over its histories, its answers and its log.
//!
//! Invariant: a check compares what was seen from outside with what the log holds; none knows how the engine came to
//! it. Each names the guarantee that is broken (the requirements of the engine §2).

use std::collections::{BTreeMap, BTreeSet};

use bosun_engine::log::{Journal, JournalOptions, Shelf};
use bosun_engine::*;

use super::super::finding::Violation;
use super::super::guarantees;
use super::answers::{ClientReply, ClientRequest, SentRequest, is_passing};
use super::found::{FoundRequests, chain_of};
use super::world::{Checked, EngineWorld};

type TurnsOfRuns = BTreeMap<RunId, Vec<Turn>>;

impl EngineWorld<'_> {
    fn read_all(&self) -> Checked<TurnsOfRuns> {
        let mut runs = Vec::new();
        self.worker.journal().scan_runs(&mut |info| {
            runs.push(info.run_id);
            true
        });
        let mut all = TurnsOfRuns::new();
        for run in runs {
            match self.worker.journal().turns(run, EventId(1)) {
                Ok(turns) => drop(all.insert(run, turns)),
                Err(why) => return self.broken("G2", format!("the run {run} cannot be read: {why}")),
            }
        }
        Ok(all)
    }

    /// After a restart, before the first step: everything that anybody has heard of is there.
    pub(super) fn check_kept(&self) -> Checked {
        let all = self.read_all()?;
        self.attempts_are_recorded(&all)?;
        self.answers_are_recorded(&all)
    }

    /// G4: no attempt runs that the log does not know.
    fn attempts_are_recorded(&self, all: &TurnsOfRuns) -> Checked {
        for token in self.tokens.keys() {
            let Some(turns) = all.get(&token.run_id) else {
                if self.deleted.is_empty() {
                    return self.broken("G4", format!("{token} has started, and its run is not in the log"));
                }
                continue;
            };
            let mut events = turns.iter().flat_map(|turn| &turn.events);
            let recorded = events.any(|event| {
                matches!(event, EventKind::ActivityTaskStarted { seq, attempt }
                    if *seq == token.seq && *attempt == token.attempt)
            });
            if !recorded {
                return self.broken("G4", format!("{token} has started, and the log does not say so"));
            }
        }
        Ok(())
    }

    /// G1, G13: what was acknowledged is in the log, once in a chain; what was refused is not.
    fn answers_are_recorded(&self, all: &TurnsOfRuns) -> Checked {
        let found = FoundRequests::of(all);
        for (number, request) in self.requests.iter().enumerate() {
            if request.ask.workflow_id().is_some_and(|id| self.deleted.contains(id)) {
                continue;
            }
            let fail = |why: String| self.broken("G1", format!("client {number}: {why}"));
            match (&request.ask, &request.answer) {
                (_, Some(Ok(reply))) if reply.run_made().is_some_and(|run| !all.contains_key(&run)) => {
                    return fail(format!("the run {:?} was made and is not there", reply.run_made()));
                }
                (ClientRequest::Update { update, .. }, Some(Ok(ClientReply::Updated(told)))) => {
                    let held = found.updates.get(&update.update_id);
                    // One id may name an update of several runs.
                    let kept = match (held, told) {
                        (Some(_), UpdateOutcome::Accepted) => true,
                        (Some(held), UpdateOutcome::Completed(told)) => held.contains(&told),
                        (None, _) => false,
                    };
                    if !kept {
                        return fail(format!("the answer {told:?} was given, the log holds {held:?}"));
                    }
                }
                (_, Some(Ok(ClientReply::Ended(ended)))) => {
                    let held = all.get(&ended.run_id).map(|turns| guarantees::end_of(turns));
                    if held != Some(Some(ended.outcome.clone())) {
                        return fail(format!("the end {:?} was told, the log holds {held:?}", ended.outcome));
                    }
                }
                _ => {}
            }
            let Some(id) = request.ask.request_id() else { continue };
            let times = found.requests.get(id).map_or(0, |chains| chains.values().copied().max().unwrap_or(0));
            if times > 1 {
                return self.broken("G13", format!("client {number}: {id} was applied {times} times"));
            }
            let there = times == 1 || found.kept.contains(id);
            // A cancel of a run that is canceled already is answered, and not written again.
            let is_signal = !matches!(request.ask, ClientRequest::Cancel { .. });
            if matches!(request.answer, Some(Ok(_))) && is_signal && !there {
                return fail(format!("{id} was acknowledged and is not in the log"));
            }
            if self.only_refused(request) && there {
                return self.broken("G1", format!("client {number}: {id} was refused, and is in the log"));
            }
        }
        Ok(())
    }

    /// Whether every sending of this request was refused for good.
    fn only_refused(&self, request: &SentRequest) -> bool {
        let same = |other: &&SentRequest| other.ask.request_id() == request.ask.request_id();
        self.requests.iter().filter(same).all(|sent| matches!(&sent.answer, Some(Err(why)) if !is_passing(why)))
    }

    /// When faults have stopped and nothing moves.
    pub(super) fn check_at_rest(&mut self) -> Checked {
        let all = self.read_all()?;
        self.check_histories(&all)?;
        self.attempts_are_recorded(&all)?;
        self.answers_are_recorded(&all)?;
        self.order_of_signals(&all)?;
        self.nothing_under_way()?;
        let before = self.descriptions(&all)?;
        self.stop_and_start()?;
        self.settle()?;
        let after = self.read_all()?;
        if let Some((run, turns)) = all.iter().find(|(run, turns)| after.get(run) != Some(turns)) {
            let now = after.get(run).map(|turns| turns.iter().skip(turns.len().saturating_sub(2)).collect::<Vec<_>>());
            let last = turns.last();
            let why = format!("a restart at rest has changed the run {run}: it ended with {last:?}, now with {now:?}");
            return self.broken("G6", why);
        }
        let again = self.descriptions(&after)?;
        if let Some((run, was)) = before.iter().find(|(run, was)| again.get(run) != Some(was)) {
            let why = format!("a restart at rest has changed what is shown of {run}:\n  {was}\n  {:?}", again.get(run));
            return self.broken("G6", why);
        }
        self.index_fits_the_log(&after)
    }

    fn check_histories(&self, all: &TurnsOfRuns) -> Checked {
        let code = &self.plan.code[self.version];
        let mut open = BTreeSet::new();
        for (run, turns) in all {
            if let Err(finding) = guarantees::of_history(turns) {
                let (id, why) = match finding {
                    Violation::Guarantee { id, why } => (id, why),
                    other => ("G11", other.to_string()),
                };
                return self.broken(id, format!("run {run}: {why}"));
            }
            let started = guarantees::start_of(turns);
            let known = started.is_some_and(|started| code.contains(&started.workflow_type));
            if known && let Err(why) = bosun_engine::workflow::replay(code, turns) {
                return self.broken("G21", format!("run {run} does not replay: {why}"));
            }
            if let Err(why) = crate::History::new(turns.clone()) {
                return self.broken("E38", format!("run {run} is no history that an import takes: {why}"));
            }
            let ended = turns.iter().flat_map(|turn| &turn.events).any(|event| event.closes().is_some());
            if let (false, Some(started)) = (ended, started)
                && !open.insert(started.workflow_id.clone())
            {
                return self.broken("G17", format!("{} has two open runs", started.workflow_id));
            }
            if self.deleted.is_empty() {
                self.chain_goes_on(all, turns)?;
            }
        }
        if self.deleted.is_empty() { self.signals_between_runs(all) } else { Ok(()) }
    }

    /// G13, G18: in one chain no signal of a run arrives more often than it was sent. (A signal that is sent again after
    /// a crash may find another chain open under the workflow id, which has not seen it.)
    fn signals_between_runs(&self, all: &TurnsOfRuns) -> Checked {
        let mut sent: BTreeMap<&WorkflowId, u64> = BTreeMap::new();
        let mut arrived: BTreeMap<(&WorkflowId, RunId), u64> = BTreeMap::new();
        for (run, turns) in all {
            let Some(started) = guarantees::start_of(turns) else { continue };
            let chain = chain_of(all, *run);
            for event in turns.iter().flat_map(|turn| &turn.events) {
                match event {
                    EventKind::SignalExternalWorkflowExecutionInitiated(signal) => {
                        *sent.entry(&signal.target.workflow_id).or_default() += 1;
                    }
                    EventKind::WorkflowExecutionSignaled(signal)
                        if signal.request_id.as_ref().is_none_or(|id| !id.as_str().starts_with("client-")) =>
                    {
                        *arrived.entry((&started.workflow_id, chain)).or_default() += 1;
                    }
                    _ => {}
                }
            }
        }
        let mut arrived = arrived.into_iter();
        match arrived.find(|((id, _), times)| *times > sent.get(id).copied().unwrap_or_default()) {
            Some(((id, _), times)) => {
                let why = format!("{times} signals of runs have arrived at {id}, {:?} were sent", sent.get(id));
                self.broken("G13", why)
            }
            None => Ok(()),
        }
    }

    /// G18: a run that says that another follows is followed by it; a child of a closed parent was told.
    fn chain_goes_on(&self, all: &TurnsOfRuns, turns: &[Turn]) -> Checked {
        let next = turns.iter().flat_map(|turn| &turn.events).find_map(|event| match event {
            EventKind::WorkflowExecutionContinuedAsNew(next) => Some(next.new_run),
            EventKind::WorkflowExecutionFailed { new_run, .. }
            | EventKind::WorkflowExecutionTimedOut { new_run, .. } => *new_run,
            EventKind::WorkflowExecutionTerminated { reset, .. } => reset.as_ref().map(|into| into.run_id),
            _ => None,
        });
        match next.filter(|next| !all.contains_key(next)) {
            Some(next) => self.broken("G18", format!("the run {next} was to follow and is not there")),
            None => Ok(()),
        }
    }

    /// G13: of two signals of one sender to one workflow id, where the first was answered before the second was sent,
    /// the first comes first.
    fn order_of_signals(&self, all: &TurnsOfRuns) -> Checked {
        let found = FoundRequests::of(all);
        let sent = || self.requests.iter().filter(|request| matches!(request.ask, ClientRequest::Signal { .. }));
        for first in sent().filter(|request| matches!(request.answer, Some(Ok(_)))) {
            for second in sent().filter(|second| second.sent > first.answered) {
                let place = |request: &SentRequest| request.ask.request_id().and_then(|id| found.places.get(id));
                let (Some(a), Some(b)) = (place(first), place(second)) else { continue };
                // In each chain that has both.
                let turned = a.iter().any(|a| b.iter().any(|b| a.0 == b.0 && a > b));
                let repeated = |request: &SentRequest| {
                    self.requests.iter().filter(|r| r.ask.request_id() == request.ask.request_id()).count() > 1
                };
                if turned && !repeated(first) && !repeated(second) {
                    return self.broken("G13", format!("{:?} comes after {:?}", first.ask, second.ask));
                }
            }
        }
        Ok(())
    }

    /// G16, G36: at rest no attempt runs, no slot is taken, no run is held, and open runs wait for something.
    fn nothing_under_way(&self) -> Checked {
        let (free, waiting) = self.worker.slots();
        let under_way = self.lost.len();
        if waiting > 0 || free + under_way != self.shape.slots {
            let why = format!("at rest {free} of {} slots are free, {waiting} attempts wait", self.shape.slots);
            return self.broken("G36", why);
        }
        for (run, _, workflow_id, outlook) in self.worker.journal().open_runs() {
            if let Some(why) = self.worker.held_why(run) {
                return self.broken("G22", format!("{workflow_id} is held: {why}"));
            }
            if outlook.next_deadline.is_some() {
                return self.broken("G14", format!("{workflow_id} has a deadline, and nothing is due"));
            }
        }
        match self.worker.journal().closed_with_messages().first() {
            Some((_, _, workflow_id)) => self.broken("G18", format!("messages of {workflow_id} have not arrived")),
            None => Ok(()),
        }
    }

    /// What is shown of every run.
    fn descriptions(&mut self, all: &TurnsOfRuns) -> Checked<BTreeMap<RunId, String>> {
        let mut shown = BTreeMap::new();
        for (run, turns) in all {
            let Some(started) = guarantees::start_of(turns) else { continue };
            let target = Target::run(started.workflow_id.clone(), *run);
            let number = self.requests.len();
            self.ask(ClientRequest::Describe { target });
            self.settle()?;
            match &self.requests[number].answer {
                Some(Ok(ClientReply::Described(seen))) => {
                    if seen.info.status.is_open() && seen.awaiting.is_empty() && !self.is_machine(&seen.info) {
                        let why = format!("{} is open and waits for nothing that has a name", seen.info.workflow_id);
                        return self.broken("G16", why);
                    }
                    let mut seen = seen.clone();
                    // A state that comes from a snapshot does not know which line asked.
                    seen.awaiting.iter_mut().for_each(|awaited| awaited.location = None);
                    drop(shown.insert(*run, format!("{seen:?}")));
                }
                other => return self.broken("G6", format!("the run {run} cannot be described: {other:?}")),
            }
        }
        Ok(shown)
    }

    fn is_machine(&self, info: &RunInfo) -> bool {
        self.plan.code[self.version].supports_snapshot(&info.workflow_type)
    }

    /// G2: the log is sound, and the index is what a rebuild from the log makes.
    fn index_fits_the_log(&self, all: &TurnsOfRuns) -> Checked {
        let report = self.worker.journal().verify();
        if !report.is_sound() {
            return self.broken("G2", format!("the log is not sound: {report:?}"));
        }
        let bare = self.log.kill();
        for shelf in Shelf::ALL.into_iter().filter(|shelf| !matches!(shelf, Shelf::Archive | Shelf::Deleted)) {
            bare.damage_shelf(shelf, |_, _| false);
        }
        let options = JournalOptions { log_keep_bytes: u64::MAX, ..JournalOptions::default() };
        let rebuilt = match Journal::open(std::sync::Arc::new(bare), options) {
            Ok(rebuilt) => rebuilt,
            Err(why) => return self.broken("G2", format!("the index cannot be rebuilt: {why}")),
        };
        for run in all.keys() {
            let (kept, made) = (self.worker.journal().run(*run), rebuilt.run(*run));
            if kept != made {
                let why = format!("the index holds {kept:?}, and the log makes {made:?}");
                return self.broken("G2", why);
            }
        }
        Ok(())
    }

    /// When every run is over.
    pub(super) fn check_at_the_end(&mut self) -> Checked<TurnsOfRuns> {
        let all = self.read_all()?;
        self.check_histories(&all)?;
        self.answers_are_recorded(&all)?;
        self.nothing_under_way()?;
        if let Some(at) = self.worker.next_moment() {
            return self.broken("G16", format!("every run is over, and something is due at {at}"));
        }
        self.pages_are_the_history(&all)?;
        Ok(all)
    }

    /// E33: a history that is read in pages is the history.
    fn pages_are_the_history(&self, all: &TurnsOfRuns) -> Checked {
        for (run, turns) in all.iter().take(2) {
            let Some(started) = guarantees::start_of(turns) else { continue };
            let target = Target::run(started.workflow_id.clone(), *run);
            let whole: Vec<Event> = turns.iter().flat_map(Turn::numbered).collect();
            let mut paged: Vec<Event> = Vec::new();
            loop {
                let from = EventId(paged.last().map_or(1, |event| event.id.0 + 1));
                let client = self.worker.client();
                let page = self.worker.block_on(client.history(&target, from, 3));
                match page {
                    Some(Ok(page)) if page.is_empty() => break,
                    Some(Ok(page)) if paged.len() <= whole.len() => paged.extend(page),
                    other => return self.broken("G2", format!("the history of {run} cannot be paged: {other:?}")),
                }
            }
            if paged != whole {
                return self.broken("G2", format!("the pages of {run} are not its history: {paged:?}"));
            }
        }
        Ok(())
    }
}
