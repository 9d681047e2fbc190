"""What the Python fixture server offers: the same tools, prompts and resources as ../legacy-ts/fixture.mjs.

Questions are asked the way FastMCP servers ask them: `ctx.elicit` with a pydantic model.
"""

import base64
import json
import uuid
from datetime import timedelta
from typing import Annotated, Any

import anyio
from mcp.server.fastmcp import Context, FastMCP
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp.shared.message import ServerMessageMetadata
from mcp.types import (
    Annotations, AudioContent, CallToolResult, Completion, ElicitRequest, ElicitRequestFormParams, ElicitRequestURLParams,
    ElicitResult, EmbeddedResource, ImageContent, ResourceLink, SamplingMessage, ServerRequest, TextContent,
    TextResourceContents, ToolAnnotations,
)
from pydantic import BaseModel, Field

from changing import add_changing_parts
from ledger import Ledger
from remote_ledger import RemoteLedger

BIG = "x" * (1 << 20)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
COLOURS = ["red", "green", "grey"]
PEOPLE = ["Ada", "Alan", "Grace"]


class Confirm(BaseModel):
    confirm: bool = Field(title="Confirm")


class Email(BaseModel):
    email: str = Field(title="Email", json_schema_extra={"format": "email"})


class Description(BaseModel):
    description: str = Field(title="What happened", min_length=20, max_length=500)


class Colour(BaseModel):  # FastMCP refuses Literal here ("must be a primitive type"), hence the extra.
    color: str = Field(json_schema_extra={"enum": ["red", "green"]})


class Size(BaseModel):
    size: int = Field(ge=1, le=60)


class Amount(BaseModel):
    amount: float = Field(ge=0.5, le=1000)


class Reason(BaseModel):
    reason: str = Field(json_schema_extra={
        "oneOf": [{"const": "late", "title": "Came late"}, {"const": "broken", "title": "Came broken"}],
    })


class Profile(BaseModel):
    name: str = Field(default="Ada", title="Name")
    age: int = Field(ge=0)
    topics: list[str] = Field(min_length=1, max_length=2, json_schema_extra={
        "items": {"type": "string", "enum": ["billing", "shipping", "other"]},
    })


class Word(BaseModel):
    word: str


class Topic(BaseModel):
    topic: str = Field(min_length=3)


class Sum(BaseModel):
    sum: float


def text(value: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=value)])


def answered(answer: Any, field: str) -> str:
    """What a result says about an answer: the accepted field, or the action that took its place."""
    return json.dumps(getattr(answer.data, field)) if answer.action == "accept" else answer.action


async def together(*asks: Any) -> list[Any]:
    """Runs the questions at the same time and gives the answers in the same order."""
    answers: list[Any] = [None] * len(asks)

    async def one(index: int) -> None:
        answers[index] = await asks[index]

    async with anyio.create_task_group() as group:
        for index in range(len(asks)):
            group.start_soon(one, index)
    return answers


async def ask_raw(
    ctx: Context, message: str, model: type[BaseModel], seconds: float | None, related: bool
) -> ElicitResult:
    """A form with a time limit or without a related request: what `ctx.elicit` cannot say."""
    params = ElicitRequestFormParams(message=message, requestedSchema=model.model_json_schema())
    return await ctx.session.send_request(
        ServerRequest(ElicitRequest(params=params)), ElicitResult,
        request_read_timeout_seconds=None if seconds is None else timedelta(seconds=seconds),
        metadata=ServerMessageMetadata(related_request_id=ctx.request_id if related else None),
    )


async def sample(ctx: Context, prompt: str) -> Any:
    message = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
    return await ctx.session.create_message(
        [message], max_tokens=64, system_prompt="Be brief.", related_request_id=ctx.request_id
    )


def build_server(ledger: Ledger | RemoteLedger, **settings: Any) -> FastMCP:
    mcp = FastMCP("holdfast-fixture-py", instructions="A legacy server that asks.", **settings)
    add_plain_tools(mcp, ledger)
    add_form_tools(mcp, ledger)
    add_other_asking_tools(mcp, ledger)
    add_timed_tools(mcp, ledger)
    add_prompts(mcp, ledger)
    add_resources(mcp, ledger)
    add_changing_parts(mcp, ledger)
    return mcp


def add_plain_tools(mcp: FastMCP, ledger: Ledger | RemoteLedger) -> None:
    @mcp.tool(
        title="Add", description="Adds two numbers.", meta={"example.com/price": 0},
        annotations=ToolAnnotations(readOnlyHint=True, openWorldHint=False),
    )
    def plain_add(a: float, b: float) -> Annotated[CallToolResult, Sum]:
        ledger.started("plain_add")
        total = TextContent(type="text", text=f"{a + b:g}")
        return CallToolResult(content=[total], structuredContent={"sum": a + b})

    @mcp.tool(description="Returns 1 MiB of text.")
    def big_result() -> CallToolResult:
        ledger.started("big_result")
        return text(BIG)

    @mcp.tool(description="Always fails.")
    def fails() -> CallToolResult:
        ledger.started("fails")
        raise ValueError('this tool always fails: "quoted", é, 漢')

    @mcp.tool(description="One content block of every kind, with annotations and _meta.")
    def every_content() -> CallToolResult:
        ledger.started("every_content")
        note: Any = "fixture://note"
        embedded = TextResourceContents(uri=note, mimeType="text/plain", text="embedded")
        return CallToolResult(
            content=[
                TextContent(
                    type="text", text='tab\t "quote" é 漢 😀',
                    annotations=Annotations(audience=["user"], priority=0.25),
                ),
                ImageContent(type="image", data=PIXEL, mimeType="image/png"),
                AudioContent(type="audio", data=PIXEL, mimeType="audio/wav"),
                ResourceLink(type="resource_link", uri=note, name="note", mimeType="text/plain"),
                EmbeddedResource(type="resource", resource=embedded),
            ],
            _meta={"example.com/trace": "abc"},
        )


def add_form_tools(mcp: FastMCP, ledger: Ledger | RemoteLedger) -> None:
    @mcp.tool(name="cancel-subscription")
    async def cancel_subscription(ctx: Context, subscriptionId: str = "sub-1") -> CallToolResult:
        ledger.started("cancel-subscription")
        r = await ctx.elicit(f"Cancel subscription {subscriptionId}?", Confirm)
        if r.action != "accept":
            return text(f"no change: {r.action}")
        return text(f"cancelled {subscriptionId}" if r.data.confirm else f"kept {subscriptionId}")

    @mcp.tool(name="file-shipping-claim")
    async def file_shipping_claim(ctx: Context, orderId: str = "order-1") -> CallToolResult:
        ledger.started("file-shipping-claim")
        mail = await ctx.elicit("Which email should we answer to?", Email)
        if mail.action != "accept":
            return text(f"claim stopped at email: {mail.action}")
        what = await ctx.elicit("Describe the damage.", Description)
        if what.action != "accept":
            return text(f"claim stopped at description: {what.action}")
        return text(f"claim for {orderId} by {mail.data.email}: {what.data.description}")

    @mcp.tool(description="Three rounds and a fourth.")
    async def refund(ctx: Context) -> CallToolResult:
        ledger.started("refund")
        steps: list[tuple[str, type[BaseModel]]] = [
            ("How much?", Amount), ("Why?", Reason), ("About whom?", Profile), ("Sure?", Confirm),
        ]
        said = []
        for message, model in steps:
            r = await ctx.elicit(message, model)
            said.append(json.dumps(sorted(r.data.model_dump().items())) if r.action == "accept" else r.action)
            if r.action != "accept":
                break
        return text(" ".join(said))

    @mcp.tool()
    async def two_at_once(ctx: Context) -> CallToolResult:
        ledger.started("two_at_once")
        color, size = await together(ctx.elicit("Which color?", Colour), ctx.elicit("Which size?", Size))
        return text(f"color={answered(color, 'color')} size={answered(size, 'size')}")

    @mcp.tool(description="Two forms of several properties each.")
    async def same_keys_at_once(ctx: Context) -> CallToolResult:
        ledger.started("same_keys_at_once")
        both = await together(ctx.elicit("First person?", Profile), ctx.elicit("Second person?", Profile))
        return text(" and ".join(answered(r, "name") for r in both))

    @mcp.tool()
    async def echo_word(ctx: Context, id: str, related: bool = True) -> CallToolResult:
        ledger.started("echo_word")
        r = await ask_raw(ctx, f"Word for {id}?", Word, None, related)
        return text(f"{id} got {json.dumps(r.content['word']) if r.content else r.action}")

    @mcp.tool(description="Asks without naming the request it belongs to.")
    async def elicit_on_get_stream(ctx: Context) -> CallToolResult:
        ledger.started("elicit_on_get_stream")
        r = await ask_raw(ctx, "Seen on the GET stream?", Confirm, None, related=False)
        return text(f"unrelated: {r.content['confirm'] if r.content else r.action}")


def add_other_asking_tools(mcp: FastMCP, ledger: Ledger | RemoteLedger) -> None:
    @mcp.tool()
    async def ask_llm(ctx: Context, prompt: str = "Capital of France?") -> CallToolResult:
        ledger.started("ask_llm")
        r = await sample(ctx, prompt)
        return text(f"{r.model} said {r.content.text} ({r.stopReason})")

    @mcp.tool()
    async def list_roots(ctx: Context) -> CallToolResult:
        ledger.started("list_roots")
        # The SDK takes no related request here: roots/list always travels on the GET stream.
        r = await ctx.session.list_roots()
        return text("roots: " + " ".join(f"{root.name}={root.uri}" for root in r.roots))

    @mcp.tool(description="A form, a sampling request and a roots request at the same time.")
    async def all_at_once(ctx: Context) -> CallToolResult:
        ledger.started("all_at_once")
        a, b, c = await together(ctx.elicit("Go on?", Confirm), sample(ctx, "Say it."), ctx.session.list_roots())
        return text(f"{answered(a, 'confirm')} {b.content.text} {len(c.roots)}")

    @mcp.tool(description="One url elicitation, then its completion notification.")
    async def url_auth(ctx: Context) -> CallToolResult:
        ledger.started("url_auth")
        elicitation_id = str(uuid.uuid4())
        r = await ctx.elicit_url("Sign in, please.", "https://example.com/login?e=1", elicitation_id)
        await ctx.session.send_elicit_complete(elicitation_id, related_request_id=ctx.request_id)
        return text(f"url: {r.action}")

    @mcp.tool(description="Wants a sign-in the first time it sees a key.")
    async def url_auth_error(key: str) -> CallToolResult:
        ledger.started("url_auth_error")
        if ledger.happened(f"signed-in:{key}"):
            return text(f"signed in as {key}")
        question = ElicitRequestURLParams(
            mode="url", message="Sign in first.", elicitationId=str(uuid.uuid4()), url="https://example.com/login?e=2"
        )
        raise UrlElicitationRequiredError([question], "Sign in first.")


def add_timed_tools(mcp: FastMCP, ledger: Ledger | RemoteLedger) -> None:
    @mcp.tool(description="Progress, a question, more progress, a result.")
    async def slow_progress(ctx: Context) -> CallToolResult:
        ledger.started("slow_progress")

        async def step(n: int) -> None:
            await anyio.sleep(0.01)
            await ctx.report_progress(n, 4, f"step {n}")

        await step(1)
        await step(2)
        r = await ctx.elicit("Go on?", Confirm)
        await step(3)
        await step(4)
        return text(f"done: {answered(r, 'confirm')}")

    @mcp.tool(description="Log messages, a question, a log message.")
    async def log_then_ask(ctx: Context) -> CallToolResult:
        ledger.started("log_then_ask")

        async def log(level: Any, data: Any) -> None:
            await ctx.session.send_log_message(level, data, logger="fixture", related_request_id=ctx.request_id)

        await log("debug", "about to ask")
        await log("warning", {"step": 1})
        r = await ctx.elicit("Go on?", Confirm)
        await log("info", "asked")
        return text(f"asked: {answered(r, 'confirm')}")

    # Gives up 300 ms after it asked: the number is arbitrary, tests wait for the event instead of measuring it.
    @mcp.tool(description="Asks, and gives up soon.")
    async def elicit_timeout(ctx: Context, key: str, ms: float = 300) -> CallToolResult:
        ledger.started("elicit_timeout")
        try:
            r = await ask_raw(ctx, "Quick!", Confirm, ms / 1000, related=True)
            return text(f"in time: {r.content['confirm'] if r.content else r.action}")
        except Exception:
            ledger.happened(f"gave-up:{key}")
            raise

    @mcp.tool(description="Runs until it is cancelled.")
    async def hang(key: str) -> CallToolResult:
        ledger.started("hang")
        ledger.happened(f"hanging:{key}")
        try:
            await anyio.sleep_forever()
        finally:
            ledger.happened(f"cancelled:{key}")
        return text("never")


def add_prompts(mcp: FastMCP, ledger: Ledger | RemoteLedger) -> None:
    @mcp.prompt(title="Plain", description="Greets.")
    def plain_prompt(name: str, mood: str | None = None) -> str:
        return f"Greet {name}, {mood or 'calmly'}."

    @mcp.prompt(description="Asks for a topic first.")
    async def eliciting_prompt(ctx: Context) -> str:
        ledger.started("eliciting_prompt")
        r = await ctx.elicit("Which topic?", Topic)
        return f"Write about {answered(r, 'topic')}."

    @mcp.completion()
    async def complete(_ref: Any, argument: Any, _context: Any) -> Completion | None:
        known = {"name": PEOPLE, "colour": COLOURS}.get(argument.name, [])
        values = [value for value in known if value.startswith(argument.value)]
        return Completion(values=values, total=len(values), hasMore=False)


def add_resources(mcp: FastMCP, ledger: Ledger | RemoteLedger) -> None:
    @mcp.resource("fixture://note", title="Note", description="A note", mime_type="text/plain")
    def note() -> str:
        return "a note"

    @mcp.resource("fixture://pixel", mime_type="image/png")
    def pixel() -> bytes:
        return base64.b64decode(PIXEL)

    @mcp.resource("fixture://paint/{colour}", description="A paint", mime_type="text/plain")
    def paint(colour: str) -> str:
        return f"{colour} paint"

    @mcp.resource("fixture://secret/{name}", mime_type="text/plain")
    async def secret(name: str, ctx: Context) -> str:
        ledger.started("secret")
        r = await ctx.elicit(f"Reveal {name}?", Confirm)
        return f"secret of {name}: {answered(r, 'confirm')}"
