"""A legacy MCP server (protocol up to 2025-11-25) on the Python SDK 1.x (FastMCP), over Streamable HTTP.

usage: server.py [--port 0] [--events] [--json]
  prints `listening on PORT` once it is ready and ends when its standard input closes
  --events  event ids and priming events on every stream
  --json    plain answers as application/json instead of SSE (such a server cannot ask)
Beside /mcp: GET /stats counts, GET /wait?sessions=N|listening=ID|event=NAME answers once that is so.
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
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import fixture
from event_store import MemoryEventStore
from ledger import Ledger

ledger = Ledger()


class WatchSessions:
    """Counts open GET streams, and tells the ledger whenever the number of sessions may have changed."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/mcp":
            return await self.app(scope, receive, send)
        session = dict(scope["headers"]).get(b"mcp-session-id", b"").decode()
        open_streams = 0

        async def watched(message: Message) -> None:
            nonlocal open_streams
            await send(message)
            if message["type"] == "http.response.start" and message["status"] == 200 and scope["method"] == "GET":
                open_streams += 1
                ledger.listen(session, +1)

        try:
            await self.app(scope, receive, watched)
        finally:
            ledger.listen(session, -open_streams)


class Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        assert sockets is not None
        print(f"listening on {sockets[0].getsockname()[1]}", flush=True)


def add_control_routes(mcp: FastMCP) -> None:
    ledger.session_count = lambda: len(mcp.session_manager._server_instances)

    @mcp.custom_route("/stats", methods=["GET"])
    async def stats(_request: Request) -> JSONResponse:
        return JSONResponse(ledger.stats())

    @mcp.custom_route("/wait", methods=["GET"])
    async def wait(request: Request) -> JSONResponse:
        held = await ledger.until(request.query_params)
        return JSONResponse(ledger.stats(), status_code=200 if held else 408)


def end_with_standard_input() -> None:
    def watch() -> None:
        while sys.stdin.read(1):
            pass
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--events", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    settings: dict[str, Any] = {"json_response": options.json, "log_level": "WARNING"}
    mcp = fixture.build_server(ledger, event_store=MemoryEventStore() if options.events else None, **settings)
    add_control_routes(mcp)  # before the app is built: it takes the routes as they are then
    app = WatchSessions(mcp.streamable_http_app())

    listener = socket.socket()
    listener.bind(("127.0.0.1", options.port))
    end_with_standard_input()
    config = uvicorn.Config(app, log_level="warning", lifespan="on")
    anyio.run(Server(config).serve, [listener])


if __name__ == "__main__":
    main()
