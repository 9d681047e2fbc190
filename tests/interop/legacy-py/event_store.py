"""An event store for resumable streams: with it the SDK gives every SSE event an id and primes every stream.

Events are kept in the order in which they were stored, for as long as the server lives: a test run is short.
"""

from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp.types import JSONRPCMessage


class MemoryEventStore(EventStore):
    def __init__(self) -> None:
        self.events: list[tuple[StreamId, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        self.events.append((stream_id, message))
        return str(len(self.events) - 1)

    async def replay_events_after(self, last_event_id: EventId, send_callback: EventCallback) -> StreamId | None:
        last = int(last_event_id)
        if last >= len(self.events):
            return None
        stream = self.events[last][0]
        for index in range(last + 1, len(self.events)):
            other, message = self.events[index]
            # A priming event has no message: nothing to replay.
            if other == stream and message is not None:
                await send_callback(EventMessage(message, str(index)))
        return stream
