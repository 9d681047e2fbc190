//! What is on its way to a client on a stream: a bounded queue of lines, and the one who writes them, each whole.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt, BufWriter};
use tokio::sync::mpsc;
use tokio_io_timeout::TimeoutWriter;

use super::in_flight::Entry;
use crate::wire::line::one_line;

/// Lines that wait to be written. Enough to keep the writer busy; behind it each request waits with what it has to
/// say, so that more would only be more memory for a client that does not read.
const LINES_MAX: usize = 16;

/// The client reads no more.
#[derive(Debug)]
pub(super) struct Gone;

/// Where messages to the client go.
#[derive(Clone, Debug)]
pub(super) struct Outbox(mpsc::Sender<Vec<u8>>);

/// The lines that are to be written.
#[derive(Debug)]
pub(super) struct OutgoingLines(mpsc::Receiver<Vec<u8>>);

/// A queue and its two ends.
pub(super) fn outbox() -> (Outbox, OutgoingLines) {
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    (Outbox(sender), OutgoingLines(receiver))
}

impl Outbox {
    /// Sends a message when there is room for it. Cancel-safe: it goes whole or not at all.
    pub(super) async fn put(&self, message: Vec<u8>) -> Result<(), Gone> {
        let room = self.0.reserve().await.map_err(|_| Gone)?;
        room.send(one_line(message));
        Ok(())
    }

    /// Sends what is said last of a request. Until it is on its way the request can be cancelled, and its id is taken:
    /// from then on its client may use it again. Cancel-safe.
    pub(super) async fn put_last(&self, last: Last, entry: Entry) -> Result<(), Gone> {
        let room = self.0.reserve().await.map_err(|_| Gone)?;
        drop(entry);
        room.send(match last {
            Last::Response(response) => one_line(response),
            Last::Closing(response, torn_down) => {
                let mut lines = one_line(response);
                lines.extend(one_line(torn_down));
                lines
            }
        });
        Ok(())
    }
}

/// What is said last of a request.
#[derive(Debug)]
pub(super) enum Last {
    /// Its response.
    Response(Vec<u8>),
    /// Its response, and that its stream is closed.
    Closing(Vec<u8>, Vec<u8>),
}

/// Writes lines until nobody has any more.
///
/// # Errors
/// When the client cannot be written to, or takes longer than `timeout` to read more.
pub(super) async fn write(
    mut lines: OutgoingLines,
    output: impl AsyncWrite,
    timeout: Duration,
) -> io::Result<()> {
    let mut output = TimeoutWriter::new(output);
    output.set_timeout(Some(timeout));
    let output: Pin<&mut TimeoutWriter<_>> = std::pin::pin!(output);
    let mut output = BufWriter::new(output);
    while let Some(line) = lines.0.recv().await {
        output.write_all(&line).await?;
        // Lines that are ready together are written together.
        if lines.0.is_empty() {
            output.flush().await?;
        }
    }
    output.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_let_go() {
        let (outbox, lines) = outbox();
        let (_client, output) = tokio::io::duplex(4);
        let written = tokio::join!(
            write(lines, output, Duration::from_secs(60)),
            outbox.put(b"more than it holds".to_vec()),
        );
        assert_eq!(written.0.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(outbox.put(Vec::new()).await.is_err());
    }

    #[tokio::test]
    async fn lines_are_written_in_order_and_to_the_last() {
        let (outbox, lines) = outbox();
        let mut written = Vec::new();
        let putting = async move {
            for number in 0..100 {
                outbox.put(number.to_string().into_bytes()).await.unwrap();
            }
        };
        let writing = write(lines, &mut written, Duration::from_secs(60));
        tokio::join!(putting, writing).1.unwrap();
        let expected: String = (0..100).map(|number| format!("{number}\n")).collect();
        assert_eq!(written, expected.as_bytes());
    }
}
