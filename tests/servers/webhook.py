"""A real HTTP server that receives webhooks, and can be told to fail."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Hook:
    """A receiver of webhooks: `answers` has the statuses of the next requests; then it answers 200."""

    def __init__(self, port: int = 0) -> None:
        self.answers: list[int] = []
        self.always: int | None = None
        self.requests: list[tuple[str, dict[str, str], bytes]] = []  # also those that were refused
        self.taken: list[dict[str, Any]] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                status = hook.always or (hook.answers.pop(0) if hook.answers else 200)
                headers = {name.lower(): value for name, value in self.headers.items()}
                hook.requests.append((self.path, headers, body))
                if status == 200:
                    hook.taken.append(json.loads(body))
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("location", f"http://127.0.0.1:{hook.port}/elsewhere")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_port
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"webhook+http://127.0.0.1:{self.port}/hook"


@contextmanager
def hook(port: int = 0):
    """A running receiver."""
    found = Hook(port)
    found.thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        found.server.server_close()
        found.thread.join(10)
