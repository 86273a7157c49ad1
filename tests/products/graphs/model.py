"""A server that speaks as an OpenAI-compatible one does, and says what a test has it say."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Shown = list[dict[str, Any]]


@dataclass
class Asked:
    """A request as it came."""

    path: str
    authorization: str | None
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    @property
    def shown(self) -> Shown:
        """The domains that were to be named."""
        shown: Shown = json.loads(self.body["messages"][-1]["content"])
        return shown


@dataclass
class Model:
    """Answers with ``status`` and with ``says``, which is given what it is shown.

    While ``holding`` is set it does not answer at all; while ``trickling`` is, its answer comes
    byte by byte and has no end. Each of ``first`` is what the next request meets in their place: a
    status, a text to say, or None for no answer at all.
    """

    url: str = ""
    status: int = 200
    says: Callable[[Shown], str] = field(default=lambda shown: completion({"domains": []}))
    asked: list[Asked] = field(default_factory=list)
    holding: bool = False
    trickling: bool = False
    first: list[int | str | None] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)


def completion(content: Any) -> str:
    """A chat completion whose message is this; text as it is, other things as JSON."""
    text = content if isinstance(content, str) else json.dumps(content)
    message = {"role": "assistant", "content": text}
    return json.dumps({"object": "chat.completion", "choices": [{"index": 0, "message": message}]})


@contextmanager
def serving_a_model() -> Iterator[Model]:
    model = Model()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            asked = Asked(self.path, self.headers["authorization"], raw)
            model.asked.append(asked)
            meets = model.first.pop(0) if model.first else 0
            if model.holding or meets is None:
                model.release.wait()
                return
            if model.trickling:
                self._trickle()
                return
            body = (meets if isinstance(meets, str) else model.says(asked.shown)).encode()
            self.send_response(meets if isinstance(meets, int) and meets else model.status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _trickle(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(ConnectionError):
                while not model.release.wait(0.02):
                    self.wfile.write(b" ")

        def log_message(self, *_: Any) -> None:
            """Not on the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    model.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield model
    finally:
        model.release.set()
        server.shutdown()
        thread.join()
        server.server_close()
