//! Background processes: delegations that nobody waits for. They are sessions of this run: durable, and they can be
//! looked at and ended.
//!
//! Invariant: no more run at once than the rules allow; one that was killed stays killed, whatever it would have answered.
//! Finished ones make room, the oldest first. Ids are counted, so a replay gives the same. Nobody is told by
//! itself that a process has failed: as long as no agent has looked, the report tells it, and the run is no success, since
//! whoever gave the work away may have gone on as if it were done. An agent that was told decides what that means.

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::agent_loop::{AgentLoop, Workload};
use super::delegation::{backgrounded, beginning};
use super::message::{Message, Variables, text_of};
use super::refusal::{ArgumentRefusal, ProcessRefusal, SessionFailure};
use super::session::{Home, ToolOutcome};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::Outbox;

/// How much of a process' output is kept when it has ended.
const OUTPUT_CHARS_MAX: usize = 100_000;
const TASK_CHARS_SHOWN: usize = 200;
const TAIL_DEFAULT: u64 = 100;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Process {
    id: String,
    agent: String,
    task: String,
    session: u32,
    status: ProcessStatus,
    started_at: Timestamp,
    completed_at: Option<Timestamp>,
    /// What it had printed when it ended; until then its session knows.
    output: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessStatus {
    Backgrounded,
    Completed,
    Failed,
    Killed,
}

impl ProcessStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            ProcessStatus::Backgrounded => "backgrounded",
            ProcessStatus::Completed => "completed",
            ProcessStatus::Failed => "failed",
            ProcessStatus::Killed => "killed",
        }
    }
}

impl AgentLoop {
    #[expect(clippy::too_many_arguments, reason = "they are what a child is made of")]
    pub(super) fn start_in_background(
        &mut self,
        seq: u32,
        index: usize,
        name: &str,
        task: &str,
        text: String,
        variables: Variables,
        out: &mut Outbox,
    ) -> ToolOutcome {
        if let Err(full) = self.make_room() {
            return self.failure(full);
        }
        self.select(seq, name);
        let process = self.processes_started.saturating_add(1);
        let place = self.below(seq, index, Home::Process { process });
        let child = self.open(name, place, vec![Message::user(text)], variables, out);
        if let Some(session) = self.sessions.get_mut(&child) {
            task.clone_into(&mut session.task);
        }
        let id = self.register_process(child, name, task, out);
        self.begin_with_memory(child, name, out);
        self.success(&backgrounded(&id, "Process started in background"))
    }

    /// A delegation that takes longer than its caller waits goes on in the background, if there is room.
    pub(super) fn promote(&mut self, child: u32, seconds: &str, out: &mut Outbox) -> ToolOutcome {
        if let Err(full) = self.make_room() {
            self.kill(child, out);
            return self.failure(format!("{full} Process killed after {seconds}s timeout."));
        }
        let process = self.processes_started.saturating_add(1);
        let Some(session) = self.sessions.get_mut(&child) else { return ToolOutcome::default() };
        session.home = Home::Process { process };
        let (name, task) = (session.agent.clone(), session.task.clone());
        let id = self.register_process(child, &name, &task, out);
        let message = format!(
            "Process promoted to background after {seconds}s. Use check_process with '{id}' to see its status."
        );
        self.success(&backgrounded(&id, &message))
    }

    fn register_process(&mut self, session: u32, name: &str, task: &str, out: &mut Outbox) -> String {
        self.processes_started = self.processes_started.saturating_add(1);
        let id = self.process_id(session);
        out.note(NoteKind::ChildStarted, json!({"process_id": id, "agent": name}));
        let process = Process {
            id: id.clone(),
            agent: name.to_owned(),
            task: beginning(task, TASK_CHARS_SHOWN),
            session,
            status: ProcessStatus::Backgrounded,
            started_at: out.now(),
            completed_at: None,
            output: String::new(),
        };
        self.processes.insert(self.processes_started, process);
        id
    }

    /// `agent_1` for the first of a conversation's own agent; below it, and in a list of tasks, also by whom.
    fn process_id(&mut self, session: u32) -> String {
        let parent = self.sessions.get(&session).and_then(|session| session.parent);
        let conversation = matches!(self.work, Workload::Conversation { root } if Some(root) == parent);
        match parent.and_then(|parent| self.sessions.get_mut(&parent)) {
            Some(parent) => {
                parent.processes = parent.processes.saturating_add(1);
                if conversation {
                    format!("agent_{}", parent.processes)
                } else {
                    format!("agent_{}_{}", parent.id, parent.processes)
                }
            }
            None => format!("agent_{session}"),
        }
    }

    /// Whether one process more may run in the background.
    pub(super) fn has_room(&self) -> bool {
        self.processes_running() < self.rules.delegation.background_max as usize
    }

    /// Room for one process more: finished ones go first.
    fn make_room(&mut self) -> Result<(), ProcessRefusal> {
        let max = self.rules.delegation.background_max;
        while self.processes.len() >= max as usize {
            let done = self.processes.iter().find(|(_, process)| process.status != ProcessStatus::Backgrounded);
            let Some(done) = done.map(|(number, _)| *number) else {
                return Err(ProcessRefusal::Full(max));
            };
            self.processes.remove(&done);
        }
        Ok(())
    }

    /// A process ended by itself. One that was killed stays killed.
    pub(super) fn process_ended(
        &mut self,
        number: u32,
        session: u32,
        result: &Result<String, SessionFailure>,
        out: &mut Outbox,
    ) {
        let printed = self.sessions.get(&session).map(super::session::Session::output).unwrap_or_default();
        let Some(process) = self.processes.get_mut(&number) else { return };
        if process.status != ProcessStatus::Backgrounded {
            return;
        }
        process.status = if result.is_ok() { ProcessStatus::Completed } else { ProcessStatus::Failed };
        if let Err(why) = result {
            let text = format!("Process {} ({}) failed: {why}", process.id, process.agent);
            self.failed_below.insert(process.id.clone(), text);
            if why.is_refusal() {
                self.refused_below.insert(process.id.clone());
            }
        }
        process.completed_at = Some(out.now());
        let text = match result {
            Ok(_) => printed,
            Err(why) => format!("{printed}\nError: {why}").trim_start().to_owned(),
        };
        let excess = text.chars().count().saturating_sub(OUTPUT_CHARS_MAX);
        process.output = text.chars().skip(excess).collect();
        out.note(NoteKind::ChildClosed, json!({"process_id": process.id, "status": process.status.as_str()}));
        let worked =
            result.as_ref().is_ok_and(|text| self.sessions.get(&session).is_some_and(|of| of.has_something(text)));
        if worked {
            self.given_to_all_above(session);
        }
        if let Some(parent) = self.sessions.get(&session).and_then(|session| session.parent) {
            self.note_denial(parent, session, result, worked);
        }
    }

    /// Nobody waits for a process: whoever is above it has what it brought.
    fn given_to_all_above(&mut self, session: u32) {
        let mut above = self.sessions.get(&session).and_then(|session| session.parent);
        while let Some(parent) = above.and_then(|seq| self.sessions.get_mut(&seq)) {
            parent.gave = true;
            above = parent.parent;
        }
    }

    /// Ends a process: what was done, or why not.
    pub fn kill_process(&mut self, id: &str, out: &mut Outbox) -> Result<String, ProcessRefusal> {
        let printed = self.printed(id).ok_or_else(|| not_found(id))?;
        let process = self.processes.values_mut().find(|process| process.id == id).ok_or_else(|| not_found(id))?;
        if process.status != ProcessStatus::Backgrounded {
            return Err(ProcessRefusal::NotRunning { id: id.to_owned(), status: process.status.as_str() });
        }
        process.status = ProcessStatus::Killed;
        process.completed_at = Some(out.now());
        process.output = printed;
        let session = process.session;
        out.note(NoteKind::ChildClosed, json!({"process_id": id, "status": "killed"}));
        self.kill(session, out);
        Ok(format!("Process {id} killed"))
    }

    pub(super) fn kill_all_processes(&mut self, out: &mut Outbox) {
        let running: Vec<String> = self
            .processes
            .values()
            .filter(|process| process.status == ProcessStatus::Backgrounded)
            .map(|process| process.id.clone())
            .collect();
        for id in running {
            // It was running a moment ago.
            let _ = self.kill_process(&id, out);
        }
    }

    /// How many processes run.
    pub fn processes_running(&self) -> usize {
        self.processes.values().filter(|process| process.status == ProcessStatus::Backgrounded).count()
    }

    pub fn list_processes(&self, include_completed: bool) -> Vec<Value> {
        let shown = |process: &&Process| include_completed || process.status == ProcessStatus::Backgrounded;
        let line = |process: &Process| {
            json!({"process_id": process.id, "type": "agent", "status": process.status.as_str(), "pid": null,
                   "agent": process.agent})
        };
        self.processes.values().filter(shown).map(line).collect()
    }

    pub fn check_process(&self, id: &str) -> Result<Value, ProcessRefusal> {
        let process = self.processes.values().find(|process| process.id == id).ok_or_else(|| not_found(id))?;
        let exit_code = match process.status {
            ProcessStatus::Backgrounded | ProcessStatus::Killed => None,
            ProcessStatus::Completed => Some(0),
            ProcessStatus::Failed => Some(1),
        };
        Ok(json!({
            "process_id": process.id,
            "type": "agent",
            "status": process.status.as_str(),
            "pid": null,
            "started_at": process.started_at.to_string(),
            "completed_at": process.completed_at.map(|at| at.to_string()),
            "exit_code": exit_code,
            "metadata": {"agent_name": process.agent, "task": process.task},
        }))
    }

    /// The last lines that a process has printed.
    pub fn get_process_output(&self, id: &str, tail: u64) -> Result<String, ProcessRefusal> {
        let printed = self.printed(id).ok_or_else(|| not_found(id))?;
        let lines: Vec<&str> = printed.lines().collect();
        let from = lines.len().saturating_sub(usize::try_from(tail).unwrap_or(usize::MAX));
        Ok(lines[from..].join("\n"))
    }

    fn printed(&self, id: &str) -> Option<String> {
        let process = self.processes.values().find(|process| process.id == id)?;
        match (process.status, self.sessions.get(&process.session)) {
            (ProcessStatus::Backgrounded, Some(session)) => Some(session.output()),
            _ => Some(process.output.clone()),
        }
    }

    /// One of the four process tools.
    pub(super) fn process_tool(&mut self, tool: &str, args: &Map<String, Value>, out: &mut Outbox) -> ToolOutcome {
        let said = |field: &str| args.get(field).filter(|value| !value.is_null());
        if said("include_completed").is_some_and(|value| !value.is_boolean()) {
            return self.failure(ArgumentRefusal::Needed { field: "include_completed", wanted: "true or false" });
        }
        if said("tail").is_some_and(|value| !value.is_u64()) {
            return self.failure(ArgumentRefusal::Needed { field: "tail", wanted: "a number of lines" });
        }
        if tool == "list_processes" {
            let all = args.get("include_completed").and_then(Value::as_bool).unwrap_or(false);
            if all {
                // Those that have made room for others are not shown.
                let shown: Vec<&String> = self.processes.values().map(|process| &process.id).collect();
                self.failed_below.retain(|id, _| !shown.contains(&id));
            }
            return self.success(&Value::Array(self.list_processes(all)));
        }
        let id = args.get("process_id").map(text_of).unwrap_or_default();
        if id.is_empty() {
            return self.failure("process_id is required");
        }
        let result = match tool {
            "check_process" => self.check_process(&id),
            "kill_process" => self.kill_process(&id, out).map(Value::String),
            _ => {
                let tail = args.get("tail").and_then(Value::as_u64).unwrap_or(TAIL_DEFAULT);
                self.get_process_output(&id, tail).map(|text| json!({"output": text}))
            }
        };
        // Whatever is answered, whoever asks is told that it has failed, also where it has made room for others.
        let failed = self.failed_below.remove(&id);
        match (result, failed) {
            (Ok(data), _) => self.success(&data),
            (Err(why @ ProcessRefusal::NotFound(_)), Some(failed)) => {
                self.failure(format!("{why}: it has made room for others. {failed}"))
            }
            (Err(why), _) => self.failure(why),
        }
    }
}

fn not_found(id: &str) -> ProcessRefusal {
    ProcessRefusal::NotFound(id.to_owned())
}
