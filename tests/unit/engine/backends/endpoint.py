"""A chat-completions endpoint on this machine, with faults on request."""

import json
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Say:
    """One response. Status 0 drops the connection without one."""

    status: int = 200
    body: object = None
    """JSON, or text as it is; `None` is a completion that echoes the prompt."""
    headers: dict[str, str] = field(default_factory=dict)
    after_s: float = 0.0


Behaviour = Callable[[str, int, dict[str, Any]], Say]
"""Prompt, how often it was asked before, whole request -> response."""


def completion(text: str | None, finish_reason: str | None = "stop", **message: object) -> object:
    return {
        "id": "x",
        "object": "chat.completion",
        "model": "served",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": text, **message},
            }
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }


def error(message: str, **more: object) -> object:
    return {"error": {"message": message, "type": "invalid_request_error", **more}}


class FakeEndpoint:
    """Serves until its context is left; remembers what it was asked."""

    def __init__(
        self, behave: Behaviour = lambda prompt, asked, body: Say(), *, port: int = 0
    ) -> None:
        self.behave = behave
        self.times: list[float] = []
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.asked: Counter[str] = Counter()
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), _handler(self))
        self.port = self._server.server_port
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> "FakeEndpoint":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def respond(self, body: dict[str, Any], key: str | None) -> Say:
        prompt = body["messages"][0]["content"]
        with self._lock:
            self.times.append(time.monotonic())
            self.bodies.append(body)
            self.keys.add(key)
            before = self.asked[prompt]
            self.asked[prompt] += 1
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        say = self.behave(prompt, before, body)
        time.sleep(say.after_s)
        with self._lock:
            self._now -= 1
        return say


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up are part of the tests."""


def _handler(endpoint: FakeEndpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            assert self.path == "/v1/chat/completions"
            say = endpoint.respond(body, self.headers.get("authorization"))
            if say.status == 0:
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.close_connection = True
                return
            content = say.body
            if content is None:
                content = completion(f"echo {body['messages'][0]['content']}")
            text = content if isinstance(content, str) else json.dumps(content)
            self.send_response(say.status)
            for name, value in say.headers.items():
                self.send_header(name, value)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Silence."""

    return Handler
