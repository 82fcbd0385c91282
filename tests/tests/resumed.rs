//! `--resume RUN`: a run that goes on from where another one ended, by the shipped binary. What a spec's `resume` means is
//! tested beside it; here is what the command line makes of a run that is over and of the words beside it.

use std::path::Path;

use crate::supervisor_cli::{run, said};

const SWARM: &str = "
kind: supervisor
preset: swarm-handoff
objective: a boat
agents: [{ name: desk }, { name: sales }]
script:
  - { on: execute_worker, agent: sales, contains: for three days, say: Three days it is. }
  - { on: execute_worker, agent: sales, say: A boat is yours. }
  - { on: execute_worker, agent: desk, say: { tool_calls: [{ name: transfer_to_sales, args: {} }] } }
";

const CHAT: &str = "
kind: supervisor
preset: autogen-groupchat
objective: a trip
speaker: { method: round_robin }
loop: { max_rounds: 2 }
agents: [{ name: ann }, { name: bob }]
script:
  - { on: execute_worker, contains: for three days, say: Three days it is. }
  - { on: execute_worker, say: Rome it is. }
";

fn told(data: &Path, words: &[&str]) -> String {
    let ran = run(data, words);
    assert!(ran.status.success(), "{words:?}: {}", said(&ran));
    said(&ran)
}

/// SWM-06, AGC-14: what is said beside `--resume`, as an objective or as `resume.message`, is what the user says next: whoever
/// ended the run before answers it, and knows what was said before.
#[test]
fn what_is_said_beside_resume_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    for (name, spec, first) in [("swarm", SWARM, "A boat is yours."), ("chat", CHAT, "Rome it is.")] {
        let file = dir.path().join(format!("{name}.yaml"));
        std::fs::write(&file, spec).unwrap();
        let file = file.to_str().unwrap();
        let before = told(&data, &["run", file, "-w", name]);
        assert!(before.contains(first), "{before}");
        for (how, word) in [("objective", "objective=for three days"), ("message", "resume.message=for three days")] {
            let id = format!("{name}-{how}");
            let mut words = vec!["run", file, "-w", &id, "--resume", name];
            words.extend(if how == "message" { vec!["--override", word] } else { vec![word] });
            let after = told(&data, &words);
            assert!(after.contains("Three days it is.") && !after.contains("A boat"), "{id}: {after}");
            let point = told(&data, &["query", &id, "resume_point"]);
            assert!(point.contains(first) && point.contains("for three days"), "{id}: {point}");
        }
    }
}

/// A workflow of steps begins with its first: there is nothing to go on from, and the command says so.
#[test]
fn nothing_goes_on_from_a_workflow_of_steps() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("steps.yaml"));
    let spec = "
kind: supervisor
preset: supyagent-delegation
objective: a note
agents: [{ name: writer }]
steps: [{ agent: writer, task: write it }]
script: [{ on: execute_worker, say: a note }]
";
    std::fs::write(&file, spec).unwrap();
    let file = file.to_str().unwrap();
    told(&data, &["run", file, "-w", "steps"]);
    let refused = run(&data, &["run", file, "-w", "again", "--resume", "steps"]);
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(said(&refused).contains("nothing can go on from its end"), "{}", said(&refused));
}
