//! What a driver waits for; each waits for ever where there is nothing to wait for.

use tokio::sync::mpsc;

use super::{Happened, Leasing, Sending, Upstream};
use crate::call::{Call, LegId, Origin};
use crate::hold::{LegSink, Mail};
use crate::session::Lease;
use crate::upstream::Exchange;

/// What a call may hear from its server's side.
pub(super) struct Inputs<'a> {
    sending: Option<&'a mut Sending>,
    leasing: Option<&'a mut Leasing>,
    exchange: Option<&'a mut Exchange>,
    session: Option<(Origin, &'a mut Lease)>,
    /// The end of the session is the call's own: no exchange tells of it, and somebody is being asked in vain.
    ends_with_session: bool,
}

impl<'a> Inputs<'a> {
    pub(super) fn of(
        call: &Call,
        upstream: &'a mut Upstream,
        sending: &'a mut Option<Sending>,
    ) -> Self {
        let mut inputs = Self {
            sending: sending.as_mut(),
            leasing: None,
            exchange: None,
            session: None,
            ends_with_session: false,
        };
        match upstream {
            Upstream::Leasing(leasing) => inputs.leasing = Some(leasing),
            Upstream::Due(lease) => {
                inputs.session = Some((Origin::Stray, lease));
                // One that nobody is asked for goes up on another session.
                inputs.ends_with_session = call.is_asking();
            }
            Upstream::Open {
                lease, exchange, ..
            } => {
                // On a channel all that follows the request comes with its exchange.
                let origin = if lease.is_on_channel() {
                    Origin::Stray
                } else {
                    Origin::Session
                };
                inputs.session = Some((origin, lease));
                inputs.exchange = Some(exchange);
            }
            Upstream::Over => {}
        }
        inputs
    }

    /// The next of them. Cancel-safe.
    pub(super) async fn next(&mut self) -> Happened {
        tokio::select! {
            biased;
            Some(sent) = maybe(self.sending.as_mut()) => Happened::Sent(sent),
            Some(leased) = maybe(self.leasing.as_mut()) => Happened::Leased(leased),
            happened = next_message(&mut self.exchange) => happened,
            happened = general_message(&mut self.session, self.ends_with_session) => {
                if let Some(exchange) = &mut self.exchange {
                    exchange.heard_of_server();
                }
                happened
            }
        }
    }
}

/// What a future yields, if there is one. Cancel-safe if the future is.
async fn maybe<F: Future + Unpin>(future: Option<F>) -> Option<F::Output> {
    match future {
        Some(future) => Some(future.await),
        None => std::future::pending().await,
    }
}

/// What the exchange brings. Cancel-safe.
async fn next_message(exchange: &mut Option<&mut Exchange>) -> Happened {
    match exchange {
        Some(open) => match open.next_message().await {
            Ok(Some(message)) => Happened::Message(Origin::Exchange, message),
            Ok(None) => Happened::ExchangeOver(None),
            Err(error) => Happened::ExchangeOver(Some(error)),
        },
        None => std::future::pending().await,
    }
}

/// What the session's general stream brings; its end too where that matters. Cancel-safe.
async fn general_message(
    session: &mut Option<(Origin, &mut Lease)>,
    ends_with_it: bool,
) -> Happened {
    let Some((origin, lease)) = session else {
        return std::future::pending().await;
    };
    let gone = lease.gone();
    tokio::select! {
        biased;
        message = lease.general_message() => Happened::Message(*origin, message),
        () = gone, if ends_with_it => Happened::SessionOver(lease.why_gone()),
    }
}

/// What comes in next for the held call. Cancel-safe.
pub(super) async fn next_mail(mailbox: &mut Option<mpsc::Receiver<Mail>>) -> Happened {
    let Some(mailbox) = mailbox else {
        return std::future::pending().await;
    };
    match mailbox.recv().await {
        Some(Mail::Reissue(reissue)) => Happened::Reissued(reissue),
        Some(Mail::Moved) => Happened::Moved,
        Some(Mail::Forgotten) => Happened::Forgotten,
        None => Happened::NoMoreMail,
    }
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
