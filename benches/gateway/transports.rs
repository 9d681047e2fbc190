//! Plain and held calls over the transports on which a session has one channel, as ratios to the direct way.

use super::Sizes;
use super::channel::Transport;
use super::conversation::{Era, Tool};
use super::load::{Variant, Way};
use super::peers;
use super::tables::{Row, medians};

/// Clients at once: each has a session, over standard streams a process, in the direct way and behind the gateway.
const CLIENTS: usize = 8;

/// The same while calls are held, see `tables.rs`: as many as keep the machine busy, or as many processes as the gateway
/// starts, which then pays for falling asleep and waking up.
const fn held_at_once(transport: Transport) -> usize {
    match transport {
        Transport::Stdio => 32,
        Transport::HttpSse(_) | Transport::WebSocket(_) => 24 * CLIENTS,
    }
}

/// What a transport is called, and its four variants.
type Names = (&'static str, [&'static str; 4]);

const STDIO: Names = (
    "stdio",
    [
        "stdio direct",
        "stdio holdfast",
        "stdio question",
        "stdio held",
    ],
);
const SSE: Names = (
    "http+sse",
    [
        "http+sse direct",
        "http+sse holdfast",
        "http+sse question",
        "http+sse held",
    ],
);
const WEBSOCKET: Names = (
    "websocket",
    [
        "websocket direct",
        "websocket holdfast",
        "websocket question",
        "websocket held",
    ],
);

/// Measures each transport in turn.
pub(crate) async fn calls(sizes: &Sizes) {
    let (server, sse, websocket) = peers::channels();
    for ((name, names), transport) in [
        (STDIO, Transport::Stdio),
        (SSE, Transport::HttpSse(sse)),
        (WEBSOCKET, Transport::WebSocket(websocket)),
    ] {
        let gateway = peers::gateway_with(&transport.arguments());
        let upstream = (transport != Transport::Stdio).then_some(&server);
        let variant = |at: usize, tool, is_direct: bool| Variant {
            name: names[at],
            way: match is_direct {
                true => Way::Channel(transport),
                false => Way::Http(Era::Modern, gateway.addr),
            },
            tool,
            clients: if tool == Tool::Asking {
                held_at_once(transport)
            } else {
                CLIENTS
            },
            between: (!is_direct).then_some(&gateway.process),
            upstream,
        };
        let variants = [
            variant(0, Tool::Json, true),
            variant(1, Tool::Json, false),
            variant(2, Tool::Asking, true),
            variant(3, Tool::Asking, false),
        ];
        let rows = medians(sizes, &variants).await;
        ratios(name, &rows);
    }
}

/// The p50 of a held call contains the pause in which questions are gathered.
fn ratios(transport: &str, rows: &[Row]) {
    let [direct, plain, question, held] = rows else {
        return;
    };
    println!(
        "{transport} plain holdfast / direct: {}",
        plain.against(direct),
    );
    println!(
        "{transport} held holdfast / question direct: p50 ×{:.2} ({:+.1} ms); CPU of the gateway ×{:.2} of a plain call\n",
        held.p50 / question.p50,
        (held.p50 - question.p50) / 1e3,
        held.cpu / plain.cpu,
    );
}
