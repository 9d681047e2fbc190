//! The ways out of the state machine. All go through `finish`, which lets the session go, replies to all legs
//! and ends.

use super::event::{Action, SessionFate};
use super::machine::{Call, Phase, Upstream};
use super::reply::{Reply, failed, unreached};
use crate::translate::notification;

impl Call {
    /// The server's own end of the call. A question it left open is its own business, but the session is not
    /// used again: nobody knows whether it still waits.
    pub(super) fn complete(&mut self, reply: Reply) {
        self.finish(reply, self.fate());
    }

    /// What becomes of the session when the server ends the call now.
    pub(super) fn fate(&self) -> SessionFate {
        if self.questions.is_empty() {
            SessionFate::Reuse
        } else {
            SessionFate::Retire
        }
    }

    /// Ends the call because something here did not go on; see [`Call::abandon`].
    pub(super) fn give_up(&mut self, why: &str) {
        self.abandon(failed(why, self.may_have_run()));
    }

    /// Ends the call from this side: the server is told, so that it too can let go.
    pub(super) fn abandon(&mut self, reply: Reply) {
        self.leave_server(match &reply {
            Reply::Error(error) => error.message.as_str(),
            Reply::Result(_) | Reply::Challenge(_) => "no longer wanted",
        });
        self.finish(reply, SessionFate::Retire);
    }

    /// Tells the server that nobody answers its questions or waits for its result any more.
    pub(super) fn leave_server(&mut self, reason: &str) {
        for question in self.questions.take_all() {
            if let Some(answer) = question.abandoned() {
                self.tell(answer);
            }
        }
        if self.has_departed {
            let cancelled = notification::cancelled(self.spec.id, reason);
            self.actions.push_back(Action::Cancel(cancelled));
        }
    }

    /// Ends the call: every leg gets `reply`, the session is let go, nothing follows.
    pub(super) fn finish(&mut self, reply: Reply, fate: SessionFate) {
        self.rounds.finish(&reply);
        // First the session, then the reply: the client's next call finds it warm.
        if std::mem::replace(&mut self.upstream, Upstream::Away) == Upstream::Live {
            self.actions.push_back(Action::Release(fate));
        }
        self.reply_to_all(&reply);
        self.questions.take_all();
        self.grace = None;
        self.phase = Phase::Ended;
        self.actions.push_back(Action::End);
    }

    /// Ends the call here alone: the server waits for whoever goes on with it.
    pub(super) fn let_go(&mut self) {
        self.upstream = Upstream::Away;
        self.questions.take_all();
        let elsewhere = unreached("the call goes on in another process");
        self.reply_to_all(&elsewhere);
        self.grace = None;
        self.phase = Phase::Ended;
        self.actions.push_back(Action::End);
    }

    /// Ends this run of the call alone.
    pub(super) fn put_off(&mut self) {
        self.leave_server("the call is run again by another process");
        if std::mem::replace(&mut self.upstream, Upstream::Away) == Upstream::Live {
            self.actions.push_back(Action::Release(SessionFate::Retire));
        }
        self.let_go();
    }

    pub(super) fn reply_to_all(&mut self, reply: &Reply) {
        for leg in self.legs.drain(..) {
            self.actions.push_back(Action::Reply(leg.id, reply.clone()));
        }
    }
}
