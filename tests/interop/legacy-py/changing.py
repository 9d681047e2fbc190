"""What changes in the Python fixture server, and a tool that wants an argument mirrored in a header.

The same as ../legacy-ts/changing.mjs.
"""

import weakref
from typing import Annotated, Any

import anyio
from mcp.server.fastmcp import Context, FastMCP
from mcp.types import CallToolResult, TextContent
from pydantic import AnyUrl, Field

from ledger import Ledger
from remote_ledger import RemoteLedger

COUNTER = "fixture://counter"


def text(value: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=value)])


def add_changing_parts(mcp: FastMCP, ledger: Ledger | RemoteLedger) -> None:
    """A change is told to the session that caused it: a resource's if that session subscribed."""
    subscribed: weakref.WeakSet[Any] = weakref.WeakSet()
    server = mcp._mcp_server  # FastMCP has no handlers for subscriptions of its own.

    @mcp.resource(COUNTER, name="counter", mime_type="text/plain")
    def counter() -> str:
        return "some count"

    @server.subscribe_resource()
    async def subscribe(uri: AnyUrl) -> None:
        if str(uri) != COUNTER:
            raise ValueError(f"cannot subscribe to {uri}")
        subscribed.add(server.request_context.session)
        ledger.happened("subscribed")

    @server.unsubscribe_resource()
    async def unsubscribe(_uri: AnyUrl) -> None:
        subscribed.discard(server.request_context.session)

    @mcp.tool(description="Changes the counter.")
    async def bump(ctx: Context) -> CallToolResult:
        ledger.started("bump")
        if ctx.session in subscribed:
            await ctx.session.send_resource_updated(AnyUrl(COUNTER))
        return text("bumped")

    @mcp.tool(description="Says that the tools have changed.")
    async def toggle(ctx: Context) -> CallToolResult:
        ledger.started("toggle")
        await ctx.session.send_tool_list_changed()
        return text("toggled")

    @mcp.tool(description="Wants its region mirrored in a header.")
    async def mirrored(
        region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})], count: int = 0
    ) -> CallToolResult:
        ledger.started("mirrored")
        return text(f"region {region}")

    # How long it takes is given by who calls it: a test of slow calls bounds the legs far below it.
    @mcp.tool(description="Takes a while.")
    async def rest(ms: float) -> CallToolResult:
        ledger.started("rest")
        await anyio.sleep(ms / 1000)
        return text("rested")
