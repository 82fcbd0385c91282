//! Finding and reaching a cluster.
//!
//! Invariant: the standard `TEMPORAL_*` variables and `temporal.toml` mean what they mean to Temporal's own tools; an address on
//! the command line wins over theirs, and TLS, certificates and API keys stay theirs. No key is printed or recorded.

use std::collections::HashMap;
use std::time::Duration;

use temporalio_client::envconfig::LoadClientConfigProfileOptions;
use temporalio_client::{Connection, ConnectionOptions};
use temporalio_common::envconfig::{ClientConfigProfile, load_client_config_profile};

use crate::backend::ClusterPlace;
use crate::capability::environment;

/// What asks for the address of the environment.
const OF_THE_ENVIRONMENT: &str = "env";
/// Long enough for a handshake over a bad line.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a cluster cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// What the variables or `temporal.toml` say makes no sense.
    #[error("TEMPORAL_* or temporal.toml: {0}")]
    Config(String),
    /// Nobody answers, or not as a cluster does.
    #[error("{0}")]
    Unreachable(String),
}

/// The variables that Temporal's tools read; others are nobody's business here.
const VARIABLES: [&str; 15] = [
    "TEMPORAL_ADDRESS",
    "TEMPORAL_NAMESPACE",
    "TEMPORAL_API_KEY",
    "TEMPORAL_TLS",
    "TEMPORAL_TLS_CLIENT_CERT_PATH",
    "TEMPORAL_TLS_CLIENT_CERT_DATA",
    "TEMPORAL_TLS_CLIENT_KEY_PATH",
    "TEMPORAL_TLS_CLIENT_KEY_DATA",
    "TEMPORAL_TLS_SERVER_CA_CERT_PATH",
    "TEMPORAL_TLS_SERVER_CA_CERT_DATA",
    "TEMPORAL_TLS_SERVER_NAME",
    "TEMPORAL_CONFIG_FILE",
    "TEMPORAL_PROFILE",
    "XDG_CONFIG_HOME",
    "HOME",
];

fn profile(place: &ClusterPlace) -> Result<ClientConfigProfile, ConnectError> {
    let named = place.address.strip_prefix(OF_THE_ENVIRONMENT).and_then(|rest| rest.strip_prefix(':'));
    let variables: HashMap<String, String> =
        VARIABLES.iter().filter_map(|name| Some(((*name).to_owned(), environment::var(name)?))).collect();
    let mut options = LoadClientConfigProfileOptions::default();
    options.config_file_profile = named.map(str::to_owned);
    let mut profile =
        load_client_config_profile(options, Some(&variables)).map_err(|why| ConnectError::Config(why.to_string()))?;
    if place.address != OF_THE_ENVIRONMENT && named.is_none() {
        profile.address = Some(place.address.clone());
    }
    Ok(profile)
}

/// The namespace that the environment names, for who names none.
pub fn namespace_of(place: &ClusterPlace) -> Result<Option<String>, ConnectError> {
    Ok(profile(place)?.namespace)
}

/// Connects, and makes sure that a cluster answers.
pub async fn connect(place: &ClusterPlace) -> Result<Connection, ConnectError> {
    let profile = profile(place)?;
    if let Some(key) = &profile.api_key {
        environment::note_secret(key);
    }
    let address = profile.address.clone().unwrap_or_else(|| "localhost:7233".to_owned());
    let mut options = ConnectionOptions::try_from(profile).map_err(|why| ConnectError::Config(why.to_string()))?;
    options.identity = place.identity.to_string();
    options.connect_timeout = Some(PATIENCE);
    let connected = tokio::time::timeout(PATIENCE * 2, Connection::connect(options)).await;
    let why = match connected {
        Ok(Ok(connection)) => return Ok(connection),
        Ok(Err(why)) => chain(&why),
        Err(_) => format!("nobody answered within {} s", PATIENCE.as_secs() * 2),
    };
    Err(ConnectError::Unreachable(format!("no Temporal cluster answers at {address}: {why}")))
}

/// An error with what caused it, once each.
fn chain(why: &dyn std::error::Error) -> String {
    let (mut text, mut next) = (why.to_string(), why.source());
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}
