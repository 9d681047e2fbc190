//! Whoever reads Redis learns nothing, whoever writes to it impersonates nobody, and nothing stays there for ever.

use std::sync::Arc;

use bytes::Bytes;
use holdfast::call::{AnswersDigest, Round};
use holdfast::cluster::redis::{Redis, RedisSettings, RedisUrl};
use holdfast::hold::seal::{HoldId, SealingKeys};
use holdfast::hold::shared::{Shared, Taken, Unavailable};
use holdfast::observe::chain;

use super::{A, B, HOLD, LONG, YES, wanted_by};
use crate::support::redis::{RedisServer, shared};

const SECRET: &[u8] = b"what the tool said";

async fn fill(shared: &dyn Shared) {
    shared.announce(A, "secret.host:1", LONG).await.unwrap();
    shared.claim(wanted_by(A)).await.unwrap();
    shared.take(wanted_by(A), Round(1), YES).await.unwrap();
    let secret = Bytes::from_static(SECRET);
    shared
        .remember(HOLD, A, secret.clone(), LONG)
        .await
        .unwrap();
    shared.put_list([3; 32], secret, LONG).await.unwrap();
}

async fn keys(server: &RedisServer) -> Vec<String> {
    let keys = server.cli(&["keys", "*"]).await;
    keys.lines().map(str::to_owned).collect()
}

async fn key(server: &RedisServer, kind: &str) -> String {
    let keys = keys(server).await;
    let found = keys.iter().find(|key| key.contains(kind));
    found
        .unwrap_or_else(|| panic!("no {kind} in {keys:?}"))
        .clone()
}

#[tokio::test]
async fn nothing_is_readable_and_nothing_stays() {
    let server = RedisServer::start().await;
    let shared = shared(RedisSettings {
        settle: LONG,
        prefix: "mine:".to_owned(),
        ..server.settings()
    });
    fill(&shared).await;
    let keys = keys(&server).await;
    assert_eq!(
        keys.len(),
        5,
        "replica, pulse, hold, outcome, list: {keys:?}"
    );
    let mut seen = keys.join("\n");
    for key in &keys {
        assert!(key.starts_with("mine:"), "{key}");
        let left: i64 = server.cli(&["pttl", key]).await.parse().unwrap();
        assert!(left > 0, "{key} has no end");
        let read = match server.cli(&["type", key]).await.as_str() {
            "hash" => server.cli(&["hgetall", key]).await,
            "string" => server.cli(&["get", key]).await,
            other => panic!("{key} is a {other}"),
        };
        seen.push_str(&read);
    }
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    for secret in [
        String::from_utf8(SECRET.to_vec()).unwrap(),
        "secret.host".to_owned(),
        hex(&HOLD.0),
        hex(&YES.0),
    ] {
        assert!(!seen.contains(&secret), "{secret} in {seen}");
    }
}

#[tokio::test]
async fn what_stands_in_the_place_of_another_is_not_believed() {
    let server = RedisServer::start().await;
    let shared = server.shared();
    fill(&shared).await;
    shared.announce(B, "b:1", LONG).await.unwrap();
    let (a, outcome, list) = (
        key(&server, &format!("replica:{A:?}")).await,
        key(&server, "outcome").await,
        key(&server, "list").await,
    );
    // One replica's address for another's, one call's outcome for a list.
    let b = a.replace(&format!("{A:?}"), &format!("{B:?}"));
    server.cli(&["copy", &b, &a, "replace"]).await;
    assert_eq!(shared.address_of(A).await.unwrap(), None);
    assert_eq!(shared.address_of(B).await.unwrap().as_deref(), Some("b:1"));
    server.cli(&["copy", &outcome, &list, "replace"]).await;
    assert_eq!(shared.list([3; 32]).await.unwrap(), None);
    assert_eq!(shared.recall(HOLD).await.unwrap().as_deref(), Some(SECRET));

    // Another's own, a longer one than there may be, one of another kind.
    server.cli(&["set", &outcome, "forged"]).await;
    assert_eq!(shared.recall(HOLD).await.unwrap(), None);
    server.cli(&["setrange", &outcome, "5000000", "x"]).await;
    assert_eq!(shared.recall(HOLD).await.unwrap(), None);
    server.cli(&["del", &outcome]).await;
    server.cli(&["rpush", &outcome, "x"]).await;
    let odd = shared.recall(HOLD).await;
    assert!(matches!(odd, Err(Unavailable::Failed(_))), "{odd:?}");
    let hold = key(&server, "hold:").await;
    server.cli(&["hset", &hold, "owner", "somebody"]).await;
    let odd = shared.take(wanted_by(A), Round(2), YES).await;
    assert!(matches!(odd, Err(Unavailable::Failed(_))), "{odd:?}");
}

#[tokio::test]
async fn keys_are_rotated_under_way() {
    let server = RedisServer::start().await;
    let with = |keys: &[[u8; 32]]| {
        let keys = Arc::new(SealingKeys::new(keys).unwrap());
        Redis::new(server.settings(), keys).unwrap()
    };
    let old = with(&[[1; 32]]);
    let between = with(&[[1; 32], [2; 32]]);
    let new = with(&[[2; 32], [1; 32]]);
    fill(&old).await;
    for shared in [&old, &between, &new] {
        assert_eq!(shared.recall(HOLD).await.unwrap().as_deref(), Some(SECRET));
        assert_eq!(
            shared.address_of(A).await.unwrap().as_deref(),
            Some("secret.host:1")
        );
        let taken = shared.take(wanted_by(A), Round(1), YES).await.unwrap();
        assert_eq!(
            taken,
            Taken::Again(A),
            "answers are told apart without the keys"
        );
        let other = shared
            .take(wanted_by(A), Round(1), AnswersDigest([9; 16]))
            .await;
        assert_eq!(other.unwrap(), Taken::Otherwise);
    }
    fill(&new).await;
    assert_eq!(between.recall(HOLD).await.unwrap().as_deref(), Some(SECRET));
    assert_eq!(
        old.recall(HOLD).await.unwrap(),
        None,
        "it does not know the key"
    );
    assert_eq!(
        with(&[[9; 32]]).recall(HoldId([8; 16])).await.unwrap(),
        None
    );
}

#[tokio::test]
async fn a_password_is_used_and_never_shown() {
    let server = RedisServer::start_with(&["--requirepass", "right"]).await;
    let with = |password: &str| {
        let url = format!("{}?pass={password}", server.url());
        let url: RedisUrl = url.parse().unwrap();
        shared(RedisSettings {
            url,
            ..server.settings()
        })
    };
    let right = with("right");
    fill(&right).await;
    assert_eq!(right.recall(HOLD).await.unwrap().as_deref(), Some(SECRET));
    let shown = format!("{right:?}");
    assert!(
        shown.contains("redis.sock") && !shown.contains("right"),
        "{shown}"
    );
    for wrong in [with("mistaken"), server.shared()] {
        let refused = wrong.recall(HOLD).await.unwrap_err();
        assert!(matches!(refused, Unavailable::Failed(_)), "{refused:?}");
        let said = chain(&refused);
        assert!(!said.contains("mistaken"), "{said}");
    }
}
