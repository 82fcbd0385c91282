//! Addresses that the attached client asks: of the worker, and of a run in it.
//!
//! Invariant: what an id holds stays in its segment or its value: no id leads anywhere else.

use bosun_engine::{Rejection, Target};

use crate::backend::CallError;

/// The address of a worker; `HOST:PORT` speaks http, as `--bind` is written.
pub(crate) fn with_scheme(address: &str) -> String {
    let address = address.trim_end_matches('/');
    if address.contains("://") { address.to_owned() } else { format!("http://{address}") }
}

/// One segment of a path. Everything but unreserved characters is escaped.
pub(super) fn segment(text: &str) -> Result<String, CallError> {
    if matches!(text, "." | "..") {
        // URLs give these a meaning, escaped or not.
        let why = "it leads elsewhere in addresses, and nothing has it".to_owned();
        return Err(Rejection::Invalid { what: format!("id {text:?}"), why }.into());
    }
    Ok(escape(text))
}

pub(super) fn escape(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
        escaped
    })
}

/// The path and query of a run, for example `workflows/order-7/signal?namespace=default&`.
pub(super) fn run_path(target: &Target, rest: &str) -> Result<String, CallError> {
    let mut path = format!("workflows/{}{rest}?", segment(target.workflow_id.as_str())?);
    path.push_str(&format!("namespace={}&", escape(target.namespace.as_str())));
    if let Some(run) = target.run_id {
        path.push_str(&format!("run_id={run}&"));
    }
    Ok(path)
}
