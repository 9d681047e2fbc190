"""A legacy client on the Python SDK 1.x. Straight against a server it tells the truth: what a call really returns.

Jobs come on standard input, reports go to standard output; see ../README.md.
"""

import json
import pathlib
import sys
import warnings
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio
import httpx
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.websocket import websocket_client
from pydantic import AnyUrl

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from worker import Answers, Heard, Job, Report, burst, fetch, plain, repeated, serve  # noqa: E402

warnings.simplefilter("ignore", DeprecationWarning)  # of the WebSocket transport, which is what is tested here


def session_callbacks(capabilities: dict[str, Any], current: "Current") -> dict[str, Any]:
    async def on_elicit(_context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult.model_validate(await current.answers.elicit(params))

    async def on_sample(_context: Any, params: Any) -> types.CreateMessageResult:
        return types.CreateMessageResult.model_validate(current.answers.sample(params))

    async def on_roots(_context: Any) -> types.ListRootsResult:
        return types.ListRootsResult.model_validate(current.answers.roots())

    async def on_log(params: types.LoggingMessageNotificationParams) -> None:
        current.report["logs"].append([params.level, params.data])

    async def on_message(message: Any) -> None:
        match getattr(message, "root", None):
            case types.ToolListChangedNotification() as changed: current.heard.add(changed.method)
            case types.ResourceUpdatedNotification() as updated: current.heard.add(updated.method, str(updated.params.uri))

    offered = {"elicitation": ("elicitation_callback", on_elicit), "sampling": ("sampling_callback", on_sample),
               "roots": ("list_roots_callback", on_roots)}
    chosen = dict(offered[capability] for capability in capabilities)
    return {"logging_callback": on_log, "message_handler": on_message, **chosen}


async def pages(method: Callable[..., Awaitable[Any]], field: str) -> dict[str, Any]:
    found: list[Any] = []
    cursor: str | None = None
    while True:
        page = plain(await method(params=types.PaginatedRequestParams(cursor=cursor)))
        found += page[field]
        cursor = page.get("nextCursor")
        if cursor is None:
            return {field: found}


async def complete(session: ClientSession, args: Job) -> Any:
    refs = {"ref/prompt": types.PromptReference, "ref/resource": types.ResourceTemplateReference}
    ref = refs[args["ref"]["type"]].model_validate(args["ref"])
    return await session.complete(ref, args["argument"])


async def listen(session: ClientSession, heard: Heard, job: Job) -> dict[str, Any]:
    """Subscribes, makes the calls, and waits for as many changes as are expected."""
    for uri in job["uris"]:
        await session.subscribe_resource(AnyUrl(uri))
    for call in job["calls"]:
        await session.call_tool(call["name"], call["args"])
    return {"heard": await heard.all()}


async def run_kind(session: ClientSession, initialized: Any, job: Job, report: Report) -> Any:
    name, args = job.get("name"), job.get("args")

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        report["progress"].append([progress, total, message])

    async def one(call: Job) -> Any:
        return await session.call_tool(call["name"], call["args"])

    match job["kind"]:
        case "tool":
            return await repeated(job.get("until"), lambda: session.call_tool(name, args, progress_callback=on_progress))
        case "prompt": return await session.get_prompt(name, args)
        case "resource": return await session.read_resource(name)
        case "tools": return await pages(session.list_tools, "tools")
        case "prompts": return await pages(session.list_prompts, "prompts")
        case "resources": return await pages(session.list_resources, "resources")
        case "templates": return await pages(session.list_resource_templates, "resourceTemplates")
        case "complete": return await complete(session, args)
        case "listed tool":
            await session.list_tools()
            return await session.call_tool(name, args)
        case "burst": return await burst(job["calls"], one)
        case "discover":
            known = plain(initialized)
            return {key: known.get(key) for key in ("serverInfo", "capabilities", "instructions")}
        case other: raise ValueError(f"unknown kind {other}")


class Current:
    """What belongs to the job that a session is used for: replaced for each."""

    report: Report
    answers: Answers
    heard: Heard


class Session:
    """A session with a server, over the transport that the job names."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.current = Current()
        self.session_id: Callable[[], str | None] = lambda: None

    async def open(self, stack: AsyncExitStack) -> None:
        read, write = await self.connect(stack)
        callbacks = session_callbacks(self.job["capabilities"], self.current)
        self.client = await stack.enter_async_context(ClientSession(read, write, **callbacks))
        self.initialized = await self.client.initialize()

    async def connect(self, stack: AsyncExitStack) -> tuple[Any, Any]:
        async def count(request: httpx.Request) -> None:
            counted = self.current.report["http"]
            counted[request.method] = counted.get(request.method, 0) + 1

        def counting(**settings: Any) -> httpx.AsyncClient:
            settings["timeout"] = httpx.Timeout(30, read=300)
            return httpx.AsyncClient(event_hooks={"request": [count]}, **settings)

        server = self.job["server"]
        match server["transport"]:
            case "http":
                http = await stack.enter_async_context(counting())
                opened = streamable_http_client(server["url"], http_client=http)
                read, write, self.session_id = await stack.enter_async_context(opened)
                return read, write
            case "sse":
                def factory(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx.AsyncClient:
                    return counting(headers=headers, auth=auth)

                return await stack.enter_async_context(sse_client(server["url"], httpx_client_factory=factory))
            case "websocket":
                return await stack.enter_async_context(websocket_client(server["url"]))
            case "stdio":
                program, *args = server["command"]
                parameters = StdioServerParameters(command=program, args=args, cwd=server.get("cwd"))
                return await stack.enter_async_context(stdio_client(parameters))
            case other: raise ValueError(f"unknown transport {other}")


# Where a session costs a process, it is kept for all jobs that want one like it.
kept: dict[str, Session] = {}
kept_stack = AsyncExitStack()


async def close_kept() -> None:
    kept.clear()
    await kept_stack.aclose()


async def run(job: Job, report: Report, answers: Answers) -> Any:
    if job["kind"] == "close kept":
        return await close_kept()
    outcome: list[Any] = []
    try:
        await converse(job, report, answers, outcome)
    except Exception:
        # A late answer that is still on its way when the session is closed makes the SDK's WebSocket raise: what the job
        # is about is known by then.
        if not outcome:
            raise
    return outcome[0]


async def converse(job: Job, report: Report, answers: Answers, outcome: list[Any]) -> None:
    async with AsyncExitStack() as stack:
        keep = job["server"].get("keep")
        key = json.dumps([job["server"], job["capabilities"]])
        session = kept.get(key) if keep else None
        fresh = session is None
        session = session or Session(job)
        current = session.current
        current.report, current.answers, current.heard = report, answers, Heard(job.get("changes") or 0)
        if fresh:
            await session.open(kept_stack if keep else stack)
        if keep:
            kept[key] = session
        report["protocol"] = session.initialized.protocolVersion
        # The SDK opens its GET stream in the background; what a server asks there before that is lost.
        if job.get("waitListening"):
            await fetch(f"{job['waitListening']}{session.session_id()}")
        if job["kind"] == "listen":
            outcome.append(await listen(session.client, current.heard, job))
        else:
            outcome.append(await run_kind(session.client, session.initialized, job, report))


async def main() -> None:
    try:
        await serve(run)
    finally:
        await close_kept()


anyio.run(main)
