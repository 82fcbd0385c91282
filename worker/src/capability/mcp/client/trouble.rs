//! What went wrong, and whether it may be tried again.
//!
//! Invariant: it is [`RetrySafety::Safe`] only if the call surely was not delivered; what is not known is said not to
//! be known. Nothing that a server or a library says is shown before secrets are cut out of it, and never with its URL.

use std::error::Error;
use std::time::Duration;

use bosun_engine::Failure;
use rmcp::model::{ErrorCode, ErrorData};
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;

use super::super::*;
use crate::capability::http::RefusedAddress;

/// The most characters of what somebody else says.
const SAID_CHARS: usize = 400;

/// Whether a call may be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetrySafety {
    /// It would end the same.
    Never,
    /// It was not delivered. The server may have said when to come back.
    Safe(Option<Duration>),
    /// Nobody knows whether the tool ran.
    Unknown,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Trouble {
    pub(super) failure_type: &'static str,
    pub(super) message: String,
    pub(super) again: RetrySafety,
}

impl Trouble {
    pub(super) fn never(failure_type: &'static str, message: impl Into<String>) -> Trouble {
        Trouble { failure_type, message: message.into(), again: RetrySafety::Never }
    }
    pub(super) fn safe(failure_type: &'static str, message: impl Into<String>) -> Trouble {
        Trouble { failure_type, message: message.into(), again: RetrySafety::Safe(None) }
    }
    pub(super) fn unknown(failure_type: &'static str, message: impl Into<String>) -> Trouble {
        Trouble { failure_type, message: message.into(), again: RetrySafety::Unknown }
    }

    /// Before any tool was called: whatever broke, nothing ran.
    pub(super) fn before_call(self) -> Trouble {
        match self.again {
            RetrySafety::Unknown => Trouble { failure_type: MCP_UNREACHABLE, again: RetrySafety::Safe(None), ..self },
            RetrySafety::Never | RetrySafety::Safe(_) => self,
        }
    }

    /// `repeatable`: the server says that calling the tool twice does no more than calling it once.
    pub(super) fn failure(self, repeatable: bool) -> Failure {
        let Trouble { failure_type, message, again } = self;
        match again {
            RetrySafety::Never => Failure::application(failure_type, message).non_retryable(),
            RetrySafety::Safe(None) => Failure::application(failure_type, message),
            RetrySafety::Safe(Some(after)) => Failure::application(failure_type, message).retry_after(after),
            RetrySafety::Unknown => {
                let failure = Failure::application(failure_type, format!("{message}; nobody knows whether it ran"));
                if repeatable { failure } else { failure.non_retryable() }
            }
        }
    }
}

/// The beginning of what somebody else says, in one line.
pub(super) fn said(text: &str) -> String {
    let line = text.split_whitespace().take(SAID_CHARS).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SAID_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// A request that had no result.
pub(super) fn of_request(why: &ServiceError) -> Trouble {
    match why {
        ServiceError::McpError(error) => of_answer(error),
        ServiceError::TransportSend(error) => of_transport(error),
        ServiceError::TransportClosed | ServiceError::Cancelled { .. } => {
            Trouble::unknown(MCP_LOST, "the connection to the server broke in the call")
        }
        ServiceError::UnexpectedResponse => Trouble::unknown(MCP_LOST, "the answer is no result of a tool"),
        other => Trouble::unknown(MCP_LOST, said(&other.to_string())),
    }
}

/// Whether the connection is of no more use: it broke, its session or its credentials are no longer good, or what comes
/// over it is not the protocol.
pub(super) fn ends(why: &ServiceError) -> bool {
    match why {
        ServiceError::McpError(_) => false,
        ServiceError::TransportSend(error) => {
            let error = error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>();
            !matches!(error, Some(StreamableHttpError::HttpStatus(_)))
        }
        _ => true,
    }
}

/// A connection that was not made. No tool was called.
pub(super) fn of_opening(why: &ClientInitializeError) -> Trouble {
    let trouble = match why {
        ClientInitializeError::TransportError { error, .. } => of_transport(error),
        ClientInitializeError::JsonRpcError(error) => of_answer(error),
        ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::Cancelled => {
            Trouble::safe(MCP_UNREACHABLE, "the server ended before it said hello")
        }
        other => {
            Trouble::never(MCP_PROTOCOL, format!("the server does not say hello as it should: {}", other_kind(other)))
        }
    };
    trouble.before_call()
}

/// What an answer that is no hello is, without repeating it: it may be long, and hold anything.
fn other_kind(why: &ClientInitializeError) -> &'static str {
    match why {
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => "it speaks another version",
        ClientInitializeError::ConflictInitResponseId(..) | ClientInitializeError::UncorrelatedErrorResponse { .. } => {
            "it answers what was not asked"
        }
        _ => "its answer is another one",
    }
}

/// An error that the server answered with.
fn of_answer(error: &ErrorData) -> Trouble {
    let text = said(&error.message);
    match error.code {
        ErrorCode::INVALID_PARAMS => Trouble::never(MCP_ARGUMENTS, format!("the server refused the arguments: {text}")),
        ErrorCode(code) => Trouble::never(MCP_ERROR, format!("the server answered with error {code}: {text}")),
    }
}

/// A message that could not be sent. A line that a process did not get whole is no message to it.
fn of_transport(error: &DynamicTransportError) -> Trouble {
    match error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(error) => of_http(error),
        None => {
            Trouble::safe(MCP_UNREACHABLE, format!("the server takes no messages: {}", said(&error.error.to_string())))
        }
    }
}

fn of_http(error: &StreamableHttpError<reqwest::Error>) -> Trouble {
    match error {
        StreamableHttpError::Client(why) => of_client(why),
        StreamableHttpError::HttpStatus(answer) => {
            let message = format!("the server answered HTTP {}", answer.status);
            let after = answer.retry_after.as_deref().and_then(|text| text.trim().parse().ok());
            match answer.status {
                429 => Trouble {
                    again: RetrySafety::Safe(after.map(|seconds: u64| Duration::from_secs(seconds.min(3_600)))),
                    ..Trouble::safe(MCP_UNREACHABLE, message)
                },
                _ => Trouble::unknown(MCP_LOST, message),
            }
        }
        StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) => {
            Trouble::never(MCP_UNREACHABLE, "the server asks for other credentials")
        }
        StreamableHttpError::SessionExpired => Trouble::safe(MCP_UNREACHABLE, "the server has forgotten the session"),
        StreamableHttpError::ResponseBodyTooLarge { max_size } => {
            Trouble::never(MCP_TOO_LARGE, format!("the answer has more than {max_size} bytes"))
        }
        StreamableHttpError::UnexpectedServerResponse(text) if text.starts_with("HTTP 3") => Trouble::never(
            MCP_UNREACHABLE,
            format!("the server redirects, which is not followed: {}", said(&text[..text.len().min(12)])),
        ),
        // The server, or whoever stands before it, stopped waiting: for the request, or for the tool.
        StreamableHttpError::UnexpectedServerResponse(text)
            if ["HTTP 408", "HTTP 499"].iter().any(|one| text.starts_with(one)) =>
        {
            Trouble::unknown(MCP_LOST, format!("the server answered {}", &text[.."HTTP 408".len()]))
        }
        StreamableHttpError::UnexpectedServerResponse(text) if text.starts_with("HTTP 4") => {
            Trouble::never(MCP_UNREACHABLE, format!("the server refused the request: {}", said(text)))
        }
        StreamableHttpError::UnexpectedServerResponse(_)
        | StreamableHttpError::UnexpectedContentType(_)
        | StreamableHttpError::Deserialize(_) => Trouble::unknown(MCP_LOST, "the answer is no message of the protocol"),
        other => {
            Trouble::unknown(MCP_LOST, format!("the connection to the server broke: {}", said(&other.to_string())))
        }
    }
}

fn of_client(why: &reqwest::Error) -> Trouble {
    let mut cause: Option<&(dyn Error + 'static)> = Some(why);
    let mut text = String::new();
    while let Some(error) = cause {
        if let Some(refused) = error.downcast_ref::<RefusedAddress>() {
            return refused_address(refused);
        }
        cause = error.source();
        if cause.is_none() {
            text = error.to_string(); // the innermost says what happened, and no URL
        }
    }
    let message = format!("the server cannot be reached: {}", said(&text));
    if why.is_connect() || why.is_builder() {
        Trouble::safe(MCP_UNREACHABLE, message)
    } else {
        Trouble::unknown(MCP_LOST, message)
    }
}

pub(super) fn refused_address(why: &RefusedAddress) -> Trouble {
    let message =
        format!("{} is at {}, which is not a public address; its `allow_private` permits it", why.host, why.address);
    Trouble::never(MCP_UNREACHABLE, message)
}
