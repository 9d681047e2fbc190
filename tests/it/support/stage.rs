//! The usual set: a puppet with the usual tools, a gateway in front of it, a client in front of that.

use std::sync::Arc;

use serde_json::{Value, json};

use super::client::Client;
use super::gateway::{Config, Gateway};
use super::puppet::{Ending, Manner, Puppet};
use super::{form, nothing_is_left, text};

/// All three.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) puppet: Puppet,
    pub(crate) gateway: Gateway,
    pub(crate) client: Client,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::set(Manner::default(), |config| config).await
    }

    /// With a puppet of another manner.
    pub(crate) async fn of(manner: Manner) -> Self {
        Self::set(manner, |config| config).await
    }

    /// With another configuration.
    pub(crate) async fn with(change: impl FnOnce(Config) -> Config) -> Self {
        Self::set(Manner::default(), change).await
    }

    pub(crate) async fn set(manner: Manner, change: impl FnOnce(Config) -> Config) -> Self {
        let puppet = Puppet::start(manner).await;
        usual(&puppet);
        let gateway = change(Config::of(&puppet)).start().await;
        let client = Client::of(&gateway);
        Self {
            puppet,
            gateway,
            client,
        }
    }

    /// The end of a test: nothing is left on either side.
    pub(crate) async fn ends(self) {
        nothing_is_left(&self.gateway, &self.puppet).await;
        assert_eq!(self.gateway.terminate().await, 0, "the exit code");
    }

    /// The end of a test whose sessions stay warm: the gateway closes them when it ends.
    pub(crate) async fn closes(self) {
        self.gateway.metric_is("holdfast_calls", 0).await;
        self.gateway.metric_is("holdfast_holds", 0).await;
        assert_eq!(self.gateway.terminate().await, 0, "the exit code");
        self.puppet.settled().await;
    }

    /// How many answers the puppet was given.
    pub(crate) fn answers(&self) -> usize {
        self.puppet.ledger().answers.len()
    }

    /// Waits until the puppet was told of `count` cancellations.
    pub(crate) async fn cancelled(&self, count: usize) {
        let is_told = |ledger: &super::puppet::Ledger| ledger.cancellations.len() >= count;
        self.puppet
            .until("the server to be told of the cancellation", is_told)
            .await;
    }

    /// Waits until a tool has been started `count` times.
    pub(crate) async fn started(&self, tool: &str, count: usize) {
        let tool = tool.to_owned();
        let is_started = move |ledger: &super::puppet::Ledger| {
            ledger
                .starts
                .iter()
                .filter(|(name, _)| *name == tool)
                .count()
                >= count
        };
        self.puppet
            .until("the tool to be started", is_started)
            .await;
    }
}

/// The tools that most tests need, on `puppet`.
pub(crate) fn usual(puppet: &Puppet) {
    puppet.tool("echo", |call| async move {
        Ending::Result(text(call.arguments().to_string()))
    });
    puppet.tool("name", |call| async move {
        let answer = call.elicit(form("name", name_schema())).await;
        Ending::text(format!("name: {}", answer.said("name")))
    });
    puppet.tool("three", |call| async move {
        let mut said = Vec::new();
        for property in ["name", "city", "street"] {
            said.push(
                call.elicit(form(property, name_schema()))
                    .await
                    .said(property),
            );
        }
        Ending::text(said.join(" "))
    });
    puppet.tool("two", |call| async move {
        let first = call
            .pose("elicitation/create", form("color", name_schema()))
            .await;
        let second = call
            .pose(
                "elicitation/create",
                form("size", json!({"type": "integer"})),
            )
            .await;
        let (color, size) = (call.answer(&first).await, call.answer(&second).await);
        Ending::text(format!("{} {}", color.said("color"), size.said("size")))
    });
    puppet.tool("generally", |call| async move {
        let answer = call
            .ask_generally("elicitation/create", form("name", name_schema()))
            .await;
        Ending::text(format!("name: {}", answer.said("name")))
    });
}

/// A short text.
pub(crate) fn name_schema() -> Value {
    json!({"type": "string", "minLength": 2, "maxLength": 40})
}

/// A tool that goes on when it is told to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<tokio::sync::Notify>);

impl Gate {
    /// Lets one waiting script through.
    pub(crate) fn open(&self) {
        self.0.notify_one();
    }

    pub(crate) async fn passed(&self) {
        self.0.notified().await;
    }
}
