// An event store for resumable streams: with it the SDK gives every SSE event an id and primes every stream. Events are
// kept in the order in which they were stored, for as long as the server lives: a test run is short.

export class EventStore {
  #events = []; // { stream, message }, the index is the event id

  async storeEvent(stream, message) {
    this.#events.push({ stream, message });
    return String(this.#events.length - 1);
  }

  async getStreamIdForEventId(id) {
    return this.#events[Number(id)]?.stream;
  }

  async replayEventsAfter(lastId, { send }) {
    const stream = this.#events[Number(lastId)]?.stream;
    for (let id = Number(lastId) + 1; id < this.#events.length; id += 1) {
      const event = this.#events[id];
      // A priming event has no message: nothing to replay.
      if (event.stream === stream && Object.keys(event.message).length > 0) await send(String(id), event.message);
    }
    return stream ?? '';
  }
}
