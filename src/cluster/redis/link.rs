//! The one connection to Redis: made when it is needed, replaced when it fails, not waited for while it is down.
//!
//! A request that fails for want of time, or of a connection, breaks the circuit: those that come next fail at once, but
//! for one in each pause, which tries anew, and those that go in any case. A connection that was closed is no failure yet (a Redis that was started
//! anew): the request is made once more over a new one, since each may be repeated without harm. A connection that went
//! silent is let go: it may lead to a machine that is gone, and the crate's own `ConnectionManager` would keep it.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult,
    ScriptInvocation, ServerErrorKind, Value,
};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use crate::hold::shared::Unavailable;
use crate::observe::chain;

/// Something to ask Redis for.
pub(super) enum Request<'a> {
    Command(Cmd),
    /// By its digest, and by its text where that is not known.
    Script(ScriptInvocation<'a>),
}

pub(super) struct Link {
    client: Client,
    limit: Duration,
    pause: Duration,
    state: Mutex<State>,
    /// Held while one connects, so that the others wait for the same connection.
    connecting: tokio::sync::Mutex<()>,
}

enum State {
    /// No connection, and no failure that is known.
    Apart,
    Up(Line),
    /// It failed; then it is tried anew.
    Down {
        next: Instant,
    },
}

/// A connection and its number, which tells it from the one that replaced it.
#[derive(Clone)]
struct Line {
    connection: MultiplexedConnection,
    number: u64,
}

/// What a request is to a circuit that is broken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// One of many; none, as long as the circuit is whole.
    Common,
    /// It tries anew.
    Probe,
}

/// Why a request was not answered.
enum Broken {
    /// No connection is to be had, or it was lost under way.
    Line(RedisError),
    /// Redis itself says no.
    Refused(RedisError),
    /// The circuit broke while it waited for a connection.
    Circuit,
}

impl Link {
    pub(super) fn new(client: Client, limit: Duration, pause: Duration) -> Self {
        Self {
            client,
            limit,
            // Whatever was on its way when the circuit broke is over before it is whole again, and breaks it no more.
            pause: pause.max(limit),
            state: Mutex::new(State::Apart),
            connecting: tokio::sync::Mutex::new(()),
        }
    }

    /// Asks for something, and waits no longer than the limit. Dropped, it may happen all the same.
    pub(super) async fn ask<T: FromRedisValue>(
        &self,
        request: Request<'_>,
    ) -> Result<T, Unavailable> {
        let part = self.enter()?;
        self.ask_as(part, request).await
    }

    /// The same, whether the circuit is broken or not: for what is little and comes seldom, and what others rely on.
    pub(super) async fn ask_in_any_case<T: FromRedisValue>(
        &self,
        request: Request<'_>,
    ) -> Result<T, Unavailable> {
        let part = match &mut *self.state() {
            State::Down { next } => {
                *next = Instant::now() + self.pause;
                Part::Probe
            }
            State::Apart | State::Up(_) => Part::Common,
        };
        self.ask_as(part, request).await
    }

    async fn ask_as<T: FromRedisValue>(
        &self,
        part: Part,
        request: Request<'_>,
    ) -> Result<T, Unavailable> {
        let unavailable = match timeout(self.limit, self.attempt(&request, part)).await {
            Ok(Ok(value)) => {
                return T::from_redis_value(value).map_err(|error| failed(error.into()));
            }
            // It is there and says no: no memory, another password. Nobody waits for it in vain.
            Ok(Err(Broken::Refused(error))) => return Err(failed(error)),
            Ok(Err(Broken::Circuit)) => return Err(Unavailable::Down),
            Ok(Err(Broken::Line(error))) => failed(error),
            Err(_) => Unavailable::Late,
        };
        self.went_down(&unavailable);
        Err(unavailable)
    }

    /// Passes the circuit, or fails at once.
    fn enter(&self) -> Result<Part, Unavailable> {
        let mut state = self.state();
        let State::Down { next } = &mut *state else {
            return Ok(Part::Common);
        };
        let now = Instant::now();
        if now < *next {
            return Err(Unavailable::Down);
        }
        *next = now + self.pause;
        Ok(Part::Probe)
    }

    async fn attempt(&self, request: &Request<'_>, part: Part) -> Result<Value, Broken> {
        let mut line = self.line(part).await?;
        let mut answer = send(request, &mut line).await;
        if matches!(answer, Err(Broken::Line(_))) && part == Part::Common {
            self.drop_line(line.number);
            line = self.line(part).await?;
            answer = send(request, &mut line).await;
        }
        match &answer {
            Ok(_) => self.came_back(line, part),
            // A Redis that was made a replica of another: its name may lead to that one by now.
            Err(Broken::Refused(error)) if is_demoted(error) => self.drop_line(line.number),
            Err(Broken::Refused(_)) => self.came_back(line, part),
            Err(Broken::Line(_) | Broken::Circuit) => {}
        }
        answer
    }

    /// The connection there is, or a new one, which all but a probe put up for everybody.
    async fn line(&self, part: Part) -> Result<Line, Broken> {
        if let Some(line) = self.present(part)? {
            return Ok(line);
        }
        let _only_one = self.connecting.lock().await;
        if let Some(line) = self.present(part)? {
            return Ok(line);
        }
        let connected = self.connect().await;
        let mut state = self.state();
        match connected {
            Ok(line) => {
                if part == Part::Common {
                    *state = State::Up(line.clone());
                }
                Ok(line)
            }
            Err(error) => {
                // Here, so that those who wait for the same connection do not try one by one.
                self.turn_down(&mut state, &error);
                Err(Broken::Line(error))
            }
        }
    }

    fn present(&self, part: Part) -> Result<Option<Line>, Broken> {
        match &*self.state() {
            State::Up(line) => Ok(Some(line.clone())),
            State::Down { .. } if part == Part::Common => Err(Broken::Circuit),
            State::Down { .. } | State::Apart => Ok(None),
        }
    }

    async fn connect(&self) -> RedisResult<Line> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // The limit of the request bounds both: a second clock would only race it.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let connecting = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        // It is large, for the TLS handshake in it.
        let connection = Box::pin(connecting).await?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Line { connection, number })
    }

    fn drop_line(&self, number: u64) {
        let mut state = self.state();
        if matches!(&*state, State::Up(line) if line.number == number) {
            *state = State::Apart;
        }
    }

    fn came_back(&self, line: Line, part: Part) {
        let mut state = self.state();
        if part == Part::Probe && matches!(*state, State::Down { .. }) {
            info!("the store that replicas share is back");
            *state = State::Up(line);
        }
    }

    fn went_down(&self, why: &(dyn Error + 'static)) {
        self.turn_down(&mut self.state(), why);
    }

    fn turn_down(&self, state: &mut State, why: &(dyn Error + 'static)) {
        if !matches!(state, State::Down { .. }) {
            warn!(error = chain(why), "the store that replicas share is down");
        }
        let next = Instant::now() + self.pause;
        *state = State::Down { next };
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn send(request: &Request<'_>, line: &mut Line) -> Result<Value, Broken> {
    let connection = &mut line.connection;
    let answer: RedisResult<Value> = match request {
        Request::Command(command) => command.query_async(connection).await,
        Request::Script(script) => script.invoke_async(connection).await,
    };
    answer.map_err(|error| {
        if error.is_io_error() {
            Broken::Line(error)
        } else {
            Broken::Refused(error)
        }
    })
}

fn is_demoted(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
}

fn failed(error: RedisError) -> Unavailable {
    Unavailable::Failed(error.into())
}
