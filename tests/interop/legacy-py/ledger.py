"""What the fixture server counts, so that a test can prove things from the server's side.

How often each tool was started, which named events happened, which sessions live and which of them have an open GET
stream; `until` lets a test wait for one of these instead of sleeping. The same as ../legacy-ts/ledger.mjs.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import anyio

# Longer than any machine step of the tests, shorter than their own deadline for a job.
WAIT_SECONDS_MAX = 15


class Ledger:
    def __init__(self) -> None:
        self.starts: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.listening: Counter[str] = Counter()  # session id -> number of open GET streams
        self.session_count: Callable[[], int] = lambda: 0  # set by server.py: the SDK owns the sessions
        self._change = anyio.Event()

    def started(self, tool: str) -> None:
        self.starts[tool] += 1
        self.changed()

    def happened(self, event: str) -> int:
        """How often it had happened before."""
        self.events[event] += 1
        self.changed()
        return self.events[event] - 1

    def listen(self, session: str, change: int) -> None:
        self.listening[session] += change
        self.changed()

    def changed(self) -> None:
        self._change.set()
        self._change = anyio.Event()

    def stats(self) -> dict[str, Any]:
        return {
            "sessions": self.session_count(), "listening": self.listening.total(),
            "starts": self.starts, "events": self.events,
        }

    async def until(self, query: Mapping[str, str]) -> bool:
        """True once what a `/wait` request names holds, false after WAIT_SECONDS_MAX."""
        with anyio.move_on_after(WAIT_SECONDS_MAX):
            while not self.holds(query):
                await self._change.wait()
            return True
        return False

    def holds(self, query: Mapping[str, str]) -> bool:
        if "sessions" in query:
            return self.session_count() == int(query["sessions"])
        if "listening" in query:
            return self.listening[query["listening"]] > 0
        return self.events[query["event"]] > 0
