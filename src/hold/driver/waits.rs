//! What a driver waits for; each waits for ever where there is nothing to wait for.

use bytes::Bytes;
use tokio::sync::mpsc;

use super::{Happened, Sending, Sent};
use crate::call::{LegId, Origin};
use crate::hold::{LegSink, Reissue};
use crate::session::Lease;
use crate::upstream::streamable_http::Exchange;

/// How the message that is being sent went. Cancel-safe.
pub(super) async fn in_flight(sending: &mut Option<Sending>) -> Sent {
    match sending {
        Some(sending) => sending.await,
        None => std::future::pending().await,
    }
}

/// What the exchange brings. Cancel-safe.
pub(super) async fn next_message(exchange: &mut Option<Exchange>) -> Happened {
    match exchange {
        Some(open) => match open.next_message().await {
            Ok(Some(message)) => Happened::Message(Origin::Exchange, message),
            Ok(None) => Happened::ExchangeOver(None),
            Err(error) => Happened::ExchangeOver(Some(error)),
        },
        None => std::future::pending().await,
    }
}

/// What the session's general stream brings. Cancel-safe.
pub(super) async fn general_message(lease: &mut Option<Lease>) -> Bytes {
    match lease {
        Some(lease) => lease.general_message().await,
        None => std::future::pending().await,
    }
}

/// The next re-issue. Cancel-safe.
pub(super) async fn next_reissue(mailbox: &mut Option<mpsc::Receiver<Reissue>>) -> Reissue {
    if let Some(mailbox) = mailbox
        && let Some(reissue) = mailbox.recv().await
    {
        return reissue;
    }
    std::future::pending().await
}

/// The next leg whose client goes away. Cancel-safe.
pub(super) async fn leg_gone(legs: &[(LegId, LegSink)]) -> LegId {
    if legs.is_empty() {
        return std::future::pending().await;
    }
    let closings = legs.iter().map(|(leg, sink)| {
        Box::pin(async move {
            sink.notes.closed().await;
            *leg
        })
    });
    futures_util::future::select_all(closings).await.0
}

/// The deadline. Cancel-safe.
pub(super) async fn sleep_until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
