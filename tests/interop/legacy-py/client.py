"""A legacy client on the Python SDK 1.x. Straight against a server it tells the truth: what a call really returns.

Jobs come on standard input, reports go to standard output; see ../README.md.
"""

import pathlib
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import httpx
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from worker import Answers, Heard, Job, Report, burst, fetch, plain, serve  # noqa: E402


def callbacks(job: Job, report: Report, answers: Answers) -> dict[str, Any]:
    async def on_elicit(_context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult.model_validate(await answers.elicit(params))

    async def on_sample(_context: Any, params: Any) -> types.CreateMessageResult:
        return types.CreateMessageResult.model_validate(answers.sample(params))

    async def on_roots(_context: Any) -> types.ListRootsResult:
        return types.ListRootsResult.model_validate(answers.roots())

    async def on_log(params: types.LoggingMessageNotificationParams) -> None:
        report["logs"].append([params.level, params.data])

    offered = {"elicitation": ("elicitation_callback", on_elicit), "sampling": ("sampling_callback", on_sample),
               "roots": ("list_roots_callback", on_roots)}
    chosen = dict(offered[capability] for capability in job["capabilities"])
    return {"logging_callback": on_log, **chosen}


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
        case "tool": return await session.call_tool(name, args, progress_callback=on_progress)
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


async def run(job: Job, report: Report, answers: Answers) -> Any:
    async def count(request: httpx.Request) -> None:
        report["http"][request.method] = report["http"].get(request.method, 0) + 1

    heard = Heard(job.get("changes") or 0)

    async def on_message(message: Any) -> None:
        match getattr(message, "root", None):
            case types.ToolListChangedNotification() as changed: heard.add(changed.method)
            case types.ResourceUpdatedNotification() as updated: heard.add(updated.method, str(updated.params.uri))

    timeout = httpx.Timeout(30, read=300)
    async with (
        httpx.AsyncClient(timeout=timeout, event_hooks={"request": [count]}) as http,
        streamable_http_client(job["url"], http_client=http) as (read, write, session_id),
        ClientSession(read, write, message_handler=on_message, **callbacks(job, report, answers)) as session,
    ):
        initialized = await session.initialize()
        report["protocol"] = initialized.protocolVersion
        # The SDK opens its GET stream in the background; what a server asks there before that is lost.
        if job.get("waitListening"):
            await fetch(f"{job['waitListening']}{session_id()}")
        if job["kind"] == "listen":
            return await listen(session, heard, job)
        return await run_kind(session, initialized, job, report)


anyio.run(serve, run)
