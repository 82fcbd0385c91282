//! `config validate`: whether a configuration file says something that is known and fits, with each of its profiles.
//!
//! Invariant: it reads the file as a command would, and no value is put in force; every profile is looked at, not only the
//! one that is asked for. It opens no store.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::{FILE, Loaded, Values, old_keys_fit, put_together, read_file};
use crate::cli::error::CliError;
use crate::cli::exit::Exit;
use crate::cli::explain::Code;
use crate::cli::list::counted;
use crate::cli::output::Screen;

#[derive(Debug, Args)]
pub struct ValidateArgs {
    /// The file [default: the one that commands read here].
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

pub(super) fn validate(screen: &mut Screen, loaded: &Loaded, args: &ValidateArgs) -> Result<Exit, CliError> {
    let Some(file) = args.file.as_ref().or(loaded.file.as_ref()) else {
        return Err(CliError::new(Code::NotFound, format!("there is no {FILE} here"))
            .help("name a file, or make one with `bosun config set`"));
    };
    let place = file.display().to_string();
    let read = read_file(file)?;
    let beside = loaded.beside_the_file();
    let holds = |values: &Values| put_together(values).and_then(|_| old_keys_fit(values, &beside));
    holds(&read.values).map_err(|why| why.cause(format!("in {place}")))?;
    for (name, more) in &read.profiles {
        let mut values = read.values.clone();
        values.extend(more.clone());
        holds(&values).map_err(|why| why.cause(format!("in {place} [profiles.{name}]")))?;
    }
    let (keys, profiles) = (read.values.len(), read.profiles.keys().collect::<Vec<_>>());
    screen.object("config.validate", json!({ "file": place, "keys": keys, "profiles": profiles }));
    let named = match profiles.as_slice() {
        [] => String::new(),
        some => format!(", and the profiles {}", some.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ")),
    };
    screen.line(format!("{place} is well: {}{named}", counted(keys as u64, "key")));
    Ok(Exit::Ok)
}
