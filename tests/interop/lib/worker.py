"""What the Python clients share: a loop that reads one job a line and writes one report a line, and the answers.

The same as worker.mjs, for both generations of the Python SDK. A job is described in ../README.md.
"""

import json
import sys
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

Job = dict[str, Any]
Report = dict[str, Any]


def plain(model: Any) -> Any:
    """A model of the SDK as the JSON it stands for."""
    if isinstance(model, list):
        return [plain(item) for item in model]
    if hasattr(model, "model_dump"):
        return model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return model


async def fetch(url: str) -> None:
    def get() -> None:
        with urllib.request.urlopen(url, timeout=20) as response:
            response.read()

    await anyio.to_thread.run_sync(get)


class Heard:
    """What a client is told of changes: `[method, uri]` each, until as many as expected have come."""

    def __init__(self, expected: int) -> None:
        self.changes: list[list[Any]] = []
        self.expected = expected
        self.enough = anyio.Event()

    def add(self, method: str, uri: str | None = None) -> None:
        self.changes.append([method, uri])
        if len(self.changes) == self.expected:
            self.enough.set()

    async def all(self) -> list[list[Any]]:
        """All of them, in an order that does not depend on which came first."""
        await self.enough.wait()
        return sorted(self.changes, key=str)


class Answers:
    """Answers from the job's table; what was asked is written down in the report."""

    def __init__(self, table: dict[str, Any], report: Report) -> None:
        self.table = table
        self.report = report
        self.wrong_given: set[str] = set()

    def asked(self, method: str, params: Any) -> dict[str, Any]:
        dumped = plain(params)
        self.report["asked"].append({"method": method, "params": dumped})
        return dumped

    async def elicit(self, model: Any) -> dict[str, Any]:
        params = self.asked("elicitation/create", model)
        if self.table.get("after"):
            await fetch(self.table["after"])
        if self.table["action"] != "accept" or params.get("mode") == "url":
            return {"action": self.table["action"]}
        message = params["message"]
        fields = dict(self.table["fields"])
        if self.table.get("invalidFirst") and message not in self.wrong_given:
            fields.update(self.table["wrong"])
        self.wrong_given.add(message)
        names = [name for name in params["requestedSchema"]["properties"] if name in fields]
        # `$message` stands for the question itself: it shows whether each answer reached the call that asked.
        return {
            "action": "accept",
            "content": {name: message if fields[name] == "$message" else fields[name] for name in names},
        }

    def sample(self, model: Any) -> dict[str, Any]:
        self.asked("sampling/createMessage", model)
        text = self.table["sample"] if self.table["action"] == "accept" else "I would rather not."
        return {
            "role": "assistant", "model": "fixture-model", "stopReason": "endTurn",
            "content": {"type": "text", "text": text},
        }

    def roots(self) -> dict[str, Any]:
        self.report["asked"].append({"method": "roots/list"})
        return {"roots": self.table["roots"] if self.table["action"] == "accept" else []}


REPEATS_MAX = 100  # each is a round trip: far longer than a server needs to take in an answer


async def repeated(until: str | None, call: Callable[[], Awaitable[Any]]) -> Any:
    """Makes the call until its result has the word in it, if there is one; then gives the result as it is."""
    result = await call()
    for _ in range(REPEATS_MAX):
        if until is None or until in json.dumps(plain(result)):
            break
        result = await call()
    return result


async def burst(calls: list[dict[str, Any]], one: Callable[[dict[str, Any]], Awaitable[Any]]) -> list[Any]:
    """Runs the calls at the same time and gives their results in the same order."""
    results: list[Any] = [None] * len(calls)

    async def run(index: int) -> None:
        results[index] = await one(calls[index])

    async with anyio.create_task_group() as group:
        for index in range(len(calls)):
            group.start_soon(run, index)
    return results


def first_cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def described(error: BaseException) -> dict[str, Any]:
    inner = getattr(error, "error", None)
    if inner is not None and hasattr(inner, "code"):
        return {"name": type(error).__name__, "code": inner.code, "message": inner.message, "data": inner.data}
    return {"name": type(error).__name__, "code": None, "message": str(error), "data": None}


async def serve(run: Callable[[Job, Report, Answers], Awaitable[Any]]) -> None:
    """Jobs one after another until standard input ends; `run` fills the report and returns the result."""
    while line := await anyio.to_thread.run_sync(sys.stdin.readline):
        job = json.loads(line)
        report: Report = {
            "id": job["id"], "result": None, "error": None, "protocol": None,
            "asked": [], "progress": [], "logs": [], "http": {},
        }
        try:
            report["result"] = plain(await run(job, report, Answers(job["answers"], report)))
        except Exception as error:  # Whatever the SDK raises is the outcome of this job, and of this job alone.
            report["error"] = described(first_cause(error))
        print(json.dumps(report), flush=True)
