//! The puppet's connections: reading requests, writing what is answered, noticing that the peer has gone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::message::{self, Reply};
use super::outgoing::{After, Out, Response, whole};
use super::store::{Resuming, Stream};
use super::{Answers, Counted, EventIds, GeneralStream, Record, Session, Shared};
use crate::support::http1::{Head, Reader};

/// Accepts until the puppet ends.
pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let end = shared.end.clone();
    let accepting = async {
        while let Ok((stream, _)) = listener.accept().await {
            let shared = Arc::clone(&shared);
            let tasks = shared.tasks.clone();
            tasks.spawn(async move {
                let end = shared.end.clone();
                tokio::select! {
                    () = end.cancelled() => {}
                    _ = serve(stream, &shared) => {}
                }
            });
        }
    };
    tokio::select! {
        () = end.cancelled() => {}
        () = accepting => {}
    }
}

async fn serve(stream: TcpStream, shared: &Arc<Shared>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (reader, mut writer) = stream.into_split();
    let mut reader = Reader::new(reader);
    while let Some(head) = reader.head().await? {
        let body = reader.body(head.request_framing()).await?;
        let message = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let verb = head.word(0).to_owned();
        let text = String::from_utf8_lossy(&body).into_owned();
        let (head_of, body_of) = (head.clone(), message.clone());
        let record = Record {
            verb: verb.clone(),
            head: head_of,
            body: body_of,
            text,
        };
        shared.write(|ledger| ledger.records.push(record));
        let led = (verb.clone(), head.word(1).to_owned());
        let led = shared.redirects.lock().unwrap().get(&led).cloned();
        if let Some((status, location)) = led {
            whole(&mut writer, status, &[("location", &location)], b"").await?;
            continue;
        }
        let goes_on = match verb.as_str() {
            "POST" => post(&mut reader, &mut writer, shared, &head, &message).await?,
            "GET" => get(&mut reader, &mut writer, shared, &head).await?,
            "DELETE" => delete(&mut writer, shared, &head).await?,
            other => {
                shared.violation(format!("HTTP method {other}"));
                false
            }
        };
        if !goes_on {
            break;
        }
    }
    Ok(())
}

async fn post(
    reader: &mut Reader<OwnedReadHalf>,
    writer: &mut OwnedWriteHalf,
    shared: &Arc<Shared>,
    head: &Head,
    message: &Value,
) -> std::io::Result<bool> {
    match message::take(shared, head, message) {
        Reply::Whole(status, extra, body) => {
            let mut headers = vec![("content-type", "application/json")];
            headers.extend(extra.as_ref().map(|(name, value)| (*name, value.as_str())));
            whole(writer, status, &headers, &body).await?;
            Ok(true)
        }
        Reply::Scripted(mut scripted) => {
            let _counted = Counted::up(shared, |ledger| &mut ledger.exchanges);
            let stream = format!("post-{}", message["id"]);
            let manner = &shared.manner;
            if manner.event_ids != EventIds::Without && manner.answers == Answers::Events {
                let stored = shared.store.keep(&stream, scripted);
                return go_on(reader, writer, shared, &stored, 0).await;
            }
            relay(
                reader,
                Response::new(writer, &shared.manner, stream),
                &mut scripted,
            )
            .await
        }
    }
}

/// Writes the events of a stored stream after the first `seen`, then what comes.
async fn go_on(
    reader: &mut Reader<OwnedReadHalf>,
    writer: &mut OwnedWriteHalf,
    shared: &Arc<Shared>,
    stream: &Arc<Stream>,
    seen: usize,
) -> std::io::Result<bool> {
    let Ok(mut scripted) = stream.scripted.try_lock() else {
        whole(writer, 409, &[], b"").await?;
        return Ok(true);
    };
    let mut response = Response::stored(writer, &shared.manner, Arc::clone(stream));
    if seen > 0 {
        response.replay(seen).await?;
    }
    relay(reader, response, &mut scripted).await
}

/// A GET that resumes a script's stream.
async fn resume(
    reader: &mut Reader<OwnedReadHalf>,
    writer: &mut OwnedWriteHalf,
    shared: &Arc<Shared>,
    session: &Session,
    id: &str,
) -> std::io::Result<bool> {
    let _counted = Counted::up(shared, |ledger| &mut ledger.exchanges);
    match shared.store.met() {
        Resuming::Offered => {}
        Resuming::Status(status) => {
            whole(writer, status, &[], b"").await?;
            return Ok(true);
        }
        Resuming::Empty => {
            let headers = [("content-type", "text/event-stream")];
            whole(writer, 200, &headers, b": nothing\n\n").await?;
            return Ok(true);
        }
        Resuming::Silence => {
            reader.closed().await;
            return Ok(false);
        }
    }
    match shared.store.find(id) {
        Some((stream, seen)) => go_on(reader, writer, shared, &stream, seen).await,
        None => {
            shared.violation(format!("{}: event {id:?} never was", session.id));
            whole(writer, 400, &[], b"").await?;
            Ok(true)
        }
    }
}

/// Writes what comes until the response is over or the peer has gone; whether the connection can go on.
async fn relay(
    reader: &mut Reader<OwnedReadHalf>,
    mut response: Response<'_, OwnedWriteHalf>,
    scripted: &mut mpsc::Receiver<Out>,
) -> std::io::Result<bool> {
    loop {
        let out = tokio::select! {
            biased;
            out = scripted.recv() => out.unwrap_or(Out::End),
            () = reader.closed() => return Ok(false),
        };
        match response.put(out).await? {
            After::More => {}
            After::NextRequest => return Ok(true),
            After::Close => return Ok(false),
        }
    }
}

async fn get(
    reader: &mut Reader<OwnedReadHalf>,
    writer: &mut OwnedWriteHalf,
    shared: &Arc<Shared>,
    head: &Head,
) -> std::io::Result<bool> {
    if !head
        .value("accept")
        .unwrap_or_default()
        .contains("text/event-stream")
    {
        shared.violation("a GET does not accept an event stream");
    }
    let resumes = head
        .value("last-event-id")
        .filter(|id| id.starts_with("post-"));
    if shared.manner.general_stream == GeneralStream::Refused && resumes.is_none() {
        whole(writer, 405, &[], b"").await?;
        return Ok(true);
    }
    let refused = shared.refuses_streams.load(Ordering::Acquire);
    if refused != 0 && resumes.is_none() {
        whole(writer, refused, &[], b"").await?;
        return Ok(true);
    }
    let Some(session) = message::session_of(shared, head).filter(|session| session.check(head))
    else {
        whole(writer, 404, &[], b"").await?;
        return Ok(true);
    };
    if let Some(id) = resumes {
        return resume(reader, writer, shared, &session, id).await;
    }
    if let GeneralStream::AfterStatus(status) = shared.manner.general_stream
        && session.is_first_get()
    {
        whole(writer, status, &[], b"").await?;
        return Ok(true);
    }
    let Some(mut stream) = session.open_general_stream() else {
        whole(writer, 409, &[], b"").await?;
        return Ok(true);
    };
    let mut response = Response::new(writer, &shared.manner, format!("get-{}", session.id));
    let _counted = Counted::up(shared, |ledger| &mut ledger.general_streams);
    response.head().await?;
    relay(reader, response, &mut stream).await
}

async fn delete(
    writer: &mut OwnedWriteHalf,
    shared: &Arc<Shared>,
    head: &Head,
) -> std::io::Result<bool> {
    let session = message::session_of(shared, head).filter(|session| session.check(head));
    if let Some(session) = &session {
        session.delete();
    }
    whole(writer, if session.is_some() { 200 } else { 404 }, &[], b"").await?;
    Ok(true)
}
