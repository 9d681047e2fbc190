"""A legacy MCP server (protocol up to 2025-11-25) on the Python SDK 1.x (FastMCP), over any legacy transport.

usage: server.py [--transport http|sse|websocket|stdio] [--port 0] [--events] [--json] [--ledger URL]
  all but stdio print `listening on PORT` once they are ready and end when their standard input closes
  --transport http       Streamable HTTP at /mcp
  --transport sse        HTTP+SSE of 2024-11-05: GET /sse, POST /messages/
  --transport websocket  WebSocket at /ws
  --transport stdio      one session on standard input and output; --ledger says where it counts
  --events               event ids and priming events on every stream (http)
  --json                 plain answers as application/json instead of SSE (http; such a server cannot ask)
Beside the endpoint: GET /stats counts, GET /wait?sessions=N|listening=ID|event=NAME answers once that is so.
"""

import argparse
import os
import socket
import sys
import threading
from typing import Any

import anyio
import uvicorn
from mcp.server.fastmcp import FastMCP
from mcp.server.websocket import websocket_server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

import fixture
from event_store import MemoryEventStore
from ledger import Ledger
from remote_ledger import RemoteLedger

class WatchStreams:
    """Counts the open streams of the endpoint: GET streams, or WebSocket connections."""

    def __init__(self, app: ASGIApp, ledger: Ledger, path: str) -> None:
        self.app = app
        self.ledger = ledger
        self.path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or scope["path"] != self.path:
            return await self.app(scope, receive, send)
        session = dict(scope["headers"]).get(b"mcp-session-id", b"").decode()
        open_streams = 0

        async def watched(message: Message) -> None:
            nonlocal open_streams
            await send(message)
            answered = message["type"] == "http.response.start" and message["status"] == 200 and scope["method"] == "GET"
            if answered or message["type"] == "websocket.accept":
                open_streams += 1
                self.ledger.listen(session, +1)

        try:
            await self.app(scope, receive, watched)
        finally:
            self.ledger.listen(session, -open_streams)


class Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        assert sockets is not None
        print(f"listening on {sockets[0].getsockname()[1]}", flush=True)


def control_routes(ledger: Ledger) -> list[Route]:
    async def stats(_request: Request) -> JSONResponse:
        return JSONResponse(ledger.stats())

    async def wait(request: Request) -> JSONResponse:
        held = await ledger.until(request.query_params)
        return JSONResponse(ledger.stats(), status_code=200 if held else 408)

    return [Route("/stats", stats), Route("/wait", wait)]


def end_with_standard_input() -> None:
    def watch() -> None:
        while sys.stdin.read(1):
            pass
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def websocket_route(mcp: FastMCP) -> WebSocketRoute:
    low = mcp._mcp_server  # FastMCP has no WebSocket of its own.

    async def endpoint(socket: WebSocket) -> None:
        async with websocket_server(socket.scope, socket.receive, socket.send) as (read, write):
            await low.run(read, write, low.create_initialization_options())

    return WebSocketRoute("/ws", endpoint)


def build_app(options: argparse.Namespace) -> ASGIApp:
    """The fixture server as an ASGI application, with the routes that count beside it."""
    ledger = Ledger()
    settings: dict[str, Any] = {"json_response": options.json, "log_level": "WARNING"}
    mcp = fixture.build_server(ledger, event_store=MemoryEventStore() if options.events else None, **settings)
    match options.transport:
        case "http":
            app, path = mcp.streamable_http_app(), "/mcp"
            ledger.session_count = lambda: len(mcp.session_manager._server_instances)
        case "sse":
            app, path = mcp.sse_app(), "/sse"
            ledger.session_count = ledger.listening.total  # the stream is the session, and lasts as long
        case _:
            app, path = Starlette(routes=[websocket_route(mcp)]), "/ws"
            ledger.session_count = ledger.listening.total
    app.router.routes += control_routes(ledger)
    return WatchStreams(app, ledger, path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", choices=["http", "sse", "websocket", "stdio"], default="http")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--events", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--ledger")
    options = parser.parse_args()

    if options.transport == "stdio":
        mcp = fixture.build_server(RemoteLedger(options.ledger), log_level="WARNING")
        anyio.run(mcp.run_stdio_async)
        return

    listener = socket.socket()
    listener.bind(("127.0.0.1", options.port))
    end_with_standard_input()
    config = uvicorn.Config(build_app(options), log_level="warning", lifespan="on" if options.transport == "http" else "auto")
    anyio.run(Server(config).serve, [listener])


if __name__ == "__main__":
    main()
