//! `holdfast serve`: the gateway in front of one server, for clients over HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;

use super::gateway::{BackendArgs, Core, Signals, identity};
use super::{Failure, LogFormat, tell};
use holdfast::cluster::hop::{Hop, Pulse};
use holdfast::cluster::identity::Identity;
use holdfast::cluster::redis::{Redis, RedisSettings};
use holdfast::config::{self, Settings};
use holdfast::hold::seal::ReplicaId;
use holdfast::hold::shared::memory::Memory;
use holdfast::hold::shared::{Announced, Shared};
use holdfast::listen::{self, Front, ReplicaTerms, Terms, Workers};
use holdfast::observe::Count;
use tokio::net::TcpListener;
use tokio::time::{MissedTickBehavior, timeout};

/// Options of `holdfast serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    backend: BackendArgs,
    /// Where to listen [default: 127.0.0.1:8080, or as configured]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Where /healthz, /readyz and /metrics are served [default: nowhere, or as configured]
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
    /// How log lines are written to standard error
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,
}

pub(super) fn run(args: &ServeArgs) -> Result<(), Failure> {
    args.log_format.install();
    let settings = args.backend.settings(args.listen, args.admin)?;
    if settings.keys_are_random {
        tracing::warn!(
            "no sealing key is configured: a random one is used, which no other process knows and no restart keeps"
        );
    }
    if let Some(file) = &settings.open_keys_file {
        let file = file.display();
        tracing::warn!(
            %file,
            "every user of this machine can read the sealing keys: take it away from others (chmod o-r)"
        );
    }
    let (backend, upstream) = (
        settings.backend.name.clone(),
        settings.backend.legacy.clone(),
    );
    super::scheduler()?.block_on(async {
        // Before the ready line: whoever reads it may send a signal at once.
        let mut signals = Signals::new().map_err(Failure::Runtime)?;
        let running = start(settings).await.map_err(Failure::Runtime)?;
        tracing::info!(backend, %upstream, "serving");
        if let Some(admin) = running.admin {
            tell(format_args!("holdfast admin on http://{admin}"));
        }
        if let Some(cluster) = &running.cluster {
            let (address, advertised) = (cluster.address, &cluster.advertised);
            tracing::info!(%address, advertised, "serving other replicas");
            tell(format_args!("holdfast cluster on {address}"));
        }
        tell(format_args!(
            "holdfast listening on http://{}/mcp",
            running.address
        ));
        signals.next().await;
        running.shutdown(signals.second()).await;
        Ok(())
    })
}

/// A gateway that serves.
#[derive(Debug)]
pub(crate) struct Running {
    /// Where clients reach it.
    pub(crate) address: SocketAddr,
    /// Where its admin listener is, if it has one.
    pub(crate) admin: Option<SocketAddr>,
    cluster: Option<ClusterAddress>,
    core: Core,
    workers: Arc<Workers>,
}

/// Where other replicas reach it.
#[derive(Debug)]
struct ClusterAddress {
    /// Where it listens.
    address: SocketAddr,
    /// What the others are told.
    advertised: String,
}

/// What a gateway needs to be one of several replicas.
struct Replica {
    shared: Arc<dyn Shared>,
    life: Life,
    listener: TcpListener,
    address: ClusterAddress,
    identity: Identity,
    pulse: Pulse,
}

impl Replica {
    async fn new(settings: &Settings, me: ReplicaId) -> anyhow::Result<Option<Self>> {
        let Some(cluster) = &settings.cluster else {
            return Ok(None);
        };
        let (listener, address) = bound(cluster.listen).await?;
        let advertised = cluster.advertise.at(address);
        let redis = RedisSettings {
            prefix: cluster.redis_prefix.clone(),
            authorities: cluster.redis_authorities.clone(),
            ..RedisSettings::new(cluster.redis.clone(), cluster.replica_ttl)
        };
        Ok(Some(Self {
            shared: Arc::new(Redis::new(redis, Arc::clone(&settings.keys))?),
            life: Life {
                me,
                address: advertised.clone(),
                heartbeat: cluster.heartbeat,
                ttl: cluster.replica_ttl,
            },
            listener,
            address: ClusterAddress {
                address,
                advertised,
            },
            identity: Identity::of(&settings.keys)?,
            // A connection is given up as soon as a replica would count as gone.
            pulse: Pulse {
                ping_interval: cluster.heartbeat,
                silence_max: cluster.replica_ttl,
            },
        }))
    }

    fn hop(&self, core: &Core) -> Hop {
        let identity = self.identity.clone();
        Hop::new(identity, self.pulse, core.tasks.clone(), core.cut.clone())
    }

    /// Serves the others.
    fn serve(
        self,
        terms: Terms,
        core: &Core,
        front: Arc<Front>,
        workers: Arc<Workers>,
    ) -> ClusterAddress {
        let metrics = core.gateway.metrics();
        let replicas = ReplicaTerms {
            identity: self.identity,
            pulse: self.pulse,
            count: metrics.replica_connections.clone(),
            strangers: metrics.strangers.clone(),
        };
        let serving = listen::serve_replicas(self.listener, terms, replicas, front, workers);
        core.tasks.spawn(serving);
        // Who can be found can be reached, and leaves when its calls have ended.
        core.gateway.begin_unknown();
        let living = self.life.lived(self.shared, core);
        core.tasks.spawn(living);
        self.address
    }
}

/// How long a replica waits to be known to the others before it is ready. What keeps Redis away for longer keeps it away
/// from all, and calls are better held by one that is not known than by none. Kubernetes looks every few seconds.
const UNKNOWN_MAX: Duration = Duration::from_secs(5);

/// As what a replica lives.
struct Life {
    me: ReplicaId,
    address: String,
    heartbeat: Duration,
    ttl: Duration,
}

impl Life {
    /// Says again and again that it lives, until the gateway ends: then it leaves, as soon as others can learn how its calls
    /// have ended.
    fn lived(self, shared: Arc<dyn Shared>, core: &Core) -> impl Future<Output = ()> + use<> {
        let (end, gateway) = (core.stop.clone(), Arc::clone(&core.gateway));
        let backend = Arc::clone(core.backend());
        async move {
            let mut beats = tokio::time::interval(self.heartbeat);
            beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
            // That Redis cannot be reached is logged where it is found; the next beat tries again.
            let known = async {
                loop {
                    beats.tick().await;
                    if self.announced(&*shared).await.is_some() {
                        break;
                    }
                }
            };
            let known = end.run_until_cancelled(timeout(UNKNOWN_MAX, known)).await;
            gateway.become_known();
            if let Some(Err(_)) = known {
                tracing::warn!(
                    "ready without being known to other replicas: what is held here is found by nobody yet"
                );
            }
            while end.run_until_cancelled(beats.tick()).await.is_some() {
                if self.announced(&*shared).await == Some(Announced::Anew) {
                    tracing::warn!("this replica counted as gone, or Redis has forgotten it");
                    // Aside: there may be many calls, and the next beat is due meanwhile.
                    let found = Arc::clone(&backend);
                    backend.tasks.spawn(async move { found.find_place().await });
                }
            }
            backend.calls.wait().await;
            let _ = shared.leave(self.me).await;
        }
    }

    async fn announced(&self, shared: &dyn Shared) -> Option<Announced> {
        let announced = shared.announce(self.me, &self.address, self.ttl).await;
        announced.ok()
    }
}

async fn bound(address: SocketAddr) -> anyhow::Result<(TcpListener, SocketAddr)> {
    listen::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}"))
}

/// Starts a gateway; it serves when this returns.
///
/// # Errors
/// When an address is not to be had.
pub(crate) async fn start(settings: Settings) -> anyhow::Result<Running> {
    let (listener, address) = bound(settings.listen).await?;
    let admin = match settings.admin {
        Some(admin) => Some(bound(admin).await?),
        None => None,
    };
    let me = identity()?;
    let replica = Replica::new(&settings, me).await?;
    let (timers, threads) = (settings.timers.clone(), settings.threads);
    let connections_max = settings.limits.connections_max;
    let front = Front::terms_of(&settings, address.ip().is_loopback());
    let workers = Workers::start(threads).context("no threads to serve with")?;
    let workers = Arc::new(workers);
    let shared: Arc<dyn Shared> = match &replica {
        Some(replica) => Arc::clone(&replica.shared),
        None => Arc::new(Memory::default()),
    };
    let core = Core::start(settings, me, shared);
    let terms = Terms {
        connections_max,
        client_idle: timers.client_idle,
        client_write_timeout: timers.client_write_timeout,
        count: core.gateway.metrics().connections.clone(),
        connections: core.connections.clone(),
        stop: core.stop.clone(),
        cut: core.cut.clone(),
    };
    let hop = replica.as_ref().map(|replica| replica.hop(&core));
    let front = Arc::new(front.before(Arc::clone(&core.gateway), hop));
    let cluster = replica.map(|replica| {
        let (front, workers) = (Arc::clone(&front), Arc::clone(&workers));
        replica.serve(terms.clone(), &core, front, workers)
    });
    let serving = listen::serve_clients(listener, terms.clone(), front, Arc::clone(&workers));
    core.tasks.spawn(serving);
    let admin = admin.map(|(listener, admin)| {
        // Not counted: whoever reads the metrics would find himself in them.
        let terms = Terms {
            count: Count::default(),
            ..terms
        };
        let serving = listen::serve_admin(listener, terms, Arc::clone(&core.gateway));
        core.tasks.spawn(serving);
        admin
    });
    Ok(Running {
        address,
        admin,
        cluster,
        core,
        workers,
    })
}

impl Running {
    /// Ends the gateway; see [`Core::shutdown`].
    pub(crate) async fn shutdown(self, hurry: impl Future<Output = &'static str>) {
        self.core.shutdown(hurry).await;
        if let Some(workers) = Arc::into_inner(self.workers) {
            workers.end();
        }
    }
}

/// `holdfast check-config FILE`.
#[derive(Debug, Args)]
pub(crate) struct CheckConfigArgs {
    /// The file to check
    file: PathBuf,
}

pub(super) fn check_config(args: &CheckConfigArgs) -> Result<(), Failure> {
    let settings =
        config::load(&args.file, None, None).map_err(|error| Failure::Usage(error.into()))?;
    let cluster = settings.cluster.map_or_else(String::new, |cluster| {
        let (listen, advertised) = (cluster.listen, cluster.advertise.at(cluster.listen));
        format!(", one of several replicas on {listen}, reached at {advertised}")
    });
    let summary = format!(
        "{}: backend {:?} at {}, listening on {}{cluster}\n",
        args.file.display(),
        settings.backend.name,
        settings.backend.legacy,
        settings.listen
    );
    std::io::Write::write_all(&mut std::io::stdout(), summary.as_bytes())
        .map_err(|error| Failure::Runtime(anyhow!(error).context("standard output is closed")))
}
