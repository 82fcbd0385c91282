//! The error codes: one table of what each means, which exit code it gives, and what to do.
//!
//! Invariant: a number never changes its meaning and is never used again. `bosun explain BOSUN0007` prints from here.

use bosun_engine::workflow::NonDeterminism;
use bosun_engine::{FIRST_TURN_BACKS_OFF, QueryError, RUN_IS_PAUSED, Rejection, START_IS_DELAYED};
use serde_json::json;

use super::error::CliError;
use super::exit::{EXITS, Exit};
use super::output::Screen;
use super::reach::Reach;

/// One entry of the table.
pub struct ErrorEntry {
    pub code: Code,
    pub number: u16,
    pub exit: Exit,
    pub title: &'static str,
    pub text: &'static str,
}

macro_rules! codes {
    ($($name:ident $number:literal $exit:ident $title:literal $text:literal;)*) => {
        /// What went wrong, by name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code { $($name,)* }

        /// Every code there is.
        pub const CODES: &[ErrorEntry] = &[$(
            ErrorEntry { code: Code::$name, number: $number, exit: Exit::$exit, title: $title, text: $text },
        )*];
    };
}

codes! {
    Failed 1 Error "the command failed"
        "Something outside of Bosun went wrong: a file could not be read or written, or an answer made no sense. The message \
         says what happened; mend that, and give the command again.";
    Usage 2 Usage "the command line is wrong"
        "An argument is missing, unknown or cannot be read. `bosun help VERB` shows what a verb takes.";
    NotFound 3 NotFound "no such workflow execution"
        "No run has this workflow id. `bosun list` shows the newest runs. A positional id may also be `latest`, `@1`, a \
         run id, or the beginning of a workflow id when only one fits. Look whether --data (or BOSUN_STORE) names the \
         directory you mean.";
    Ambiguous 4 NotFound "more than one workflow execution fits"
        "The text is the beginning of several workflow ids. Write more of it, or give the whole id with -w.";
    Closed 5 Error "the run is closed"
        "A run that has ended takes no signals, updates or cancellations. `bosun describe ID` shows how it ended.";
    AlreadyOpen 6 Refused "a run of this workflow id is open"
        "Only one run of a workflow id is open at a time. Use another id, end the open run, or start with \
         --id-conflict-policy use-existing or terminate-existing.";
    StoreLocked 7 Unreachable "another process holds the store"
        "One process owns a data directory. A running worker writes DIR/worker.json, through which commands reach it; \
         this time there was no such file, or nobody answered at its address. Another bosun command may be about to \
         finish, or a worker may be starting: try again. `fuser DIR/*` shows who it is.";
    Unreachable 8 Unreachable "the worker cannot be reached"
        "Nothing answers at the address of the control API. Look whether the worker runs; without --address, commands \
         work on the data directory directly when no worker holds it.";
    Unauthorized 9 Refused "the worker does not accept the token"
        "The token is made at the first start of a worker and lies in DIR/token, readable by its owner only. Run as that \
         user, or name the file with --token-file or BOSUN_TOKEN_FILE.";
    IdReused 10 Refused "the id reuse policy refuses this start"
        "A closed run of this workflow id exists, and the policy of the request does not allow another. Use another id, \
         or --id-reuse-policy allow-duplicate.";
    UnknownWorkflowType 11 Error "the worker does not know this workflow type"
        "Workflow types are registered in the program that runs the worker. The stock `bosun` has the built-in ones; your \
         own come with your own binary (`App::new().workflow::<MyFlow>().main()`).";
    UpdateRefused 12 Refused "the workflow refused the update"
        "The validator of the update said no; nothing was recorded. The message is the workflow's own.";
    UnknownActivity 13 NotFound "no such pending activity"
        "The run has no activity of this id that is still pending. `bosun describe ID` lists the pending ones.";
    StaleAttempt 14 Error "the attempt is over"
        "A task token names one attempt of one activity. That attempt has timed out, was canceled, or another has begun; \
         its outcome no longer counts.";
    AlreadyPaused 15 Error "the run is already paused"
        "Nothing was done. `bosun resume ID` resumes the run.";
    NotPaused 16 Error "the run is not paused"
        "Nothing was done.";
    InboxFull 17 Error "the inbox of the run is full"
        "Too many inputs wait for this run, most likely because it is paused or held. Nothing of this request was \
         recorded; send it again later.";
    Overloaded 18 Error "the worker has too much to do"
        "The worker refuses new work rather than running out of memory. Nothing of this request was recorded; send it \
         again after the time it named.";
    PayloadTooLarge 19 Error "the payload is too large"
        "Inputs and results have a limit (2 MiB unless configured). Pass a reference to the data instead. On a Temporal \
         cluster, --payload-store DIR keeps larger payloads as files of a directory that its workers and clients share.";
    Invalid 20 Usage "the request is invalid"
        "The engine cannot carry this request out in any state. The message names the part.";
    Held 21 NonDeterminism "the run is held"
        "The workflow code does not fit the recorded history, is missing, panics, or cannot read what was recorded. Inputs \
         are still accepted durably. Deploy code that fits (the old code, new code with `patched`, or code without the \
         defect) and the run goes on. `bosun describe ID` shows the difference or the defect, and `bosun list -q 'Held = \
         true'` all runs that are held.";
    ShuttingDown 22 Unreachable "the worker is shutting down"
        "The worker drains and takes no new work. Try again when it is back.";
    StorageFailed 23 StorageFailed "the log has failed"
        "Reading or writing the data directory failed. What was acknowledged before is durable; nothing is acknowledged \
         after. See to the disk, then start the worker again: it goes on where it was. `bosun store verify` checks it.";
    StorageFull 24 Error "the disk is full"
        "Nothing new is begun until there is space; what is stored is intact, and runs that are under way go on or wait. The \
         worker goes on by itself when there is space again.";
    UnknownQuery 25 NotFound "the workflow does not answer this query"
        "The message lists the queries it answers.";
    QueryFailed 26 Error "the query failed"
        "The query handler of the workflow gave an error; the run itself is not changed by a query.";
    QueryMutated 27 NonDeterminism "a query handler changed the workflow"
        "Queries must only read. The change was thrown away; the handler has to be corrected.";
    Corrupt 28 HistoryUnreadable "the store is damaged"
        "A checksum, the hash chain or the tail anchor does not fit. The message names the place. Bosun never goes on \
         with less history than was acknowledged. `bosun store verify` says which runs were hit; `bosun worker run \
         --on-damage isolate` holds those and goes on with all others, `bosun store salvage` does so in a new directory, \
         and `bosun store restore` brings a backup back.";
    Unsupported 29 HistoryUnreadable "the store was written by a version this one cannot read"
        "Use the version that wrote it, or a newer one.";
    StillOpen 30 Error "the run has not closed yet"
        "The time given with --timeout ran out, or no worker runs that could carry the run on. The run itself is not \
         affected.";
    BadInput 31 Usage "the input cannot be read"
        "Inputs are JSON (`--input '{\"a\": 1}'`), a file (`--input @file.json`), standard input (`--input -`), or \
         `key=value` pairs, whose values are JSON where they can be and text otherwise.";
    BadPlan 32 Usage "the plan cannot be read"
        "The YAML file is not a valid plan. The message names the field. The form is strict: unknown keys are errors.";
    NotConfirmed 33 Refused "not confirmed"
        "This cannot be undone, so it has to be confirmed: answer the question with y, or add --yes.";
    ApiRefused 34 Error "the control API refused the request"
        "The worker answered, but not as this version expects. `bosun version` and the version in DIR/worker.json show \
         whether both are of one release.";
    PlanFailed 35 WorkflowFailed "the plan did not succeed"
        "The run has ended and its report says which tasks failed and why.";
    Interrupted 36 Interrupted "interrupted"
        "Waiting was interrupted. What was recorded stays: a run on a worker goes on by itself, one that ran in this \
         process goes on when the same command is run again.";
    CannotServe 37 Error "the worker cannot serve its control API"
        "The address is taken, not this machine's, or not a loopback address. Beyond loopback a token file has to be \
         named with --token-file.";
    NoStore 38 NotFound "there is no store"
        "The data directory does not exist, and this verb does not make one. `bosun start`, `run`, `execute` and \
         `worker run` do. Look whether --data (or BOSUN_STORE) names the directory you mean.";
    UnreadableHistory 39 HistoryUnreadable "the history cannot be read"
        "The file is not a history, was written by a newer version, or is damaged; the cause names the place. A redacted \
         history can be viewed and compared, not replayed; so can an export of Temporal's of a workflow whose code this \
         program does not have.";
    DoesNotFit 40 NonDeterminism "the workflow code does not fit the history that was to be forked"
        "A fork begins with the history of another run, and this program's code asks for something else than that history \
         holds. Nothing was written. Fork with the code that wrote the history, guard the change with `patched`, or fork \
         at an earlier event (--at). `bosun replay what-if` shows where changed code would decide otherwise.";
    NoHistories 41 NotFound "no history to replay"
        "The pattern matches no file, or the query finds no run. A gate that checks nothing would always pass, so this is \
         an error. Look at the working directory, at the quotes around the pattern, and at --data (or BOSUN_STORE).";
    Parked 42 WaitingOnHuman "the run waits for a person"
        "Nothing goes on before somebody answers. The run stays open: answer, and the same command goes on with it. \
         --no-wait asked for this return, or `review.park_exit` in the spec.";
    Forbidden 43 Refused "the token may not do this"
        "Tokens have roles: a viewer looks, an approver answers what runs ask people, an operator starts and steers runs, an \
         owner deletes and copies them; and a token may be for some namespaces only. `bosun token list` shows what each may.";
    Unproven 44 Unreachable "another program answers in place of the worker"
        "Before a command sends its token, the worker proves that it knows it. The program at this address did not: another \
         program has the port, the token is another worker's, or a proxy in between changes the Host. Nothing was sent. Name \
         the worker's own address and token file, with --address and --token-file.";
    NoNamespace 45 NotFound "the namespace has no runs"
        "A namespace is made by the first start in it, and is gone with the last of its runs. Look at the spelling of --namespace (or BOSUN_NAMESPACE).";
    NoKey 46 Refused "a key of the store is missing, or cannot be used"
        "What is stored was encrypted with a key that is not given, or what `store.key` or `store.old_keys` gives is no key, so \
         the store was not opened and nothing was touched. The message says which. Name the key in `store.key`, or in \
         `store.old_keys` if another one took its place; a key is 64 hexadecimal digits (`openssl rand -hex 32`), in a file \
         that only its owner can read. A key that is lost cannot be replaced.";
    RolledBack 47 Refused "the store does not fit its epoch file"
        "The file named by --epoch-file (BOSUN_EPOCH_FILE, `store.epoch_file`) lies outside of the data directory and notes which \
         store it is and how far it reached. The directory ends before that, went on in another way, or is another store; or \
         the file cannot be read. Nothing was changed. If an older copy was put back by mistake, bring the newest back. If it \
         was meant, for example after `bosun store restore`, start once with `bosun worker run --accept-rollback`: what the \
         newer copy had acknowledged is then lost, and the file is written anew.";
    NoFile 48 Usage "a file cannot be read"
        "The file that was named is not there, is a directory, or may not be read by this user; the cause says which. Look at \
         the spelling and at the working directory.";
    BudgetSpent 49 BudgetExhausted "the budget is spent, and the run is paused"
        "The spec says `on_exhausted: ask`, or an agent has reached its own limit. `bosun budget show ID` tells what was spent; \
         `bosun budget top-up ID` with --calls, --tokens or --cost gives more. The run stays open meanwhile.";
    OtherDirectory 50 Refused "the directory holds other things"
        "A store is made in a directory that is new or empty, since it closes that directory to other users and fills it with its \
         files. The one that was named holds files that are no store's, and nothing was made there. Look whether --data (or \
         BOSUN_STORE) names the directory you mean, or name one inside of it.";
    PayloadNotHad 51 HistoryUnreadable "a payload that is kept outside of the cluster cannot be had"
        "Payloads that are too large for a Temporal cluster are kept as files of the directory that --payload-store \
         (BOSUN_PAYLOAD_STORE, `payload_store`) names, by their hash, and the cluster has references to them. The message names \
         the run and the file: it is missing, was changed, is encrypted with a key that is not given, or cannot be read or \
         written. Mount the directory, name it or the key, or put the file back from a copy; the run goes on by itself then.";
    HeldOff 52 Error "the run takes no updates now"
        "Somebody has paused the run, its start is delayed, or its code waits for its next attempt: an update has nobody who could \
         accept it, and was not kept. Its code fits; nothing is wrong with it. Send it again when the run goes on (`bosun resume \
         ID` ends a pause), or send a signal, which waits.";
}

/// What cards of the engine are called: no errors of a command, but what holds a run, fails a check or is an alarm.
const CARDS: [(u16, &str, &str, Exit); 3] = [
    (101, "workflow code no longer matches history", MISMATCH, Exit::NonDeterminism),
    (102, "workflow code has a defect", DEFECT, Exit::Ok),
    (103, "a snapshot of workflow state loses something", SNAPSHOT, Exit::Ok),
];

const DEFECT: &str = "Workflow code panicked, could not read or write a payload, or waited for something outside of its context. The \
     card says which, where, and what to do. Nothing of that turn is written, and the run is held: what comes for it is kept. \
     Start the worker with mended code, and it goes on from where it is; `resume` tries the same code again, and `terminate` \
     ends the run. `list --query \"Held = true\"` shows the runs that are held. A program may say that such runs fail instead \
     (`DefectPolicy::Fail`).";

const SNAPSHOT: &str = "A run came back from a snapshot of its state, its history was replayed beside it, and they differ: a \
     field of the state is not written, or not read, as it was. The card names the field where it can. History leads: the run \
     that was compared is right, and snapshots of this type are not used until the worker starts again. Let serde write every \
     field on which anything depends. Runs that went on from a snapshot before may hold wrong results.";

const MISMATCH: &str = "The code of this program, replayed over what a run has recorded, asks for something that the history does not hold. The \
     card names the event, what history holds, what the code asked for and at which line, and suggests a patch. A run that does \
     not fit is held: it accepts inputs, and nothing is appended until code that fits is deployed. To change code of open \
     runs, keep the old path for runs that have recorded it, and take the new one in new runs: `if ctx.patched(\"id\") { new } else { old }`. If \
     nothing was changed, the code depends on something that is not in history: a clock, random numbers, the environment, an \
     unordered map, a static. `bosun replay check --open` says before a deploy which runs do not fit, and `bosun replay \
     fuzz TYPE` and the determinism tests of bosun-replay find the cause.";

impl Code {
    pub fn entry(self) -> &'static ErrorEntry {
        // The table is made with the enum, in its order.
        &CODES[self as usize]
    }
    pub fn exit(self) -> Exit {
        self.entry().exit
    }

    pub fn of_rejection(rejection: &Rejection) -> Code {
        match rejection {
            Rejection::NotFound { .. } => Code::NotFound,
            Rejection::Closed { .. } => Code::Closed,
            Rejection::AlreadyOpen { .. } => Code::AlreadyOpen,
            Rejection::IdReused { .. } => Code::IdReused,
            Rejection::UnknownWorkflowType { .. } => Code::UnknownWorkflowType,
            Rejection::UpdateRefused { .. } => Code::UpdateRefused,
            Rejection::UnknownActivity { .. } => Code::UnknownActivity,
            Rejection::StaleAttempt { .. } => Code::StaleAttempt,
            Rejection::AlreadyPaused => Code::AlreadyPaused,
            Rejection::NotPaused => Code::NotPaused,
            Rejection::InboxFull { .. } => Code::InboxFull,
            Rejection::Overloaded { .. } => Code::Overloaded,
            Rejection::PayloadTooLarge { .. } => Code::PayloadTooLarge,
            Rejection::Invalid { .. } => Code::Invalid,
            Rejection::Held { why }
                if [RUN_IS_PAUSED, START_IS_DELAYED, FIRST_TURN_BACKS_OFF].contains(&why.as_str()) =>
            {
                Code::HeldOff
            }
            Rejection::Held { .. } => Code::Held,
            Rejection::DoesNotFit { .. } => Code::DoesNotFit,
            Rejection::ShuttingDown => Code::ShuttingDown,
            Rejection::StorageFailed { .. } => Code::StorageFailed,
            Rejection::StorageFull { .. } => Code::StorageFull,
            Rejection::Damaged { .. } => Code::Corrupt,
            Rejection::StorageError { .. } => Code::Failed,
            Rejection::Query(QueryError::Unknown { .. }) => Code::UnknownQuery,
            Rejection::Query(QueryError::Failed { .. }) => Code::QueryFailed,
            Rejection::Query(QueryError::Mutated { .. }) => Code::QueryMutated,
        }
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BOSUN{:04}", self.entry().number)
    }
}

/// `bosun explain CODE`: an error code, or `exit-codes`. Works without a store.
pub fn explain(screen: &mut Screen, what: &str) -> Result<Exit, CliError> {
    if what == "exit-codes" {
        let list: Vec<_> = EXITS.iter().map(|(_, number, text)| json!({ "exit": number, "meaning": text })).collect();
        screen.object("exit-codes", json!({ "exit_codes": list }));
        for (_, number, meaning) in EXITS {
            screen.line(format!("{number:>4}  {meaning}"));
        }
        return Ok(Exit::Ok);
    }
    let digits = what.to_ascii_uppercase();
    let number: Option<u16> = digits.strip_prefix("BOSUN").unwrap_or(&digits).parse().ok();
    if let Some((number, title, text, exit)) = CARDS.iter().find(|card| Some(card.0) == number) {
        tell(screen, &format!("BOSUN{number:04}"), title, text, exit.number());
        return Ok(Exit::Ok);
    }
    let entry = CODES.iter().find(|entry| Some(entry.number) == number).ok_or_else(|| {
        CliError::new(Code::Usage, format!("there is no error code {what:?}")).help(format!(
            "the codes are {} to {}, and {} to BOSUN{:04}; `exit-codes` lists the exit codes",
            CODES[0].code,
            CODES[CODES.len() - 1].code,
            NonDeterminism::CODE,
            CARDS[CARDS.len() - 1].0
        ))
    })?;
    tell(screen, &entry.code.to_string(), entry.title, entry.text, entry.exit.number());
    Ok(Exit::Ok)
}

fn tell(screen: &mut Screen, code: &str, title: &str, text: &str, exit: u8) {
    screen.object("explain", json!({ "code": code, "title": title, "text": text, "exit": exit }));
    screen.line(format!("{code}: {title}"));
    screen.line(String::new());
    screen.line(Reach::default().complete(text));
    screen.line(String::new());
    screen.line(format!("exit code {exit}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_number_of_its_own_and_an_explanation() {
        for (i, entry) in CODES.iter().enumerate() {
            assert_eq!(usize::from(entry.number), i + 1, "numbers are consecutive: {}", entry.title);
            assert_eq!(entry.code as usize, i);
            assert!(entry.title.len() > 8 && entry.text.len() > 14, "{} is explained", entry.code);
            assert!(!entry.text.contains("  "), "{}: broken line joins", entry.code);
        }
        assert_eq!(Code::StoreLocked.to_string(), "BOSUN0007");
    }

    #[test]
    fn explain_prints_the_entry_and_refuses_unknown_codes() {
        let (mut screen, output) = Screen::captured();
        assert_eq!(explain(&mut screen, "bosun0007").unwrap(), Exit::Ok);
        assert!(output.stdout().starts_with("BOSUN0007: another process holds the store\n\nOne process owns"));
        assert!(output.stdout().ends_with("exit code 31\n"));
        let why = explain(&mut screen, "BOSUN9999").unwrap_err();
        assert_eq!(why.code.exit().number(), 2);
    }

    /// The codes that stand in a source, without those of its tests.
    fn codes_in(folder: &std::path::Path, found: &mut std::collections::BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "tests" {
                codes_in(&path, found);
            } else if name.ends_with(".rs") && !name.contains("tests") {
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap();
                for (at, _) in code.match_indices("BOSUN") {
                    let digits: String = code[at + 5..].chars().take_while(char::is_ascii_digit).collect();
                    if digits.len() == 4 {
                        found.insert(format!("BOSUN{digits}"));
                    }
                }
            }
        }
    }

    /// A run that is paused or has not begun fits its code: whoever updates it is not told otherwise by the exit code.
    #[test]
    fn an_update_that_nobody_takes_now_is_no_non_determinism() {
        for why in [RUN_IS_PAUSED, START_IS_DELAYED, FIRST_TURN_BACKS_OFF] {
            let code = Code::of_rejection(&Rejection::Held { why: why.to_owned() });
            assert_eq!((code, code.exit().number()), (Code::HeldOff, 1), "{why}");
        }
        assert_eq!(Code::of_rejection(&Rejection::Held { why: "it panicked".to_owned() }).exit().number(), 20);
    }

    #[test]
    fn every_code_that_the_product_prints_is_explained() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut found: std::collections::BTreeSet<String> = CODES.iter().map(|entry| entry.code.to_string()).collect();
        ["engine/src", "replay/src", "worker/src"].iter().for_each(|folder| codes_in(&root.join(folder), &mut found));
        assert!(found.contains(NonDeterminism::CODE) && found.len() > CODES.len(), "{found:?}");
        for code in found {
            let (mut screen, output) = Screen::captured();
            assert_eq!(explain(&mut screen, &code).unwrap(), Exit::Ok, "{code}");
            assert!(output.stdout().starts_with(&format!("{code}: ")), "{code}: {}", output.stdout());
        }
    }
}
