//! The event store of a puppet: the streams of its scripts, which can be resumed.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;

use super::outgoing::Out;

/// What an attempt to resume a stream meets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Resuming {
    /// The stream goes on.
    #[default]
    Offered,
    /// A refusal.
    Status(u16),
    /// An event stream that ends at once, without an event.
    Empty,
    /// Nothing at all.
    Silence,
}

/// The stream of one script.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) name: String,
    /// The data of its events so far; the id of each is the name and its place, from 1 on.
    events: Mutex<Vec<String>>,
    /// What the script puts on it. Whoever writes it to a connection holds the lock.
    pub(super) scripted: tokio::sync::Mutex<mpsc::Receiver<Out>>,
}

impl Stream {
    /// Keeps an event; its place.
    pub(super) fn push(&self, data: &str) -> usize {
        let mut events = self.events.lock().unwrap();
        events.push(data.to_owned());
        events.len()
    }

    pub(super) fn events(&self) -> Vec<String> {
        self.events.lock().unwrap().clone()
    }
}

#[derive(Debug, Default)]
pub(super) struct Store {
    streams: Mutex<HashMap<String, Arc<Stream>>>,
    resuming: Mutex<(VecDeque<Resuming>, Resuming)>,
}

impl Store {
    /// Keeps the stream of a script.
    pub(super) fn keep(&self, name: &str, scripted: mpsc::Receiver<Out>) -> Arc<Stream> {
        let stream = Arc::new(Stream {
            name: name.to_owned(),
            events: Mutex::default(),
            scripted: tokio::sync::Mutex::new(scripted),
        });
        let mut streams = self.streams.lock().unwrap();
        streams.insert(name.to_owned(), Arc::clone(&stream));
        stream
    }

    /// The stream of an event, and the place of that.
    pub(super) fn find(&self, id: &str) -> Option<(Arc<Stream>, usize)> {
        let (name, at) = id.rsplit_once('-')?;
        let stream = self.streams.lock().unwrap().get(name).cloned()?;
        Some((stream, at.parse().ok()?))
    }

    pub(super) fn meet(&self, next: &[Resuming], then: Resuming) {
        *self.resuming.lock().unwrap() = (next.iter().copied().collect(), then);
    }

    /// What the attempt meets that was made just now.
    pub(super) fn met(&self) -> Resuming {
        let mut resuming = self.resuming.lock().unwrap();
        let then = resuming.1;
        resuming.0.pop_front().unwrap_or(then)
    }
}
