//! A program of its own: workflows and activities, with the whole command line around them.
//!
//! Replay, queries and forks need the workflow code, so whoever writes workflows builds a binary from this:
//!
//! ```no_run
//! # use std::process::ExitCode;
//! fn main() -> ExitCode {
//!     bosun_worker::App::new()
//!         .workflow("greeting", |_cx, name: String| async move { Ok(format!("Dear {name}")) })
//!         .activity("greet", |_cx, name: String| async move { Ok(format!("Hello, {name}")) })
//!         .main()
//! }
//! ```
//!
//! Invariant: registering decides nothing; the stock `bosun` binary is this with the built-in supervisors.

use std::future::Future;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use bosun_engine::log::PayloadCodec;
use bosun_engine::workflow::{StateMachine, WfContext, WorkflowRegistry};
use bosun_engine::{
    ActivityContext, ActivityError, ActivityRef, ActivityRegistry, DefectPolicy, Failure, Interceptor, Payload,
    WorkerOptions, WorkflowRef, WorkflowType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::agent::{self, Conversations, WithAgents};
use crate::capability::environment;
use crate::capability::mcp::McpConfig;
use crate::capability::model::{CassetteSession, ModelConfig};
use crate::capability::process::guard;
use crate::capability::{self, CapabilityConfig};
use crate::cli::{self, PlanFile, PlanLoader, PlanRequest, Program, ProgramFace};
use crate::embedded::{OpenedDirectory, Registries};
use crate::examples;
use crate::scene::is_scene_text;
use crate::schedule;
use crate::supervisor::run::{SUPERVISOR, SupervisorInput};
use crate::supervisor::spec::{SupervisorSpec, UnreadFile, Via, ViaModel, is_spec_text, read_spec_in};
use crate::supervisor::team::registry::check_process_depth;
use crate::supervisor::{self, PLAN_RUN, PlanRunInput};

/// The builder of a program.
#[derive(Clone, Default)]
pub struct App {
    registries: Registries,
    plans: Option<PlanLoader>,
    versioned: bool,
    face: ProgramFace,
    conversations: Conversations,
}

impl App {
    /// A program without workflows and activities; [`Self::with_supervisors`] adds those in the box.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers an async function as a workflow, under a name or a [`Workflow`](bosun_engine::Workflow) of its types.
    pub fn workflow<I, O, F>(
        self,
        workflow_type: impl WorkflowRef<I, O>,
        function: impl Fn(WfContext, I) -> F + Send + Sync + 'static,
    ) -> Self
    where
        I: DeserializeOwned + 'static,
        O: Serialize + 'static,
        F: Future<Output = Result<O, Failure>> + 'static,
    {
        self.workflows(|workflows| workflows.workflow(workflow_type, function))
    }

    /// Registers a state machine under its `TYPE`.
    pub fn state_machine<S: StateMachine>(self) -> Self {
        self.workflows(WorkflowRegistry::state_machine::<S>)
    }

    /// Registers many workflows at once, as a library of them does.
    pub fn workflows(mut self, register: impl FnOnce(WorkflowRegistry) -> WorkflowRegistry) -> Self {
        self.registries.workflows = register(std::mem::take(&mut self.registries.workflows));
        self
    }

    /// The version of the workflow code; part of the build id that histories record.
    pub fn version(mut self, version: &str) -> Self {
        self.versioned = true;
        self.workflows(|workflows| workflows.version(version))
    }

    /// Registers an activity function, under a name or an [`Activity`](bosun_engine::Activity) of its types.
    pub fn activity<I, O, F, Fut>(mut self, activity_type: impl ActivityRef<I, O>, function: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize,
        F: Fn(ActivityContext, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, ActivityError>> + Send + 'static,
    {
        self.registries.activities.register(activity_type, function);
        self
    }

    /// Registers many activities at once, as a library of them does.
    pub fn activities(mut self, register: impl FnOnce(&mut ActivityRegistry)) -> Self {
        register(&mut self.registries.activities);
        self
    }

    /// Something that all activities share under its type, a connection pool for example: an activity gets it with
    /// `let pool = cx.state::<Pool>()?;`.
    pub fn state<T: Send + Sync + 'static>(mut self, state: T) -> Self {
        self.registries.activities.state(state);
        self
    }

    /// Changes what the engine is started with, for example how long a turn may take. Called for every command that opens
    /// the data directory, before its own arguments and the owner's configuration count: slots, task queues and memory are
    /// theirs, and workflows, activities and codecs come from this App alone.
    pub fn options(mut self, change: impl Fn(&mut WorkerOptions) + Send + Sync + 'static) -> Self {
        self.registries.configure.push(Arc::new(change));
        self
    }

    /// Code around activities, turns and requests: tracing, permissions, metrics. The first one added is the outermost.
    pub fn interceptor(self, interceptor: impl Interceptor + 'static) -> Self {
        let interceptor: Arc<dyn Interceptor> = Arc::new(interceptor);
        self.options(move |options| options.interceptors.push(interceptor.clone()))
    }

    /// What happens to payloads on their way to the disk, before they are compressed and encrypted. A directory that was
    /// written with a codec can only be read with it.
    pub fn codec(mut self, codec: impl PayloadCodec + 'static) -> Self {
        self.registries.codecs.push(Arc::new(codec));
        self
    }

    /// What becomes of runs whose code panics, cannot read a payload or waits for a foreign future. Default: they are held
    /// until the code is mended.
    pub fn on_defect(self, policy: DefectPolicy) -> Self {
        self.workflows(|workflows| workflows.on_defect(policy))
    }

    /// How the program is called in its help and in hints; else by the file that it is run from.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.face.name = Some(name.into());
        self
    }

    /// What `--help` says that the program does.
    pub fn about(mut self, about: impl Into<String>) -> Self {
        self.face.about = Some(about.into());
        self
    }

    /// What `--version` says of the program: `.program_version(env!("CARGO_PKG_VERSION"))`. Without it `--version` only tells
    /// with which Bosun the program was built. The version of the workflow code is [`App::version`].
    pub fn program_version(mut self, version: impl Into<String>) -> Self {
        self.face.version = Some(version.into());
        self
    }

    /// Verbs and nouns that help leaves out, because the program has no use for them: `.hide(["agent", "plan", "llm"])`.
    /// They work as before. A name that is no verb is refused when the program is run.
    pub fn hide<'v>(mut self, verbs: impl IntoIterator<Item = &'v str>) -> Self {
        self.face.hidden.extend(verbs.into_iter().map(str::to_owned));
        self
    }

    /// Registers activities that need the data directory. Called once the directory is held, before any activity runs;
    /// not called by commands that only visit it.
    pub fn at_open(
        mut self,
        register: impl Fn(&Path, &mut ActivityRegistry) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.registries.at_open.push(Arc::new(move |opening, activities| register(opening.data, activities)));
        self
    }

    /// As [`App::at_open`], for what the owner's configuration says as well.
    pub fn at_opening(
        mut self,
        register: impl Fn(&OpenedDirectory<'_>, &mut ActivityRegistry) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.registries.at_open.push(Arc::new(register));
        self
    }

    /// How `run PLAN.yaml` reads plan files.
    pub fn plans(mut self, loader: PlanLoader) -> Self {
        self.plans = Some(loader);
        self
    }

    /// The built-in supervisors and examples with the capabilities in the box: what makes the stock `bosun`.
    pub fn with_supervisors(self) -> Self {
        let conversations = self.conversations.clone();
        let lives = conversations.clone();
        self.workflows(supervisor::register)
            .workflows(agent::register)
            .workflows(examples::register)
            .activities(examples::register_activities)
            .at_opening(move |opening, activities| capabilities(opening, &lives, activities))
            .at_open(move |_, activities| {
                // After the capabilities: an agent asks the model that is registered there.
                agent::register_activities(activities, conversations.clone());
                Ok(())
            })
            .plans(load_plan)
    }

    /// Runs the command line of this process to its end.
    ///
    /// Unless a version was given, the program file itself is the version: a rebuilt program has another build id, and
    /// checks every run it loads against its code (E22).
    pub fn main(mut self) -> ExitCode {
        if let Some(ended) = guard::main_if_guard() {
            return ended;
        }
        guard::available();
        // Before there is another thread.
        environment::take();
        if !self.versioned
            && let Some(fingerprint) = program_fingerprint()
        {
            self = self.version(&fingerprint);
        }
        self.run(std::env::args_os()).into()
    }

    /// As [`App::main`] with these arguments; the first is the program's name.
    pub fn run(self, args: impl IntoIterator<Item = std::ffi::OsString>) -> cli::exit::Exit {
        // Every program has schedules, batches, notifications, standalone activities and migrations, as it has the verbs for
        // them.
        let this = self.workflows(schedule::register).workflows(crate::batch::register);
        let this = this.workflows(crate::notify::register).workflows(crate::standalone::register);
        let mut this = this.workflows(crate::migration::register);
        this.registries.identity = Some(cli::identity());
        let opener = WithAgents { opener: this.registries, conversations: this.conversations };
        let program = Program { opener: Arc::new(opener), plans: this.plans, face: this.face };
        cli::main(&program, args)
    }
}

/// What a worker that was killed left running is ended first, so that nothing runs twice at a time.
fn capabilities(
    opening: &OpenedDirectory<'_>,
    lives: &Conversations,
    activities: &mut ActivityRegistry,
) -> Result<(), String> {
    let data = opening.data;
    let notes = data.join("processes");
    let reaped = capability::process::reap_orphans(&notes).map_err(|why| format!("{}: {why}", notes.display()))?;
    if !reaped.is_empty() {
        tracing::warn!(count = reaped.len(), "ended processes that a killed worker had left running");
    }
    let mut config = CapabilityConfig::default();
    opening.guards.apply(&mut config);
    (config.file.own, config.http.own) = (Some(data.to_owned()), Some(data.to_owned()));
    config.process.notes = Some(notes);
    config.demo.directory = Some(data.join("demo"));
    config.model = models();
    config.model.cassette_session = Some(CassetteSession::new(data, Arc::new(lives.clone())));
    config.mcp = McpConfig::from_environment(&|name| environment::var(name));
    capability::register(activities, &config).map_err(|why| format!("the HTTP client: {why}"))
}

/// A plan runs in the working directory of the command.
fn load_plan(request: &PlanRequest) -> Result<PlanFile, String> {
    let path = request.path.as_path();
    let text = cli::read_short(path).map_err(|why| format!("cannot read {}: {why}", path.display()))?;
    let name = path.file_stem().map_or_else(|| "plan".to_owned(), |name| name.to_string_lossy().into_owned());
    let shown = path.to_string_lossy();
    let directory = std::env::current_dir().map_err(|why| format!("the working directory: {why}"))?;
    let directory = directory.to_string_lossy();
    if is_spec_text(&text) {
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let files = move |file: &str| {
            let path = folder.join(file);
            cli::read_short(&path).map_err(|why| UnreadFile(format!("{}: {why}", path.display())))
        };
        let read = read_spec_in(Some(&directory), &shown, &text, &request.overrides, &files);
        let mut read = read.map_err(|why| why.to_string())?;
        let mut notes: Vec<String> = read.warnings.iter().map(|warning| format!("warning: {warning}")).collect();
        notes.extend(environment::var("BOSUN_MODEL").and_then(|model| played_by(&model, &models(), &mut read.spec)));
        let resolved = read.resolve().map_err(|why| why.to_string())?;
        let too_deep = check_process_depth(request.depth, resolved.spec.delegation.max_depth).err();
        let refused = too_deep.map(|why| why.tool_result());
        let input = SupervisorInput::new(resolved).at_depth(request.depth);
        if let Some(why) = input.refused().filter(|_| refused.is_none()) {
            return Err(format!("Invalid supervisor spec at '{shown}'. {why}"));
        }
        let input = Payload::encode(&input).map_err(|why| why.to_string())?;
        return Ok(PlanFile { name, workflow_type: WorkflowType::of(SUPERVISOR), input, notes, refused });
    }
    if is_scene_text(&text) {
        return Err(format!("{shown} is a scene, which is not run but played: `bosun test {shown}`"));
    }
    neither_plan_nor_spec(&text).map_err(|why| format!("{shown}: {why}"))?;
    if request.overrides.as_object().is_some_and(|overrides| !overrides.is_empty()) {
        return Err(format!("{shown} is a plan, not a supervisor's spec: nothing of it can be set from outside"));
    }
    let input = PlanRunInput::read(&shown, &text, &directory);
    let input = Payload::encode(&input.map_err(|why| why.to_string())?).map_err(|why| why.to_string())?;
    Ok(PlanFile { name, workflow_type: WorkflowType::of(PLAN_RUN), input, notes: Vec::new(), refused: None })
}

/// What is no plan by its first words: a reader of plans would miss what was never meant to be there.
fn neither_plan_nor_spec(text: &str) -> Result<(), String> {
    if text.len() > supervisor::PLAN_BYTES_MAX {
        return Ok(());
    }
    match supervisor::parse_yaml(text) {
        Ok(Value::Null) => {
            Err("the file is empty; a spec begins with `kind: supervisor`, a plan with `objective: what it is about`"
                .into())
        }
        Ok(Value::Object(file)) => match file.get("kind") {
            Some(kind) => Err(format!("kind: {kind}: expected `kind: supervisor`; a plan has no `kind`")),
            None => Ok(()),
        },
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The models that the environment names.
fn models() -> ModelConfig {
    ModelConfig::from_environment(&|name| environment::var(name))
}

/// The same spec with a model in place of the scripts: `NAME`, or `PROVIDER/NAME` for a provider of the worker. It becomes a
/// part of the resolved spec, so that nothing reads it later. A spec that says how its agents are run is left alone.
fn played_by(text: &str, models: &ModelConfig, spec: &mut SupervisorSpec) -> Option<String> {
    let text = text.trim();
    if text.is_empty() || !spec.via.is_scripted() {
        return None;
    }
    // Names of models may hold a slash as well.
    let (provider, name) = match text.split_once('/').filter(|(provider, _)| models.knows(provider)) {
        Some((provider, name)) => (Some(provider.to_owned()), name),
        None => (None, text),
    };
    spec.via = Via::Model(ViaModel { provider, name: Some(name.to_owned()), ..ViaModel::default() });
    Some(format!("played by the model {text} (BOSUN_MODEL)"))
}

/// A hash over the file of this program.
fn program_fingerprint() -> Option<String> {
    let mut hasher = blake3::Hasher::new();
    let program = std::fs::File::open(std::env::current_exe().ok()?).ok()?;
    hasher.update_reader(program).ok()?;
    Some(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_named_alone_or_with_a_provider_that_the_worker_knows() {
        let named = |text: &str| {
            let mut spec = SupervisorSpec::default();
            let note = played_by(text, &ModelConfig::default(), &mut spec);
            match spec.via {
                Via::Model(model) => (model.provider, model.name),
                _ => (None, note),
            }
        };
        let of = |provider: Option<&str>, name: &str| (provider.map(str::to_owned), Some(name.to_owned()));
        assert_eq!(named(" llama3.2 "), of(None, "llama3.2"));
        assert_eq!(named("anthropic/claude"), of(Some("anthropic"), "claude"));
        assert_eq!(named("schema/any"), of(Some("schema"), "any"));
        assert_eq!(named("google/gemini"), of(None, "google/gemini"), "a gateway's name for a model");
        assert_eq!(named(" "), (None, None));
        let mut spec = SupervisorSpec { via: Via::Activity("own".into()), ..SupervisorSpec::default() };
        assert_eq!(played_by("x", &ModelConfig::default(), &mut spec), None, "what a spec says itself stays");
    }

    #[test]
    fn a_spec_is_told_by_its_keys_however_they_are_written() {
        for spec in [
            "kind: supervisor",
            "{kind: supervisor}",
            "\"kind\": \"supervisor\"",
            "preset: swarm-handoff",
            "preset: x\n\t- bad",
        ] {
            assert!(is_spec_text(spec), "{spec}");
        }
        for plan in [
            "objective: the kind is supervisor",
            "kind: plan",
            "tasks: [{ preset: 1 }]",
            "",
            "- preset: 1",
            "a: |\n  preset: x\n",
        ] {
            assert!(!is_spec_text(plan), "{plan}");
        }
    }
}
