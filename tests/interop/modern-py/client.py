"""A modern client on the Python SDK 2.x, pinned to protocol 2026-07-28.

Jobs come on standard input, reports go to standard output; see ../README.md.
"""

import pathlib
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.subscriptions import ResourceUpdated, ToolsListChanged

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from worker import Answers, Heard, Job, Report, burst, plain, repeated, serve  # noqa: E402


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
        page = plain(await method(cursor=cursor))
        found += page[field]
        cursor = page.get("nextCursor")
        if cursor is None:
            return {field: found}


def discovered(client: Client) -> dict[str, Any]:
    known = {"serverInfo": client.server_info, "capabilities": client.server_capabilities}
    return {**{key: plain(value) for key, value in known.items()}, "instructions": client.instructions}


async def complete(client: Client, args: Job) -> Any:
    refs = {"ref/prompt": types.PromptReference, "ref/resource": types.ResourceTemplateReference}
    ref = refs[args["ref"]["type"]].model_validate(args["ref"])
    return await client.complete(ref, args["argument"])


async def listen(client: Client, job: Job, report: Report) -> dict[str, Any]:
    """Opens a subscription, makes the calls, and waits for as many changes as are expected."""
    heard = Heard(job["changes"])

    async def hear(events: Any) -> None:
        async for event in events:
            match event:
                case ToolsListChanged(): heard.add("notifications/tools/list_changed")
                case ResourceUpdated(): heard.add("notifications/resources/updated", str(event.uri))

    async with (
        client.listen(tools_list_changed=True, resource_subscriptions=job["uris"]) as subscription,
        anyio.create_task_group() as group,
    ):
        report["honoured"] = plain(subscription.honored)
        group.start_soon(hear, subscription)
        for call in job["calls"]:
            await client.call_tool(call["name"], call["args"])
        changes = await heard.all()
        group.cancel_scope.cancel()
    return {"heard": changes}


async def run_kind(client: Client, job: Job, report: Report) -> Any:
    name, args = job.get("name"), job.get("args")

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        report["progress"].append([progress, total, message])

    async def one(call: Job) -> Any:
        return await client.call_tool(call["name"], call["args"])

    match job["kind"]:
        case "tool":
            return await repeated(job.get("until"), lambda: client.call_tool(name, args, progress_callback=on_progress))
        case "prompt": return await client.get_prompt(name, args)
        case "resource": return await client.read_resource(name)
        case "tools": return await pages(client.list_tools, "tools")
        case "prompts": return await pages(client.list_prompts, "prompts")
        case "resources": return await pages(client.list_resources, "resources")
        case "templates": return await pages(client.list_resource_templates, "resourceTemplates")
        case "complete": return await complete(client, args)
        case "listen": return await listen(client, job, report)
        case "listed tool":
            await client.list_tools()
            return await client.call_tool(name, args)
        case "burst": return await burst(job["calls"], one)
        case "discover": return discovered(client)
        case other: raise ValueError(f"unknown kind {other}")


def transport_to(server: Job, http: httpx2.AsyncClient) -> Any:
    if server["transport"] == "http":
        return streamable_http_client(server["url"], http_client=http)
    program, *args = server["command"]
    return stdio_client(StdioServerParameters(command=program, args=args))


async def run(job: Job, report: Report, answers: Answers) -> Any:
    async def count(request: httpx2.Request) -> None:
        report["http"][request.method] = report["http"].get(request.method, 0) + 1

    timeout = httpx2.Timeout(30, read=300)
    # A pinned client adopts the version without asking; only `auto` sends server/discover.
    mode = "auto" if job["kind"] == "discover" else "2026-07-28"
    async with (
        httpx2.AsyncClient(timeout=timeout, event_hooks={"request": [count]}) as http,
        Client(
            transport_to(job["server"], http), mode=mode,
            log_level=job.get("logLevel"), **callbacks(job, report, answers),
        ) as client,
    ):
        report["protocol"] = client.protocol_version
        return await run_kind(client, job, report)


anyio.run(serve, run)
