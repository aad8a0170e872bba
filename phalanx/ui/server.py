"""The local web server: the page, and its requests for runs, replays and comparisons.

It answers only GET, only on 127.0.0.1, and only requests that name this machine as their host, against DNS
rebinding. Paths are looked up in a table and runs by an id, so that no request names a file.
"""

import html
import json
import logging
import socketserver
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from phalanx.errors import PhalanxError
from phalanx.report.page import hashes
from phalanx.ui.library import Library
from phalanx.ui.reports import Reports

logger = logging.getLogger(__name__)
HERE = "127.0.0.1"
FIELDS = 4000  # of a query
NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'"
PAGE = (
    f"{NOTHING}; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; frame-src 'self'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
REPORT = f"sandbox; {NOTHING}; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
REPLAY = (
    f"sandbox allow-scripts allow-downloads; {NOTHING}; style-src {{}}; script-src {{}}; "
    "img-src data: blob:; frame-ancestors 'self'"
)
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/ui.css": ("ui.css", "text/css; charset=utf-8"),
    "/ui.js": ("ui.js", "text/javascript; charset=utf-8"),
    "/views.js": ("views.js", "text/javascript; charset=utf-8"),
    "/chart.js": ("chart.js", "text/javascript; charset=utf-8"),
}

Query = Mapping[str, list[str]]


class Answer(NamedTuple):
    """The response to a request."""

    body: bytes
    kind: str = "application/json"
    policy: str = NOTHING
    status: HTTPStatus = HTTPStatus.OK


def _json(told: Any, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    return Answer(json.dumps(told, allow_nan=False, separators=(",", ":")).encode(), status=status)


def _page(text: str, policy: str, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    return Answer(text.encode("utf-8", "backslashreplace"), "text/html; charset=utf-8", policy, status)


def _line(text: str, status: HTTPStatus) -> Answer:
    """An HTML page with one line of text, for an iframe."""
    style = "body{font:16px/1.5 system-ui,sans-serif;margin:24px;max-width:70ch}"
    head = f'<meta charset="utf-8"><meta name="color-scheme" content="light dark"><style>{style}</style>'
    return _page(f"<!doctype html>{head}<p>{html.escape(text)}</p>", REPORT, status)


class Server(ThreadingHTTPServer):
    """Serves a library of runs to this machine until it is closed."""

    daemon_threads = True

    def __init__(self, library: Library, port: int):
        self.library, self.lock, self.reports = library, threading.Lock(), Reports()
        folder = resources.files("phalanx.ui") / "page"
        self.files = {
            path: Answer((folder / name).read_bytes(), kind, PAGE) for path, (name, kind) in FILES.items()
        }
        try:
            super().__init__((HERE, port), Handler)
        except OSError as error:
            raise PhalanxError(
                f"cannot use port {port}: {error.strerror}; give another --port, or 0 for a free one"
            ) from None

    def server_bind(self) -> None:
        """Bind without looking up the host name, which can take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HERE, self.server_address[1]

    @property
    def address(self) -> str:
        return f"http://{HERE}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of connections that the browser closed."""

    def answer(self, path: str, query: Query) -> Answer:
        """The answer to a request."""
        if path in self.files:
            return self.files[path]
        found = {
            "/api/runs": self._runs,
            "/api/curves": self._curves,
            "/api/run": self._run,
            "/api/options": self._options,
            "/report": self._report,
            "/replay": self._replay,
        }.get(path)
        if found is None:
            return _json({"error": "there is no such page"}, HTTPStatus.NOT_FOUND)
        return found(query)

    def _runs(self, query: Query) -> Answer:
        since = query.get("since", ["0"])[0]
        with self.lock:
            self.library.refresh()
            known = since.isascii() and since.isdecimal() and int(since[:18]) <= self.library.version
            return _json(self.library.overview(int(since[:18]) if known else 0))

    def _curves(self, query: Query) -> Answer:
        pairs = (each.partition(":") for each in query.get("run", []))
        cursors = {run: cursor for run, _, cursor in pairs}
        with self.lock:
            return _json(self.library.curves(query.get("metric", []), cursors))

    def _run(self, query: Query) -> Answer:
        with self.lock:
            run = self.library.runs.get(query.get("run", [""])[0])
            if run is None:
                return _json({"error": "there is no such run"}, HTTPStatus.NOT_FOUND)
            return _json(run.detail())

    def _options(self, query: Query) -> Answer:
        with self.lock:
            return _json(self.library.differences(query.get("run", []), "all" in query))

    def _replay(self, query: Query) -> Answer:
        run = self.library.runs.get(query.get("run", [""])[0])
        if run is None:
            return _line("There is no such run.", HTTPStatus.NOT_FOUND)
        try:
            return _page(run.replay(query.get("file", [""])[0]), REPLAY.format(*hashes()))
        except PhalanxError as error:
            return _line(f"This replay cannot be shown: {error}", HTTPStatus.NOT_FOUND)

    def _report(self, query: Query) -> Answer:
        with self.lock:
            found = [self.library.runs.get(each) for each in query.get("run", [])]
        metric, steps = (query.get(name, [""])[0] for name in ("metric", "steps"))
        try:
            return _page(self.reports.page([run for run in found if run], metric, steps), REPORT)
        except PhalanxError as error:
            return _line(f"These runs cannot be compared: {error}", HTTPStatus.OK)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "phalanx", ""
    timeout = 60  # seconds without a request

    def do_GET(self) -> None:
        if not self._from_here():
            self._send(_json({"error": "this page is for this machine only"}, HTTPStatus.FORBIDDEN))
            return
        try:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query, keep_blank_values=True, max_num_fields=FIELDS)
        except ValueError:
            self._send(_json({"error": "this request is not readable"}, HTTPStatus.BAD_REQUEST))
            return
        try:
            answer = self.server.answer(parts.path, query)
        except Exception as error:  # a folder may hold anything: say what, and go on for the others
            logger.warning("cannot answer %r: %s: %s", parts.path, type(error).__name__, error)
            answer = _json({"error": f"{type(error).__name__}: {error}"}, HTTPStatus.INTERNAL_SERVER_ERROR)
        self._send(answer)

    do_HEAD = do_GET

    def _refuse(self) -> None:
        self.close_connection = True  # what it sends is not read
        self._send(_json({"error": "this page is only read"}, HTTPStatus.METHOD_NOT_ALLOWED))

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _refuse

    def _from_here(self) -> bool:
        """Whether a request names this machine as its host and does not come from another site."""
        port = self.server.server_port
        hosts = self.headers.get_all("Host", [])
        here = len(hosts) == 1 and hosts[0] in (f"{HERE}:{port}", f"localhost:{port}")
        part = self.headers.get("Sec-Fetch-Mode", "navigate") != "navigate"
        return here and not (part and self.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"))

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in {
            "Content-Type": answer.kind,
            "Content-Length": str(len(answer.body)),
            "Content-Security-Policy": answer.policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests."""
