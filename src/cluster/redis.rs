//! What replicas share, in Redis 7 or Valkey 8 (one node, or one that others take over from; not in cluster mode).
//!
//! # Who may do what
//! Whoever reads this Redis learns nothing of what is said in calls (it does see replicas' ids and rounds), and whoever
//! writes to it can hinder but not impersonate: outcomes, lists and addresses are sealed with the gateway's keys, each
//! for its own name, so that nobody gets callers sent to an address of his own, or a result shown that no server gave.
//! The names of holds are digests, and what is kept of answers is a digest under the hold's id, which Redis never sees;
//! an id that only the sealing keys reveal is as good as a key, and stays the same while those are rotated. Who writes
//! can still delete, or claim for a replica that does not exist.
//!
//! # What it relies on
//! Redis may be slow, gone, or come back without its data. `link` bounds the first two. For the third, nobody counts
//! as dead until announcements have come for [`RedisSettings::settle`] without a gap: a live replica that was forgotten
//! is not adopted. The records that were lost are written again by [`Shared::take`]. It must not evict keys
//! (`maxmemory-policy noeviction`): all have an end of their own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::{Client, Cmd, Script, TlsCertificates};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sha2::{Digest, Sha256};

use self::link::{Link, Request};
use self::said::{Said, odd};
use crate::call::{AnswersDigest, Round};
use crate::hold::seal::{HoldId, ReplicaId, SEAL_BYTES, SealingKeys};
use crate::hold::shared::{
    Announced, Claim, KeptList, LIST_BYTES_MAX, OUTCOME_BYTES_MAX, Pending, Record, Shared, Stake,
    Taken, Unavailable,
};

mod link;
mod said;
mod settings;
mod url;

pub use settings::RedisSettings;
pub use url::{BadRedisUrl, RedisUrl};

/// The longest address: a DNS name of 253 bytes and a port, rounded up.
const ADDRESS_BYTES_MAX: usize = 512;

/// The longest that anything is kept. Far beyond what a person is waited for.
const TTL_MAX: Duration = Duration::from_secs(86400 * 30);

/// Why Redis cannot be used as the settings say.
#[derive(Debug, thiserror::Error)]
pub enum RedisError {
    /// Its address.
    #[error("the address of Redis is of no use")]
    Url(#[from] BadRedisUrl),
    /// Authorities.
    #[error("the authorities for Redis are no certificates that are understood")]
    Authorities,
}

/// See the module.
pub struct Redis {
    settings: RedisSettings,
    keys: Arc<SealingKeys>,
    link: Link,
    scripts: Scripts,
}

struct Scripts {
    announce: Script,
    claim: Script,
    take: Script,
    take_back: Script,
    release: Script,
    remember: Script,
    list: Script,
}

impl fmt::Debug for Redis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("Redis")
            .field(&self.settings)
            .finish()
    }
}

impl Redis {
    /// Connects to nothing yet: that is done when something is asked.
    ///
    /// # Errors
    /// When the settings are of no use.
    pub fn new(settings: RedisSettings, keys: Arc<SealingKeys>) -> Result<Self, RedisError> {
        let connection = settings.url.connection()?;
        if settings.url.is_tls() {
            // The crate takes the process's cryptography, and panics where there is none or a choice. It fails when one
            // was named before, which is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let client = match settings
            .authorities
            .clone()
            .filter(|_| settings.url.is_tls())
        {
            None => Client::open(connection).map_err(|_| BadRedisUrl::Part)?,
            Some(authorities) => {
                if !are_certificates(&authorities) {
                    return Err(RedisError::Authorities);
                }
                let certificates = TlsCertificates {
                    client_tls: None,
                    root_cert: Some(authorities),
                };
                Client::build_with_tls(connection, certificates)
                    .map_err(|_| RedisError::Authorities)?
            }
        };
        let link = Link::new(client, settings.limit, settings.probe_pause);
        let scripts = Scripts {
            announce: script(include_str!("redis/announce.lua")),
            claim: script(include_str!("redis/claim.lua")),
            take: script(include_str!("redis/take.lua")),
            take_back: Script::new(include_str!("redis/take_back.lua")),
            release: Script::new(include_str!("redis/release.lua")),
            remember: Script::new(include_str!("redis/remember.lua")),
            list: Script::new(include_str!("redis/list.lua")),
        };
        Ok(Self {
            settings,
            keys,
            link,
            scripts,
        })
    }

    /// All names share a hash tag: a script finds all its keys on one node.
    fn name(&self, kind: &str, of: &str) -> String {
        format!("{}{{shared}}:{kind}:{of}", self.settings.prefix)
    }

    fn replica(&self, replica: ReplicaId) -> String {
        self.name("replica", &hex(&replica.0))
    }

    fn hold(&self, kind: &str, hold: HoldId) -> String {
        let digest = Sha256::new()
            .chain_update(b"holdfast hold 1")
            .chain_update(hold.0)
            .finalize();
        self.name(kind, &hex(&digest[..16]))
    }

    fn place(&self, place: [u8; 32]) -> String {
        self.name("list", &hex(&place))
    }

    fn pulse(&self) -> String {
        self.name("pulse", "")
    }

    fn seal(&self, name: &str, bytes: &[u8]) -> Result<Vec<u8>, Unavailable> {
        let sealed = self.keys.seal_bytes(name.as_bytes(), bytes);
        sealed.map_err(|error| Unavailable::Failed(error.into()))
    }

    /// Puts a sealed value; one that is too large, or at its end, takes away what was there.
    async fn put(
        &self,
        name: String,
        value: Bytes,
        bytes_max: usize,
        ttl: Duration,
    ) -> Result<(), Unavailable> {
        let span = millis(ttl);
        if value.len() > bytes_max || span == 0 {
            return self.forget(name).await;
        }
        let sealed = self.seal(&name, &value)?;
        let mut command = redis::cmd("SET");
        command.arg(name).arg(sealed).arg("PX").arg(span);
        self.command(command).await
    }

    async fn forget(&self, name: String) -> Result<(), Unavailable> {
        let mut command = redis::cmd("DEL");
        command.arg(name);
        self.command(command).await
    }

    /// A sealed value; nothing when there is none that a key of ours has sealed under this name.
    async fn value(&self, name: String, bytes_max: usize) -> Result<Option<Vec<u8>>, Unavailable> {
        // No more is read than may be there, whoever put it there. Of nothing, the range is empty.
        let mut command = redis::cmd("GETRANGE");
        command.arg(&name).arg(0).arg(bytes_max + SEAL_BYTES);
        let sealed: Vec<u8> = self.command(command).await?;
        Ok(self.opened(&name, &sealed))
    }

    fn opened(&self, name: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        if sealed.is_empty() {
            return None;
        }
        let value = self.keys.open_bytes(name.as_bytes(), sealed);
        if value.is_none() {
            tracing::warn!(
                name,
                "what replicas share holds a value that no key of this gateway sealed"
            );
        }
        value
    }

    async fn command<T: redis::FromRedisValue>(&self, command: Cmd) -> Result<T, Unavailable> {
        self.link.ask(Request::Command(command)).await
    }

    /// The keys and arguments that claims and takes begin with.
    fn of_stake<'a>(&self, script: &'a Script, stake: &Stake) -> redis::ScriptInvocation<'a> {
        let mut invocation = script.prepare_invoke();
        invocation
            .key(self.hold("hold", stake.hold))
            .key(self.pulse())
            .key(self.replica(stake.sealed_owner))
            .arg(hex(&stake.me.0))
            .arg(hex(&stake.sealed_owner.0))
            .arg(millis(stake.ttl))
            .arg(millis(self.settings.settle))
            .arg(self.name("replica", ""));
        invocation
    }

    /// What becomes of a claim, or would become of it.
    async fn claimed(&self, stake: Stake, is_meant: bool) -> Result<Claim, Unavailable> {
        let mut invocation = self.of_stake(&self.scripts.claim, &stake);
        invocation.arg(u8::from(is_meant));
        let said = self.said(invocation).await?;
        match said.word()? {
            "mine" => Ok(Claim::Mine(Record {
                generation: said.number(1)?.ok_or_else(odd)?,
                taken: said.number(2)?.map(Round),
            })),
            "other" => Ok(Claim::Other(said.replica()?)),
            "unsettled" => Err(Unavailable::Unsettled),
            _ => Err(odd()),
        }
    }

    async fn said(&self, invocation: redis::ScriptInvocation<'_>) -> Result<Said, Unavailable> {
        self.link.ask(Request::Script(invocation)).await.map(Said)
    }
}

impl Shared for Redis {
    fn has_others(&self) -> bool {
        true
    }

    fn announce<'a>(
        &'a self,
        me: ReplicaId,
        address: &'a str,
        ttl: Duration,
    ) -> Pending<'a, Announced> {
        Box::pin(async move {
            let name = self.replica(me);
            let sealed = self.seal(&name, address.as_bytes())?;
            let mut invocation = self.scripts.announce.prepare_invoke();
            invocation
                .key(name)
                .key(self.pulse())
                .arg(sealed)
                .arg(millis(ttl).max(1))
                .arg(millis(self.settings.settle));
            let request = Request::Script(invocation);
            let was_alive: bool = self.link.ask_in_any_case(request).await?;
            Ok(if was_alive {
                Announced::Still
            } else {
                Announced::Anew
            })
        })
    }

    fn leave(&self, me: ReplicaId) -> Pending<'_, ()> {
        Box::pin(async move {
            let mut command = redis::cmd("DEL");
            command.arg(self.replica(me));
            self.link.ask_in_any_case(Request::Command(command)).await
        })
    }

    fn address_of(&self, replica: ReplicaId) -> Pending<'_, Option<String>> {
        Box::pin(async move {
            let address = self.value(self.replica(replica), ADDRESS_BYTES_MAX).await?;
            Ok(address.and_then(|address| String::from_utf8(address).ok()))
        })
    }

    fn claim(&self, stake: Stake) -> Pending<'_, Claim> {
        Box::pin(self.claimed(stake, true))
    }

    fn whose(&self, stake: Stake) -> Pending<'_, Claim> {
        Box::pin(self.claimed(stake, false))
    }

    fn take(&self, stake: Stake, round: Round, answers: AnswersDigest) -> Pending<'_, Taken> {
        Box::pin(async move {
            let mut invocation = self.of_stake(&self.scripts.take, &stake);
            invocation
                .arg(round.0)
                .arg(veiled(stake.hold, round, answers));
            let said = self.said(invocation).await?;
            match said.word()? {
                "fresh" => Ok(Taken::Fresh),
                "again" => Ok(Taken::Again(said.replica()?)),
                "otherwise" => Ok(Taken::Otherwise),
                "lost" => Ok(Taken::Lost(said.replica()?)),
                "unsettled" => Err(Unavailable::Unsettled),
                _ => Err(odd()),
            }
        })
    }

    fn take_back(&self, stake: Stake, round: Round, answers: AnswersDigest) -> Pending<'_, ()> {
        Box::pin(async move {
            let mut invocation = self.scripts.take_back.prepare_invoke();
            invocation
                .key(self.hold("hold", stake.hold))
                .arg(hex(&stake.me.0))
                .arg(round.0)
                .arg(veiled(stake.hold, round, answers));
            self.link.ask(Request::Script(invocation)).await
        })
    }

    fn release(&self, hold: HoldId, me: ReplicaId, keep: Duration) -> Pending<'_, ()> {
        Box::pin(async move {
            let mut invocation = self.scripts.release.prepare_invoke();
            invocation
                .key(self.hold("hold", hold))
                .arg(hex(&me.0))
                .arg(millis(keep));
            self.link.ask(Request::Script(invocation)).await
        })
    }

    fn remember(
        &self,
        hold: HoldId,
        me: ReplicaId,
        outcome: Bytes,
        ttl: Duration,
    ) -> Pending<'_, ()> {
        Box::pin(async move {
            let name = self.hold("outcome", hold);
            let (sealed, span) = match outcome.len() > OUTCOME_BYTES_MAX {
                true => (Vec::new(), 0),
                false => (self.seal(&name, &outcome)?, millis(ttl)),
            };
            let mut invocation = self.scripts.remember.prepare_invoke();
            invocation
                .key(self.hold("hold", hold))
                .key(name)
                .arg(hex(&me.0))
                .arg(sealed)
                .arg(span);
            self.link.ask(Request::Script(invocation)).await
        })
    }

    fn recall(&self, hold: HoldId) -> Pending<'_, Option<Bytes>> {
        Box::pin(async move {
            let outcome = self
                .value(self.hold("outcome", hold), OUTCOME_BYTES_MAX)
                .await?;
            Ok(outcome.map(Bytes::from))
        })
    }

    fn put_list(&self, place: [u8; 32], list: Bytes, ttl: Duration) -> Pending<'_, ()> {
        Box::pin(self.put(self.place(place), list, LIST_BYTES_MAX, ttl))
    }

    fn list(&self, place: [u8; 32]) -> Pending<'_, Option<KeptList>> {
        Box::pin(async move {
            let name = self.place(place);
            let mut invocation = self.scripts.list.prepare_invoke();
            invocation.key(&name).arg(LIST_BYTES_MAX + SEAL_BYTES);
            let (sealed, left_ms): (Vec<u8>, i64) =
                self.link.ask(Request::Script(invocation)).await?;
            // Of what has no end, none of ours, nothing is left.
            let left = Duration::from_millis(u64::try_from(left_ms).unwrap_or_default());
            let list = self.opened(&name, &sealed).map(Bytes::from);
            Ok(list.map(|bytes| KeptList { bytes, left }))
        })
    }
}

/// The client library trusts nobody where there is none, and says so only when it connects.
fn are_certificates(pem: &[u8]) -> bool {
    let mut certificates = CertificateDer::pem_slice_iter(pem).peekable();
    certificates.peek().is_some() && certificates.all(|certificate| certificate.is_ok())
}

/// Those scripts share the judgement of who counts as dead.
fn script(text: &str) -> Script {
    Script::new(&[include_str!("redis/settled.lua"), text].concat())
}

/// What is kept of answers: many a set of answers is guessed easily, the id of its hold is not.
fn veiled(hold: HoldId, round: Round, answers: AnswersDigest) -> String {
    let digest = Sha256::new()
        .chain_update(b"holdfast answers 1")
        .chain_update(hold.0)
        .chain_update(round.0.to_be_bytes())
        .chain_update(answers.0)
        .finalize();
    hex(&digest[..16])
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.min(TTL_MAX).as_millis()).unwrap_or_default()
}
