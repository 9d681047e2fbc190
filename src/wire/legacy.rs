//! Names of the legacy era (revisions 2024-11-05 to 2025-11-25).

/// Legacy revisions in rising order; `initialize` offers the last one and accepts what the server picks.
pub const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// The first revision whose HTTP requests carry `MCP-Protocol-Version`.
pub const FIRST_WITH_VERSION_HEADER: &str = "2025-06-18";

/// Server request: ask the person.
pub const ELICITATION_CREATE: &str = "elicitation/create";
/// Server request: ask the client's model.
pub const SAMPLING_CREATE_MESSAGE: &str = "sampling/createMessage";
/// Server request: ask for the client's roots.
pub const ROOTS_LIST: &str = "roots/list";
/// Client notification: the server may ask for the roots again.
pub const ROOTS_LIST_CHANGED: &str = "notifications/roots/list_changed";
/// Request of either side: is the peer alive.
pub const PING: &str = "ping";
/// Client request that opens a session.
pub const INITIALIZE: &str = "initialize";
/// Client request: from which level log messages are wanted on the session.
pub const LOGGING_SET_LEVEL: &str = "logging/setLevel";
/// Client notification that ends the handshake.
pub const INITIALIZED: &str = "notifications/initialized";
/// Notification of either side: a request of the sender is no longer wanted.
pub const CANCELLED: &str = "notifications/cancelled";
/// Server notification: progress of a request.
pub const PROGRESS: &str = "notifications/progress";
/// Server notification: a log message.
pub const MESSAGE: &str = "notifications/message";
/// Client request: from now on changes of one resource are notified.
pub const RESOURCES_SUBSCRIBE: &str = "resources/subscribe";
/// Client request: changes of one resource are not notified any more.
pub const RESOURCES_UNSUBSCRIBE: &str = "resources/unsubscribe";

/// The latest legacy revision.
#[must_use]
pub const fn latest() -> &'static str {
    REVISIONS[REVISIONS.len() - 1]
}
