//! The lines of the protocol between its client and the server: what is none is answered, and goes no further.
//!
//! Invariant: a line that is no JSON, or no message of JSON-RPC, gets an error with the code that JSON-RPC has for it; every other
//! line reaches the server as it came. What goes out goes out in whole lines, one after the other. It knows no tools.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Bytes that wait for the other side.
const BUFFER: usize = 64 << 10;
/// Errors that wait to be written.
const ERRORS: usize = 16;
/// JSON-RPC's own codes.
const PARSE_ERROR: i64 = -32_700;
const INVALID_REQUEST: i64 = -32_600;

/// What the server reads from and writes to, in place of the client.
pub(super) struct Checked {
    pub input: DuplexStream,
    pub output: DuplexStream,
    /// Ends when everything that was to be said is written.
    pub writer: JoinHandle<std::io::Result<()>>,
}

/// Puts itself between a client and the server.
pub(super) fn checked<I, O>(from_client: I, to_client: O) -> Checked
where
    I: AsyncRead + Unpin + Send + 'static,
    O: AsyncWrite + Unpin + Send + 'static,
{
    let (to_server, input) = tokio::io::duplex(BUFFER);
    let (output, from_server) = tokio::io::duplex(BUFFER);
    let (wrong, errors) = mpsc::channel(ERRORS);
    tokio::spawn(listen(from_client, to_server, wrong));
    let writer = tokio::spawn(say(from_server, errors, to_client));
    Checked { input, output, writer }
}

/// Hands on what is a message, until the client has no more to say or the server is gone.
async fn listen(
    from: impl AsyncRead + Unpin,
    mut to_server: DuplexStream,
    wrong: mpsc::Sender<Value>,
) -> std::io::Result<()> {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).await? > 0 {
        match refusal(&line) {
            Some(error) => drop(wrong.send(error).await),
            None => to_server.write_all(&line).await?,
        }
        line.clear();
    }
    Ok(())
}

/// Writes what the server and the errors say, a line at a time, until neither says more.
async fn say(
    from_server: DuplexStream,
    mut errors: mpsc::Receiver<Value>,
    mut to: impl AsyncWrite + Unpin,
) -> std::io::Result<()> {
    let mut from_server = BufReader::new(from_server);
    let (mut line, mut server_speaks) = (Vec::new(), true);
    loop {
        tokio::select! {
            // What was read of a line stays in it when an error goes before.
            read = from_server.read_until(b'\n', &mut line), if server_speaks => {
                server_speaks = read? > 0;
                to.write_all(&line).await?;
                line.clear();
                if !server_speaks {
                    // What waits is said, and nothing more is taken.
                    errors.close();
                }
            }
            Some(error) = errors.recv() => to.write_all(format!("{error}\n").as_bytes()).await?,
            else => return Ok(()),
        }
        to.flush().await?;
    }
}

/// The answer to a line that is no message; nothing for one that is, or that is blank.
fn refusal(line: &[u8]) -> Option<Value> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return None;
    }
    let error = |id: Value, code: i64, message: String| {
        Some(json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }))
    };
    match serde_json::from_slice::<Value>(line) {
        Err(why) => error(Value::Null, PARSE_ERROR, format!("Parse error: the line is not JSON: {why}")),
        Ok(message) if ["method", "result", "error"].iter().any(|part| message.get(part).is_some()) => None,
        Ok(message) => {
            let id = message.get("id").filter(|id| id.is_string() || id.is_number()).cloned().unwrap_or_default();
            error(id, INVALID_REQUEST, "Invalid Request: a message has a `method`, a `result` or an `error`".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_message_is_answered_with_its_code() {
        let code = |line: &str| refusal(line.as_bytes()).map(|told| told["error"]["code"].as_i64().unwrap());
        assert_eq!(code("no json\n"), Some(-32_700));
        assert_eq!(code("{\"id\": 7}\n"), Some(-32_600));
        assert_eq!(refusal(b"{\"id\": 7}").unwrap()["id"], 7);
        assert_eq!(code("[1]"), Some(-32_600));
        assert_eq!(code("{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\"}"), None);
        assert_eq!(code(" \n"), None);
    }
}
