//! `holdfast call` before a person: a pseudo-terminal on which keys are pressed when what they answer is there.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::json;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::support::puppet::Ending;
use crate::support::stage::{Stage, name_schema};
use crate::support::{form, within};

const ENTER: &str = "\r";
const DOWN: &str = "\u{1b}[B";
const ESC: &str = "\u{1b}";

/// How long nothing more comes before a prompt counts as drawn: keys pressed into one that is still being drawn are
/// those of a person who is very quick.
const DRAWN: Duration = Duration::from_millis(100);

/// A person at the terminal of one `holdfast call`.
struct Person {
    child: Child,
    keys: File,
    screen: mpsc::Receiver<Vec<u8>>,
    /// What has been on the screen since the last key.
    seen: String,
}

impl Person {
    fn calls(stage: &Stage, arguments: &[&str]) -> Self {
        let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&main).unwrap();
        unlockpt(&main).unwrap();
        let name = ptsname(&main, Vec::new()).unwrap().into_string().unwrap();
        let terminal = || {
            let file = OpenOptions::new().read(true).write(true).open(&name);
            Stdio::from(file.unwrap())
        };
        let child = Command::new(env!("CARGO_BIN_EXE_holdfast"))
            .arg("call")
            .arg(format!("http://{}/mcp", stage.gateway.addr()))
            .args(arguments)
            .env("TERM", "xterm")
            .stdin(terminal())
            .stdout(terminal())
            .stderr(terminal())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let keys = File::from(main);
        let mut reader = keys.try_clone().unwrap();
        let (drawn, screen) = mpsc::channel(1024);
        // Ends when the last process lets the terminal go.
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut part) {
                if drawn.blocking_send(part[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            keys,
            screen,
            seen: String::new(),
        }
    }

    /// Waits until the screen shows `text` and no more is drawn.
    async fn sees(&mut self, text: &str) -> &mut Self {
        loop {
            let is_there = self.seen.contains(text);
            let next = if is_there {
                tokio::time::timeout(DRAWN, self.screen.recv()).await
            } else {
                Ok(within(&format!("{text:?} on the screen"), self.screen.recv()).await)
            };
            match next {
                Ok(Some(part)) => self.seen += &String::from_utf8_lossy(&part),
                Ok(None) if is_there => return self,
                Ok(None) => panic!("{text:?} never came: {}", self.seen),
                Err(_) => return self,
            }
        }
    }

    fn presses(&mut self, keys: &[&str]) {
        self.seen.clear();
        for key in keys {
            self.keys.write_all(key.as_bytes()).unwrap();
        }
    }

    /// Waits for the end; the exit code.
    async fn ends(mut self) -> i32 {
        let drain = async { while self.screen.recv().await.is_some() {} };
        let (status, ()) = tokio::join!(within("the end of the call", self.child.wait()), drain);
        status.unwrap().code().unwrap()
    }
}

fn asks(stage: &Stage, property: &'static str, schema: serde_json::Value) {
    stage.puppet.tool("asks", move |call| {
        let form = form(property, schema.clone());
        async move { Ending::text(format!("said {}", call.elicit(form).await.said(property))) }
    });
}

#[tokio::test]
async fn a_person_confirms_declines_and_cancels() {
    let stage = Stage::new().await;
    asks(&stage, "sure", json!({"type": "boolean"}));
    for (keys, said) in [
        (&[ENTER][..], None),
        (&[DOWN, ENTER], Some("said decline")),
        (&[DOWN, DOWN, ENTER], Some("said cancel")),
        (&[ESC], Some("said cancel")),
    ] {
        let mut person = Person::calls(&stage, &["asks"]);
        person.sees("What do you want to do?").await.presses(keys);
        let said = match said {
            Some(said) => said,
            None => {
                person.sees("y/n").await.presses(&["y", ENTER]);
                "said true"
            }
        };
        person.sees(said).await;
        assert_eq!(person.ends().await, 0);
    }
    stage.ends().await;
}

#[tokio::test]
async fn what_does_not_fit_is_typed_again() {
    let stage = Stage::new().await;
    asks(
        &stage,
        "size",
        json!({"type": "integer", "minimum": 1, "maximum": 60}),
    );
    let mut person = Person::calls(&stage, &["asks"]);
    person.sees("What do you want").await.presses(&[ENTER]);
    person.sees("size:").await.presses(&["61", ENTER]);
    person
        .sees("60")
        .await
        .presses(&["\u{7f}\u{7f}", "42", ENTER]);
    person.sees("said 42").await;
    assert_eq!(person.ends().await, 0);
    stage.ends().await;
}

#[tokio::test]
async fn choices_are_picked() {
    let stage = Stage::new().await;
    asks(
        &stage,
        "colour",
        json!({"type": "string", "enum": ["red", "green", "blue"]}),
    );
    let mut person = Person::calls(&stage, &["asks"]);
    person.sees("What do you want").await.presses(&[ENTER]);
    person.sees("blue").await.presses(&[DOWN, ENTER]);
    person.sees("said \"green\"").await;
    assert_eq!(person.ends().await, 0);
    let several = json!({"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}, "minItems": 1});
    asks(&stage, "several", several);
    let mut person = Person::calls(&stage, &["asks"]);
    person.sees("What do you want").await.presses(&[ENTER]);
    person
        .sees("space to pick")
        .await
        .presses(&[" ", DOWN, DOWN, " ", ENTER]);
    person.sees("said [\"a\",\"c\"]").await;
    assert_eq!(person.ends().await, 0);
    stage.ends().await;
}

#[tokio::test]
async fn a_page_is_shown_in_full_and_interrupting_withdraws_the_question() {
    let stage = Stage::new().await;
    let url = format!("https://example.com/{}", "step/".repeat(12));
    let params = json!({"mode": "url", "message": "Sign in.", "elicitationId": "1", "url": url});
    stage.puppet.tool("visit", move |call| {
        let params = params.clone();
        async move {
            let answer = call.ask("elicitation/create", params).await;
            Ending::text(format!("visited {}", answer.result()["action"]))
        }
    });
    let mut person = Person::calls(&stage, &["visit"]);
    person
        .sees(&url)
        .await
        .sees("What do you want")
        .await
        .presses(&[ENTER]);
    person.sees("visited \"accept\"").await;
    assert_eq!(person.ends().await, 0);
    stage.puppet.tool("name", |call| async move {
        Ending::text(call.elicit(form("name", name_schema())).await.said("name"))
    });
    let mut person = Person::calls(&stage, &["name"]);
    person.sees("What do you want").await.presses(&["\u{3}"]);
    person.sees("interrupted").await;
    assert_eq!(person.ends().await, 1);
    // The question was withdrawn: nothing waits for the end of the hold's time.
    stage.ends().await;
}
