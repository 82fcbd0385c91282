//! Finding and reaching a cluster.
//!
//! Invariant: the standard `TEMPORAL_*` variables and `temporal.toml` mean what they mean to Temporal's own tools; an address on
//! the command line wins over theirs, and TLS, certificates and API keys stay theirs. No key is printed or recorded.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use temporalio_client::envconfig::LoadClientConfigProfileOptions;
use temporalio_client::{Connection, ConnectionOptions};
use temporalio_common::envconfig::{ClientConfigProfile, DataSource, load_client_config_profile};

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
    /// The API key is not where it is said to be.
    #[error("the API key of the cluster: {0}")]
    Key(String),
    /// Nobody answers, or not as a cluster does.
    #[error("{0}")]
    Unreachable(String),
}

/// The variables that Temporal's tools read; others are nobody's business here.
const VARIABLES: [&str; 16] = [
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
    "TEMPORAL_TLS_DISABLE_HOST_VERIFICATION",
    "TEMPORAL_CONFIG_FILE",
    "TEMPORAL_PROFILE",
    "XDG_CONFIG_HOME",
    "HOME",
];
/// Headers of requests, by what comes behind.
const HEADERS: &str = "TEMPORAL_GRPC_META_";

fn variables() -> HashMap<String, String> {
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let all = environment::all().into_iter().filter_map(text);
    all.filter(|(name, _)| VARIABLES.contains(&name.as_str()) || name.starts_with(HEADERS)).collect()
}

fn profile(address: &str, variables: &HashMap<String, String>) -> Result<ClientConfigProfile, ConnectError> {
    let named = address.strip_prefix(OF_THE_ENVIRONMENT).and_then(|rest| rest.strip_prefix(':'));
    let mut options = LoadClientConfigProfileOptions::default();
    options.config_file_profile = named.map(str::to_owned);
    let mut profile =
        load_client_config_profile(options, Some(variables)).map_err(|why| ConnectError::Config(why.to_string()))?;
    if address != OF_THE_ENVIRONMENT && named.is_none() {
        profile.address = Some(address.to_owned());
    }
    Ok(profile)
}

/// The namespace that the environment names, for who names none.
pub fn namespace_of(place: &ClusterPlace) -> Result<Option<String>, ConnectError> {
    Ok(profile(&place.address, &variables())?.namespace)
}

/// What of a profile no text may hold from here on.
fn note_secrets(profile: &ClientConfigProfile) {
    profile.api_key.iter().for_each(|key| environment::note_secret(key));
    if let Some(DataSource::Data(key)) = profile.tls.as_ref().and_then(|tls| tls.client_key.as_ref()) {
        let text = String::from_utf8_lossy(key);
        environment::note_secret(&text);
        // Whoever writes it out may break its lines otherwise.
        text.lines().filter(|line| !line.starts_with("-----")).for_each(environment::note_secret);
    }
    // A header may be anything; those with keys are named so.
    let keys = profile.grpc_meta.iter().filter(|(name, _)| environment::is_secret(name));
    keys.for_each(|(_, value)| environment::note_secret(value));
}

fn options_of(profile: ClientConfigProfile) -> Result<ConnectionOptions, ConnectError> {
    let unverified = profile.tls.as_ref().is_some_and(|tls| tls.disable_host_verification);
    let mut options = ConnectionOptions::try_from(profile).map_err(|why| ConnectError::Config(why.to_string()))?;
    if let Some(tls) = options.tls_options.as_mut().filter(|_| unverified) {
        // Whoever asks for it has no use for an authority.
        tls.server_root_ca_cert = None;
        tls.server_cert_verifier = Some(Arc::new(AnyServer));
    }
    Ok(options)
}

/// Connects, and makes sure that a cluster answers.
pub async fn connect(place: &ClusterPlace) -> Result<Connection, ConnectError> {
    let mut profile = profile(&place.address, &variables())?;
    if let Some(reference) = &place.api_key {
        let key = reference.resolve().await.map_err(|why| ConnectError::Key(why.message))?;
        profile.api_key = Some(key.expose().to_owned());
    }
    note_secrets(&profile);
    let address = profile.address.clone().unwrap_or_else(|| "localhost:7233".to_owned());
    let mut options = options_of(profile)?;
    if options.tls_options.as_ref().is_some_and(|tls| tls.server_cert_verifier.is_some()) {
        tracing::warn!(address, "whoever answers is taken for the cluster: its certificate is not looked at");
    }
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

/// Takes any certificate, where `TEMPORAL_TLS_DISABLE_HOST_VERIFICATION` asks for it. Its key is still proven.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &default_provider().signature_verification_algorithms)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &default_provider().signature_verification_algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A profile from these variables and no file.
    fn of(variables: &[(&str, &str)]) -> ClientConfigProfile {
        let nowhere = ("TEMPORAL_CONFIG_FILE", "/dev/null");
        let variables = variables.iter().chain([&nowhere]);
        let variables = variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        profile("cluster.example:7233", &variables).unwrap()
    }

    #[test]
    fn headers_of_the_environment_go_along() {
        let options = options_of(of(&[("TEMPORAL_GRPC_META_X_TENANT", "boats")])).unwrap();
        assert_eq!(options.headers.unwrap_or_default().get("x-tenant").map(String::as_str), Some("boats"));
    }

    #[test]
    fn a_certificate_is_looked_at_unless_somebody_says_otherwise() {
        let verified = |variables: &[(&str, &str)]| {
            options_of(of(variables)).unwrap().tls_options.unwrap().server_cert_verifier.is_none()
        };
        assert!(verified(&[("TEMPORAL_TLS", "true")]));
        assert!(verified(&[("TEMPORAL_TLS", "true"), ("TEMPORAL_TLS_DISABLE_HOST_VERIFICATION", "false")]));
        assert!(!verified(&[("TEMPORAL_TLS", "true"), ("TEMPORAL_TLS_DISABLE_HOST_VERIFICATION", "true")]));
    }

    #[test]
    fn keys_are_cut_out_of_what_is_sent_elsewhere() {
        let key = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIPbdEADqxG5a\n-----END PRIVATE KEY-----\n";
        note_secrets(&of(&[
            ("TEMPORAL_TLS_CLIENT_CERT_DATA", "cert"),
            ("TEMPORAL_TLS_CLIENT_KEY_DATA", key),
            ("TEMPORAL_GRPC_META_X_AUTH", "let-me-in-please"),
        ]));
        let mut said = serde_json::json!(["MC4CAQAwBQYDK2VwBCIEIPbdEADqxG5a", "with let-me-in-please", "cert"]);
        environment::scrub(&mut said);
        let said = said.to_string();
        assert!(!said.contains("MC4CAQ") && !said.contains("let-me-in") && said.contains("cert"), "{said}");
    }
}
