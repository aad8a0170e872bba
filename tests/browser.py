"""A real browser without a package for it: Chromium, headless, spoken to through a pipe.

The protocol is Chromium's own (DevTools): JSON messages that end in a zero byte, in on file descriptor 3 and
out on 4.
"""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE = 60.0  # seconds for an answer, on a busy machine


def find() -> str | None:
    """Where a browser is; None if there is none."""
    named = os.environ.get("PHALANX_BROWSER")
    return named or next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page of a browser."""

    def __init__(self, read: int, write: int):
        self._read, self._write, self._rest, self._count = read, write, b"", 0
        self.session: str | None = None
        self.home: tuple[str, ...] = ("file:", "data:", "blob:")
        """beginnings of addresses that a page may ask for"""
        self.complaints: list[str] = []
        """what the console said, and requests that left the machine"""
        self._world: dict[str, int] = {}
        self._corner = (0.0, 0.0)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Say something and wait for the answer to it."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        for answer in self._messages():
            if answer.get("id") == self._count:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self._hear(answer)
        raise AssertionError(f"the browser did not answer {method}")

    def _messages(self) -> Iterator[dict[str, Any]]:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            while b"\0" in self._rest:
                one, self._rest = self._rest.split(b"\0", 1)
                yield json.loads(one)
            if select.select([self._read], [], [], 0.5)[0]:
                self._rest += os.read(self._read, 1 << 20)

    def _hear(self, message: dict[str, Any]) -> None:
        method, told = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(told["exceptionDetails"]))
        if method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(told["args"]))
        if method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(told["entry"]["text"])
        if method == "Network.requestWillBeSent":
            url = told["request"]["url"]
            if not url.startswith(self.home):
                self.complaints.append(f"asked the network for {url}")

    def open(self, page: Path | str, after: str = "") -> None:
        """Load a page from disk or from a server here, and wait until its script says that it is ready."""
        self.call("Page.navigate", url="about:blank")
        if isinstance(page, str):
            self.home = (page, "data:", "blob:")
        self.call("Page.navigate", url=(page if isinstance(page, str) else page.absolute().as_uri()) + after)
        self.until("document.documentElement?.dataset.ready === 'yes'")

    def ask(self, expression: str) -> Any:
        """What a piece of JavaScript gives."""
        how = {"returnByValue": True, "awaitPromise": True, **self._world}
        answer = self.call("Runtime.evaluate", expression=expression, **how)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait for something to become true."""
        end = time.monotonic() + PATIENCE
        while not self.ask(expression):
            assert time.monotonic() < end, f"never came true: {expression}; {self.complaints}"
            time.sleep(0.02)

    @contextlib.contextmanager
    def frame(self) -> Iterator[None]:
        """Speak to the sandboxed frame of the page, which has a process of its own."""
        page, self.session, found, end = self.session, None, [], time.monotonic() + PATIENCE
        try:
            while not found:
                assert time.monotonic() < end, "there is no frame"
                targets = self.call("Target.getTargets")["targetInfos"]
                found = [each["targetId"] for each in targets if each["type"] == "iframe"]
            self.session = self.call("Target.attachToTarget", targetId=found[0], flatten=True)["sessionId"]
            for part in ("Runtime", "Log", "Network"):
                self.call(f"{part}.enable")
            yield
        finally:
            self.session = page

    @contextlib.contextmanager
    def inside(self, selector: str) -> Iterator[None]:
        """Speak to the only frame of the page, which shares its process, as a file beside the page does."""
        self.ask(f"{_find(selector)}.scrollIntoView()")  # one that is lazy loads when it is seen
        found, end = [], time.monotonic() + PATIENCE
        while not found:
            assert time.monotonic() < end, "there is no frame"
            frames = self.call("Page.getFrameTree")["frameTree"].get("childFrames", [])
            found = [each["frame"]["id"] for each in frames if each["frame"]["url"] != "about:blank"]
        self._corner = tuple(self.ask(f"(b => [b.x, b.y])({_find(selector)}.getBoundingClientRect())"))
        world = self.call("Page.createIsolatedWorld", frameId=found[0])["executionContextId"]
        self._world = {"contextId": world}
        try:
            yield
        finally:
            self._world, self._corner = {}, (0.0, 0.0)

    def press(self, key: str) -> None:
        """Press a key and let it go."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def click(self, selector: str) -> None:
        """Click in the middle of an element, as a mouse does."""
        script = f"(b => [b.x + b.width / 2, b.y + b.height / 2])({_find(selector)}.getBoundingClientRect())"
        x, y = (at + corner for at, corner in zip(self.ask(script), self._corner, strict=True))
        for what in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=what, x=x, y=y, button="left", clickCount=1)

    def text(self, selector: str) -> str:
        """The words in an element."""
        return self.ask(f"{_find(selector)}.innerText")

    def resize(self, width: int, height: int, dark: bool = False, phone: bool = False) -> None:
        """Look at the page on another screen."""
        size = {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": phone}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, file: Path) -> None:
        """Save what is on the screen as PNG."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


def _find(selector: str) -> str:
    return f"document.querySelector({json.dumps(selector)})"


@contextlib.contextmanager
def browser(path: str) -> Iterator[Browser]:
    """Start a browser of its own and end it."""
    (read_in, write_in), (read_out, write_out) = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        flags += ["--remote-debugging-pipe", f"--user-data-dir={home}", "--disable-background-networking"]
        # The browser reads from 3 and writes to 4, whatever the numbers are here.
        become = f"os.dup2({read_in}, 3); os.dup2({write_out}, 4); os.execv(sys.argv[1], sys.argv[1:])"
        words = [sys.executable, "-c", f"import os, sys; {become}", path, *flags, "about:blank"]
        process = subprocess.Popen(words, pass_fds=(read_in, write_out), stderr=subprocess.DEVNULL)
        os.close(read_in)
        os.close(write_out)
        try:
            page = Browser(read_out, write_in)
            targets = page.call("Target.getTargets")["targetInfos"]
            target = next(each["targetId"] for each in targets if each["type"] == "page")
            page.session = page.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for part in ("Page", "Runtime", "Log", "Network"):
                page.call(f"{part}.enable")
            yield page
        finally:
            process.kill()
            process.wait()
            os.close(read_out)
            os.close(write_in)
