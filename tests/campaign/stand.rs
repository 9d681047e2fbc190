//! Where a run takes place: a server, Redis, and three replicas of the real binary, each with a proxy of its own before
//! the server; and the faults that befall them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use tokio::time::{Instant, sleep, sleep_until};

use super::journal::Journal;
use super::plan::{At, Cut, Process, SLOTS, Schedule, Store};
use super::server::{self, Book};
use crate::support::cutter::Cutter;
use crate::support::gateway::{Config, Gateway};
use crate::support::puppet::Puppet;
use crate::support::redis::RedisServer;

/// The header by which the server knows a replica.
pub(crate) const REPLICA: &str = "x-replica";

/// How long a question waits for its client. Beyond all faults, and soon enough to wait for where nobody comes.
pub(crate) const HOLD_TTL: Duration = Duration::from_secs(8);

/// What replicas count, of which nothing may be left.
const GAUGES: [&str; 3] = ["holdfast_calls", "holdfast_holds", "holdfast_sessions"];

/// How long everything may take to come to rest: the longest clock and a busy machine.
const REST_MAX: Duration = Duration::from_secs(25);

/// The pause between two looks at what cannot announce itself.
const LOOK: Duration = Duration::from_millis(40);

/// Announcements have come to Redis for a minute by now.
const SETTLED: &str = "local time = redis.call('TIME') \
                       local now = time[1] * 1000 + math.floor(time[2] / 1000) \
                       local first, last = string.format('%.0f', now - 60000), string.format('%.0f', now) \
                       redis.call('HSET', 'holdfast:{shared}:pulse:', 'first', first, 'last', last)";

/// All of it.
pub(crate) struct Stand {
    pub(crate) puppet: Puppet,
    pub(crate) book: Book,
    pub(crate) journal: Arc<Journal>,
    redis: tokio::sync::Mutex<RedisServer>,
    slots: Vec<Slot>,
    /// Replicas that have ended, by the names the server knows, with what they wrote.
    ended: Mutex<Vec<Ended>>,
}

/// A place for a replica.
struct Slot {
    cutter: Cutter,
    config: Config,
    /// Where clients reach it; nothing while there is none.
    addr: Mutex<Option<SocketAddr>>,
    gateway: tokio::sync::Mutex<Running>,
}

#[derive(Default)]
struct Running {
    gateway: Option<Gateway>,
    started: usize,
    name: String,
}

/// A replica that is no more.
#[derive(Clone, Debug)]
struct Ended {
    name: String,
    log: String,
}

/// What replicas counted in all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) forwarded: i64,
    pub(crate) taken_over: i64,
}

impl Stand {
    /// Everything is up.
    pub(crate) async fn up(schedule: &Schedule) -> Arc<Self> {
        let journal = Arc::new(Journal::new());
        let (puppet, book) = server::start(schedule.server, &journal).await;
        let redis = RedisServer::start().await;
        if schedule.is_settled {
            redis.cli(&["EVAL", SETTLED, "0"]).await;
        }
        let mut slots = Vec::new();
        for _ in 0..SLOTS {
            let cutter = Cutter::before(puppet.addr()).await;
            let config = config(schedule.seed, &cutter, &redis);
            slots.push(Slot {
                cutter,
                config,
                addr: Mutex::default(),
                gateway: tokio::sync::Mutex::default(),
            });
        }
        let stand = Arc::new(Self {
            puppet,
            book,
            journal,
            redis: tokio::sync::Mutex::new(redis),
            slots,
            ended: Mutex::default(),
        });
        for slot in 0..SLOTS {
            stand.start(slot).await;
        }
        stand
    }

    /// Where clients reach the replica of a slot.
    pub(crate) fn addr(&self, slot: usize) -> Option<SocketAddr> {
        *self.slots[slot].addr.lock().unwrap()
    }

    /// Replicas that have ended, by the names that the server knows.
    pub(crate) fn ended(&self) -> Vec<String> {
        let ended = self.ended.lock().unwrap();
        ended.iter().map(|ended| ended.name.clone()).collect()
    }

    async fn start(&self, slot: usize) {
        let place = &self.slots[slot];
        let mut running = place.gateway.lock().await;
        if running.gateway.is_some() {
            return;
        }
        running.begin(slot, place).await;
        self.journal
            .note(format!("replica {} starts", running.name));
    }

    async fn kill(&self, slot: usize) {
        let place = &self.slots[slot];
        let mut running = place.gateway.lock().await;
        let Some(gateway) = running.gateway.take() else {
            return;
        };
        // Its port may be another's as soon as it is gone.
        *place.addr.lock().unwrap() = None;
        self.journal
            .note(format!("replica {} is killed", running.name));
        let log = gateway.log();
        gateway.is_sound();
        gateway.kill().await;
        self.note_end(&running.name, log);
    }

    /// Another replica takes the place of one that is told to end.
    async fn replace(&self, slot: usize) {
        let place = &self.slots[slot];
        let mut running = place.gateway.lock().await;
        let (old, name) = (running.gateway.take(), running.name.clone());
        running.begin(slot, place).await;
        self.journal.note(format!(
            "replica {} takes the place of {name}",
            running.name
        ));
        let Some(old) = old else { return };
        old.signal_end();
        let log = old.log_to_the_end().await;
        self.journal.note(format!("replica {name} has ended"));
        self.note_end(&name, log);
    }

    fn note_end(&self, name: &str, log: String) {
        let name = name.to_owned();
        self.ended.lock().unwrap().push(Ended { name, log });
    }

    /// Does to replicas what is scheduled; in the end all are there.
    pub(crate) async fn processes(&self, events: &[At<Process>], begun: Instant) {
        for event in events {
            sleep_until(begun + event.at.span()).await;
            match event.what {
                Process::Kill(slot) => self.kill(slot).await,
                Process::Start(slot) => self.start(slot).await,
                Process::Roll => {
                    for slot in 0..SLOTS {
                        self.replace(slot).await;
                    }
                }
            }
        }
    }

    /// Does to Redis what is scheduled; in the end it is there.
    pub(crate) async fn store(&self, events: &[At<Store>], begun: Instant) {
        for event in events {
            sleep_until(begun + event.at.span()).await;
            let mut redis = self.redis.lock().await;
            self.journal.note(format!("Redis: {:?}", event.what));
            match event.what {
                Store::Freeze(lasts) => {
                    redis.freeze();
                    sleep(lasts.span()).await;
                    redis.thaw();
                }
                Store::Lose(lasts) => {
                    redis.kill().await;
                    sleep(lasts.span()).await;
                    redis.restart().await;
                }
            }
            self.journal.note("Redis is back");
        }
    }

    /// Does to connections what is scheduled; in the end the server can be reached.
    pub(crate) async fn lines(&self, events: &[At<Cut>], begun: Instant) {
        for event in events {
            sleep_until(begun + event.at.span()).await;
            self.journal.note(format!("connections: {:?}", event.what));
            match event.what {
                Cut::Now(slot) => self.slots[slot].cutter.cut(),
                Cut::After(slot, bytes) => self.slots[slot].cutter.cut_after(bytes),
                Cut::Away(slot, lasts) => {
                    let cutter = &self.slots[slot].cutter;
                    cutter.close(true);
                    cutter.cut();
                    sleep(lasts.span()).await;
                    cutter.close(false);
                }
            }
        }
    }

    /// Waits until nothing is held by anybody.
    pub(crate) async fn rests(&self) -> Result<(), String> {
        for (number, slot) in self.slots.iter().enumerate() {
            // What was not carried by now is not to be lost in the end.
            slot.cutter.cut_after(usize::MAX / 2);
            let running = slot.gateway.lock().await;
            let Some(gateway) = &running.gateway else {
                return Err(format!("slot {number} has no replica"));
            };
            let deadline = Instant::now() + REST_MAX;
            while let Some((gauge, value)) = unrested(gateway).await {
                if Instant::now() >= deadline {
                    return Err(format!("{gauge} of replica {} stays {value}", running.name));
                }
                sleep(LOOK).await;
            }
        }
        Ok(())
    }

    /// What the replicas that live have counted.
    pub(crate) async fn counted(&self) -> Counted {
        let mut counted = Counted::default();
        for slot in &self.slots {
            if let Some(gateway) = &slot.gateway.lock().await.gateway {
                let metrics = gateway.metrics().await;
                counted.forwarded += metrics.value("holdfast_forwarded_total");
                counted.taken_over += metrics.value("holdfast_taken_over_total");
            }
        }
        counted
    }

    /// The keys in Redis that have no end.
    pub(crate) async fn endless_keys(&self) -> String {
        let script = "local found = {} for _, key in ipairs(redis.call('KEYS', '*')) do \
                      if redis.call('PTTL', key) == -1 then found[#found + 1] = key end end return found";
        self.redis.lock().await.cli(&["EVAL", script, "0"]).await
    }

    /// The replicas that live are told to end, and do so well.
    pub(crate) async fn down(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for slot in &self.slots {
            let mut running = slot.gateway.lock().await;
            let Some(gateway) = running.gateway.take() else {
                continue;
            };
            if gateway.log().contains("panicked") {
                faults.push(format!("replica {} panicked", running.name));
            }
            let log = gateway.log();
            let code = gateway.terminate().await;
            if code != 0 {
                faults.push(format!("replica {} ended with {code}", running.name));
            }
            self.note_end(&running.name, log);
        }
        faults
    }

    /// What all replicas wrote.
    pub(crate) async fn logs(&self) -> String {
        let mut logs = String::new();
        for ended in &*self.ended.lock().unwrap() {
            logs += &format!("--- replica {}\n{}", ended.name, ended.log);
        }
        for slot in &self.slots {
            let running = slot.gateway.lock().await;
            if let Some(gateway) = &running.gateway {
                logs += &format!("--- replica {}\n{}", running.name, gateway.log());
            }
        }
        logs
    }
}

impl Running {
    /// A new replica in this slot.
    async fn begin(&mut self, slot: usize, place: &Slot) {
        self.name = format!("{slot}.{}", self.started);
        self.started += 1;
        let headers = format!("{{ {REPLICA} = {:?} }}", self.name);
        let gateway = place
            .config
            .clone()
            .backend("headers", &headers)
            .start()
            .await;
        *place.addr.lock().unwrap() = Some(gateway.addr());
        self.gateway = Some(gateway);
    }
}

/// What a replica still has.
async fn unrested(gateway: &Gateway) -> Option<(&'static str, i64)> {
    let metrics = gateway.metrics().await;
    let values = GAUGES.map(|gauge| (gauge, metrics.value(gauge)));
    values.into_iter().find(|(_, value)| *value != 0)
}

/// The configuration of a replica: with short clocks, so that much happens soon.
fn config(seed: u64, cutter: &Cutter, redis: &RedisServer) -> Config {
    // Ports are used again: replicas of other runs must not be mistaken for ours.
    let mut key = [1; 32];
    key[..8].copy_from_slice(&seed.to_be_bytes());
    let keys = format!("[{:?}]", STANDARD.encode(key));
    let seconds = |span: Duration| format!("{}s", span.as_secs());
    Config::to(cutter.url())
        .top("keys", &keys)
        .cluster("listen", "\"127.0.0.1:0\"")
        .cluster("redis", &format!("{:?}", redis.url()))
        .cluster("heartbeat", "\"150ms\"")
        // Longer than one that lives is not heard of which had given Redis up.
        .cluster("replica_ttl", "\"2400ms\"")
        .timer("session_idle", "100ms")
        .timer("hold_ttl", &seconds(HOLD_TTL))
        .timer("leg_grace", "5s")
        .timer("leg_max", "400ms")
        .timer("get_stream_wait", "5s")
        .timer("stretch_grace", "6s")
        .timer("upstream_silence_max", "5s")
        .timer("resume_max", "4s")
        .timer("shutdown_deadline", "300ms")
}
