"""A legacy server over stdio that does as its tools and its arguments say; no SDK, so that it can misbehave.

Arguments: banner (greets on standard output), stubborn (ends neither when its input is closed nor when it is asked to),
offspring (starts a child that outlives it), heir (starts one that has its streams too), roots (asks for roots as soon as
it may, and when they changed), roots_once (only at first), roots_first (lists nothing before), roots_late (takes long to ask, both times, and answers roots
only when it was told some), mute (closes its output at once), antique (speaks a revision that nobody knows),
modern (speaks no legacy revision, and ends when it is asked anything after it was taken for a legacy one),
fails-while=PATH (ends at once as long as that file is there), dies-while=PATH (the same when roots changed).
Tools: roots (those it was given, which it takes a moment to take in), ask_roots, echo, env, pid, ask, ask_log, log, die,
bye (answers and ends), deafen (closes its input), mute (closes its output), big, nonsense, unreadable (its answer is no
JSON: how says why), marked (a byte order mark begins it), null_error (beside a result), crowd (far too much at once),
wrong_id, ask_as (under any id, and says how that was refused), ask_late, slow, change.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time

MANNERS = sys.argv[1:]
# What stands behind "=" in a manner.
GIVEN = dict(manner.split("=", 1) for manner in MANNERS if "=" in manner)
OUT = threading.Lock()
ANSWERS = {}
FREE = threading.Event()
IDS = iter(range(10**9))
ROOTS = []
REFUSALS = []
REFUSED = threading.Event()
LEARNT = threading.Event()


def say(line):
    with OUT:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def close_output():
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def send(**message):
    say(json.dumps({"jsonrpc": "2.0", **message}))


def text(words):
    return {"content": [{"type": "text", "text": words}]}


def ask(method, params):
    key = next(IDS)
    arrived = threading.Event()
    ANSWERS[key] = [arrived, None]
    send(id=key, method=method, params=params)
    arrived.wait()
    return ANSWERS.pop(key)[1]


def form(name):
    schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    return ask("elicitation/create", {"message": f"Please give {name}.", "requestedSchema": schema})


def learn_roots():
    if "roots_late" in MANNERS:
        threading.Event().wait(0.3)
    answer = ask("roots/list", {})
    # As a real server does that looks at each directory first.
    threading.Event().wait(0.1)
    ROOTS[:] = [root["uri"] for root in answer.get("result", {"roots": [{"uri": "refused"}]})["roots"]]
    LEARNT.set()


def list_tools(key):
    if "roots_first" in MANNERS:
        LEARNT.wait()
    send(id=key, result={"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]})


def said(answer):
    return json.dumps(answer.get("result", answer.get("error")).get("content", "refused"))


def call(key, name, arguments, meta):
    log = {"level": "info", "data": "working"}
    if name == "echo":
        send(id=key, result=text(json.dumps(arguments)))
    elif name == "env":
        send(id=key, result=text(json.dumps(dict(os.environ))))
    elif name == "ask_roots":
        send(id=key, result=text(ask("roots/list", {})["result"]["roots"][0]["uri"]))
    elif name == "roots":
        if "roots_late" in MANNERS:
            LEARNT.wait()
        send(id=key, result=text(" ".join(ROOTS)))
    elif name == "pid":
        send(id=key, result=text(str(os.getpid())))
    elif name == "ask":
        send(id=key, result=text(said(form("name"))))
    elif name == "ask_log":
        token = meta.get("progressToken")
        for step in (1, 2):
            if token is not None:
                send(method="notifications/progress", params={"progressToken": token, "progress": step})
            send(method="notifications/message", params=log)
        answer = said(form("name"))
        send(method="notifications/message", params=log)
        send(id=key, result=text(answer))
    elif name == "log":
        send(method="notifications/message", params=log)
        send(id=key, result=text("logged"))
    elif name == "die":
        print("about to die", file=sys.stderr, flush=True)
        os._exit(7)
    elif name == "bye":
        send(id=key, result=text("x" * 50_000))
        os._exit(0)
    elif name == "mute":
        send(id=key, result=text("my last words"))
        close_output()
    elif name == "big":
        send(id=key, result=text("x" * arguments["bytes"]))
    elif name == "nonsense":
        for line in ("", "hello", "{not json", '{"jsonrpc":"2.0"}', "[1,2", "7", '"text"', '{"jsonrpc":"2.0","id":999999,"result":{}}'):
            say(line)
        send(id=key, result=text("in spite of it"))
    elif name == "unreadable":
        line = '{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":{"v":"caf\u00e9"}}}' % key
        broken = {
            "nan": line.replace('"caf\u00e9"', "NaN").encode(),
            "latin1": line.encode("latin-1"),
            "twice": line.replace("{", '{"id":%d,' % key, 1).encode(),
            "cut": line[:-4].encode(),
        }
        with OUT:
            sys.stdout.buffer.write(broken[arguments["how"]] + b"\n")
            sys.stdout.buffer.flush()
    elif name == "marked":
        say("\ufeff" + json.dumps({"jsonrpc": "2.0", "id": key, "result": text("marked")}))
    elif name == "ask_as":
        # Its answer may come under another id.
        send(id=arguments["id"], method="elicitation/create", params={"message": "?", "requestedSchema": {"type": "object", "properties": {}}})
        REFUSED.wait()
        send(id=key, result=text(json.dumps(REFUSALS)))
    elif name == "null_error":
        send(id=key, result=text("no error"), error=None)
    elif name == "crowd":
        # One line of more messages than any batch has.
        say("[" + ",".join(["1"] * 100_000) + "]")
        send(id=key, result=text("after the crowd"))
    elif name == "wrong_id":
        send(id="server-error", error={"code": -32001, "message": "no such tool"})
    elif name == "ask_late":
        send(id=key, result=text("first"))
        send(id="late", method="elicitation/create", params={"message": "?", "requestedSchema": {"type": "object", "properties": {}}})
    elif name == "slow":
        print("slowly", key, file=sys.stderr, flush=True)
        FREE.wait()
        send(id=key, result=text("slow"))
    elif name == "change":
        send(method="notifications/tools/list_changed")
        send(id=key, result=text("changed"))
    else:
        send(id=key, error={"code": -32602, "message": f"unknown tool {name}"})


def take(message):
    key, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if "modern" in MANNERS and method == "initialize":
        MANNERS.append("spoiled")
        send(id=key, error={"code": -32601, "message": "no such method"})
    elif "modern" in MANNERS and method == "server/discover" and "spoiled" not in MANNERS:
        send(id=key, result={"supportedVersions": ["2026-07-28"]})
    elif "modern" in MANNERS:
        os._exit(9)
    elif method == "initialize":
        send(method="notifications/message", params={"level": "info", "data": "too early"})
        revision = "1999-01-01" if "antique" in MANNERS else "2025-06-18"
        send(id=key, result={"protocolVersion": revision, "capabilities": {"tools": {"listChanged": True}, "logging": {}}, "serverInfo": {"name": "program", "version": "1"}})
    elif method == "notifications/initialized":
        if {"roots", "roots_late", "roots_once"} & set(MANNERS):
            threading.Thread(target=learn_roots, daemon=True).start()
    elif method == "notifications/roots/list_changed":
        if os.path.exists(GIVEN.get("dies-while", "")):
            os._exit(7)
        if {"roots", "roots_late"} & set(MANNERS):
            threading.Thread(target=learn_roots, daemon=True).start()
    elif method == "ping":
        send(id=key, result={})
    elif method == "tools/list":
        threading.Thread(target=list_tools, args=(key,), daemon=True).start()
    elif method == "tools/call" and params["name"] == "deafen":
        # Here, where nobody is reading it.
        send(id=key, result=text("I have heard enough"))
        os.close(0)
        FREE.wait()
    elif method == "tools/call":
        arguments, meta = params.get("arguments", {}), params.get("_meta", {})
        threading.Thread(target=call, args=(key, params["name"], arguments, meta), daemon=True).start()
    elif method == "logging/setLevel":
        send(id=key, result={})
    elif method == "notifications/cancelled":
        print("cancelled", params.get("requestId"), file=sys.stderr, flush=True)
    elif method is None and key in ANSWERS:
        ANSWERS[key][1] = message
        ANSWERS[key][0].set()
    elif method is None:
        print("answered", json.dumps(message), file=sys.stderr, flush=True)
        if "error" in message:
            REFUSALS.append([key, message["error"]["code"]])
            REFUSED.set()
    elif key is not None:
        # As some real servers do with what they do not know.
        os._exit(3)


print("started", time.monotonic_ns() // 1_000_000, file=sys.stderr, flush=True)
if os.path.exists(GIVEN.get("fails-while", "")):
    sys.exit(1)
if "banner" in MANNERS:
    for line in ("Welcome to the program, version 1", "", "[INFO] it is up", "{not json", '{"level":"info","msg":"up"}', "[1, 2]"):
        say(line)
if "mute" in MANNERS:
    close_output()
if "stubborn" in MANNERS:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "offspring" in MANNERS:
    # What is ignored here is ignored there too.
    child = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print("offspring", child.pid, file=sys.stderr, flush=True)
if "heir" in MANNERS:
    subprocess.Popen(["sleep", "600"])
print("pid", os.getpid(), file=sys.stderr, flush=True)
for line in sys.stdin:
    take(json.loads(line))
print("input closed", file=sys.stderr, flush=True)
if "stubborn" in MANNERS:
    FREE.wait()
