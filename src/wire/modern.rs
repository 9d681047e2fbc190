//! Names of the modern era (revision 2026-07-28).

/// The revision that holdfast serves to modern clients.
pub const PROTOCOL_VERSION: &str = "2026-07-28";

/// `_meta` key: the revision of a request.
pub const META_PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// `_meta` key: who the client is.
pub const META_CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// `_meta` key: what the client can do.
pub const META_CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// `_meta` key: from which level the request wants log messages.
pub const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// `_meta` key of results: who the server is.
pub const META_SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// `_meta` key of everything on a subscription's stream: the id of the request that opened it.
pub const META_SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// `_meta` key of both eras: under which token progress is wanted.
pub const META_PROGRESS_TOKEN: &str = "progressToken";

/// Notification: the first one of a subscription, with the part of its filter that is honoured.
pub const SUBSCRIPTIONS_ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
/// Notification of both eras: a request of the sender is no longer wanted; of a server, over stdio, that a subscription
/// has ended.
pub const CANCELLED: &str = "notifications/cancelled";
/// Notification of both eras: a resource has changed.
pub const RESOURCES_UPDATED: &str = "notifications/resources/updated";

/// `resultType` of a final result.
pub const RESULT_COMPLETE: &str = "complete";
/// `resultType` of a result that asks for input.
pub const RESULT_INPUT_REQUIRED: &str = "input_required";

/// The requests of this revision that holdfast serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// `server/discover`
    Discover,
    /// `tools/list`
    ToolsList,
    /// `tools/call`
    ToolsCall,
    /// `prompts/list`
    PromptsList,
    /// `prompts/get`
    PromptsGet,
    /// `resources/list`
    ResourcesList,
    /// `resources/templates/list`
    ResourceTemplatesList,
    /// `resources/read`
    ResourcesRead,
    /// `completion/complete`
    Complete,
    /// `subscriptions/listen`
    Listen,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Discover,
        Self::ToolsList,
        Self::ToolsCall,
        Self::PromptsList,
        Self::PromptsGet,
        Self::ResourcesList,
        Self::ResourceTemplatesList,
        Self::ResourcesRead,
        Self::Complete,
        Self::Listen,
    ];

    /// The method of this name, if it exists in this revision and is served.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == name)
    }

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Discover => "server/discover",
            Self::ToolsList => "tools/list",
            Self::ToolsCall => "tools/call",
            Self::PromptsList => "prompts/list",
            Self::PromptsGet => "prompts/get",
            Self::ResourcesList => "resources/list",
            Self::ResourceTemplatesList => "resources/templates/list",
            Self::ResourcesRead => "resources/read",
            Self::Complete => "completion/complete",
            Self::Listen => "subscriptions/listen",
        }
    }

    /// Whether an `InputRequiredResult` may answer it (basic/patterns/mrtr, "Supported Requests").
    #[must_use]
    pub const fn may_ask(self) -> bool {
        self.named_by().is_some()
    }

    /// The member of `params` that `Mcp-Name` mirrors.
    #[must_use]
    pub const fn named_by(self) -> Option<&'static str> {
        match self {
            Self::ToolsCall | Self::PromptsGet => Some("name"),
            Self::ResourcesRead => Some("uri"),
            Self::Discover
            | Self::ToolsList
            | Self::PromptsList
            | Self::ResourcesList
            | Self::ResourceTemplatesList
            | Self::Complete
            | Self::Listen => None,
        }
    }

    /// Whether its complete results carry caching hints (server/utilities/caching, "Cacheable Results").
    #[must_use]
    pub const fn is_cacheable(self) -> bool {
        match self {
            Self::Discover
            | Self::ToolsList
            | Self::PromptsList
            | Self::ResourcesList
            | Self::ResourceTemplatesList
            | Self::ResourcesRead => true,
            Self::ToolsCall | Self::PromptsGet | Self::Complete | Self::Listen => false,
        }
    }
}

/// Log levels of both eras in rising severity (RFC 5424).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the spec's whole definition")]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    /// The level of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == name)
    }

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }
}
