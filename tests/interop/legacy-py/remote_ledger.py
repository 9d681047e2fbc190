"""The ledger of a server over stdio.

A client starts a process of it for each session, so that what is counted and remembered lives with whoever runs the test
(see ../lib/ledger.mjs), and each process tells it there.
"""

import http.client
import json
import os
import threading
from urllib.parse import urlencode, urlsplit


class RemoteLedger:
    """As `Ledger` for what the fixture calls; each call waits for its answer, on loopback a matter of a millisecond."""

    def __init__(self, base: str) -> None:
        self.host = urlsplit(base).netloc
        self.connection = http.client.HTTPConnection(self.host)
        threading.Thread(target=self._live, daemon=True).start()

    def _live(self) -> None:
        """Says that this process lives, by a request that is answered but never ends; when it breaks, the test is over."""
        try:
            connection = http.client.HTTPConnection(self.host)
            connection.request("POST", "/alive")
            connection.getresponse().read()
        finally:
            os._exit(1)

    def started(self, tool: str) -> None:
        self._count("started", tool)

    def happened(self, event: str) -> int:
        return self._count("happened", event)

    def _count(self, what: str, name: str) -> int:
        self.connection.request("POST", f"/{what}?{urlencode({'name': name})}")
        return json.loads(self.connection.getresponse().read())["before"]
