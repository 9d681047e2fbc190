//! A schedule: what clients, the server and faults are to do in one run. It is made whole from its seed before the run
//! begins; what comes of it is up to the clock and the processes.

use std::fmt;
use std::time::Duration;

/// How many replicas there are.
pub(crate) const SLOTS: usize = 3;

/// Everything that is to happen in one run.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pub(crate) seed: u64,
    pub(crate) server: Server,
    /// Redis has heard of replicas for so long that who is silent counts as gone.
    pub(crate) is_settled: bool,
    pub(crate) calls: Vec<CallPlan>,
    /// What becomes of replicas, one after the other.
    pub(crate) processes: Vec<At<Process>>,
    /// What becomes of Redis, one after the other.
    pub(crate) store: Vec<At<Store>>,
    /// What becomes of the connections to the server, one after the other.
    pub(crate) lines: Vec<At<Cut>>,
}

/// Something that is not done before this time of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<T> {
    pub(crate) at: Ms,
    pub(crate) what: T,
}

/// How the server speaks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    /// Its events carry ids, and it resumes streams.
    pub(crate) resumes: bool,
    /// It offers a GET stream.
    pub(crate) has_general_stream: bool,
    /// It answers a cancelled call with an error, instead of falling silent.
    pub(crate) answers_cancelled: bool,
}

/// One call and its client.
#[derive(Clone, Debug)]
pub(crate) struct CallPlan {
    pub(crate) at: Ms,
    /// Which of the principals makes it.
    pub(crate) by: usize,
    /// The replica that it goes to.
    pub(crate) to: usize,
    /// The tool says that it may be repeated.
    pub(crate) is_repeatable: bool,
    pub(crate) wants_progress: bool,
    /// The client goes away in the first leg, and for good.
    pub(crate) leaves_at_once: Option<Ms>,
    pub(crate) asks: Vec<Ask>,
    /// What the tool works before its result.
    pub(crate) works: Ms,
}

/// What the tool asks, and what its client does about it.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// What the tool works before.
    pub(crate) works: Ms,
    pub(crate) form: Form,
    pub(crate) turn: Turn,
}

/// In which form it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    One,
    /// Two questions at once.
    Pair,
    /// One question, on the session's general stream.
    Aside,
}

impl Form {
    pub(crate) fn questions(self) -> usize {
        match self {
            Self::One | Self::Aside => 1,
            Self::Pair => 2,
        }
    }
}

/// How a client answers a round.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    /// The person thinks.
    pub(crate) thinks: Ms,
    /// The replica that the re-issue goes to.
    pub(crate) to: usize,
    /// It declines instead of accepting.
    pub(crate) declines: bool,
    pub(crate) begins: Beginning,
    /// It goes away in the leg after this time, and comes back with the same.
    pub(crate) leaves: Option<Ms>,
    /// The same re-issue at the same moment, or shortly after.
    pub(crate) twin: Option<Other>,
    /// A re-issue with other answers.
    pub(crate) rival: Option<Other>,
    /// The same re-issue once more when the call has gone on.
    pub(crate) late: Option<Other>,
    /// The person never answers.
    pub(crate) abandons: bool,
}

/// What a client does before it answers as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    Rightly,
    /// It answers wrongly.
    Wrongly,
    /// Of two questions it answers one.
    InPart,
}

/// Another re-issue of the same round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Other {
    pub(crate) after: Ms,
    pub(crate) to: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Process {
    /// `kill -9`.
    Kill(usize),
    /// A new one takes the place of one that was killed.
    Start(usize),
    /// All are replaced in turn, by SIGTERM.
    Roll,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Store {
    /// It stands still for a while, with its connections open.
    Freeze(Ms),
    /// It dies, and is back after a while, empty.
    Lose(Ms),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    /// All connections of a replica with the server.
    Now(usize),
    /// The connection that carries the last of so many bytes of the server to a replica.
    After(usize, usize),
    /// The server cannot be reached by a replica for a while.
    Away(usize, Ms),
}

/// Milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ms(pub(crate) u64);

impl Ms {
    pub(crate) fn span(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl fmt::Debug for Ms {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}ms", self.0)
    }
}

impl Schedule {
    /// Whether a replica ends before its calls do.
    pub(crate) fn ends_replicas(&self) -> bool {
        !self.processes.is_empty()
    }

    pub(crate) fn kills(&self) -> bool {
        let is_kill = |process: &At<Process>| matches!(process.what, Process::Kill(_));
        self.processes.iter().any(is_kill)
    }

    pub(crate) fn rolls(&self) -> bool {
        let is_roll = |process: &At<Process>| matches!(process.what, Process::Roll);
        self.processes.iter().any(is_roll)
    }

    pub(crate) fn cuts(&self) -> bool {
        !self.lines.is_empty()
    }

    pub(crate) fn store_fails(&self) -> bool {
        !self.store.is_empty()
    }

    /// Nothing fails but clients: each call has to end in its result.
    pub(crate) fn is_calm(&self) -> bool {
        !self.ends_replicas() && !self.cuts() && !self.store_fails()
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "schedule {}", self.seed)?;
        writeln!(
            formatter,
            "  {:?}, Redis is settled: {}",
            self.server, self.is_settled
        )?;
        for (number, call) in self.calls.iter().enumerate() {
            let CallPlan { asks, .. } = call;
            let bare = CallPlan {
                asks: Vec::new(),
                ..call.clone()
            };
            writeln!(formatter, "  call {number}: {bare:?}")?;
            for ask in asks {
                writeln!(formatter, "    {ask:?}")?;
            }
        }
        for event in &self.processes {
            writeln!(formatter, "  at {:?}: {:?}", event.at, event.what)?;
        }
        for event in &self.store {
            writeln!(formatter, "  at {:?}: Redis: {:?}", event.at, event.what)?;
        }
        for event in &self.lines {
            writeln!(
                formatter,
                "  at {:?}: connections: {:?}",
                event.at, event.what
            )?;
        }
        Ok(())
    }
}
