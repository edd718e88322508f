"""A browser without a window, driven by the DevTools protocol through a pipe: no port, no driver, no package.

The protocol: https://chromedevtools.github.io/devtools-protocol/. Messages are JSON, ended by a zero byte; Chromium
reads them from descriptor 3 and writes them to descriptor 4.
"""

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from processes import LONG

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
COMMAND = "apt-get install chromium"
_SECONDS = LONG
_LEFT_BUTTON = {"button": "left", "buttons": 1, "clickCount": 1}


class Browser:
    """A running browser; see `started`."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back = to, back
        self._last = 0
        self._unread = b""
        self.events: list[dict[str, Any]] = []
        """What the browser told without being asked."""

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the protocol and returns its result."""
        return self.ask_all(method, session, [parameters])[0]

    def ask_all(self, method: str, session: str | None, several: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Calls a method again and again without waiting in between; returns all results."""
        return [self._answer(number, method) for number in [self._call(method, session, each) for each in several]]

    def _call(self, method: str, session: str | None, parameters: dict[str, Any]) -> int:
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        content = json.dumps(message).encode() + b"\0"
        while content:
            content = content[os.write(self._to, content) :]
        return self._last

    def _answer(self, number: int, method: str) -> dict[str, Any]:
        until = time.monotonic() + _SECONDS
        while True:
            message = self._next(until)
            if message is None:
                raise TimeoutError(f"The browser did not answer {method}.")
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def take_events(self, seconds: float) -> None:
        """Takes in what the browser tells in this time, or until it has told something."""
        message = self._next(time.monotonic() + seconds)
        if message is not None:
            self.events.append(message)

    @contextlib.contextmanager
    def page(self, url: str = "about:blank", width: int = 1100, height: int = 900, **media: str) -> "Iterator[Page]":
        """Opens a page in a profile of its own, and closes it again.

        Args:
            url: of the page.
            width, height: of the window, in CSS pixels.
            media: features such as `prefers_color_scheme="dark"`.
        """
        context = self.ask("Target.createBrowserContext")["browserContextId"]
        page = self.tab(context)
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        page.ask("Emulation.setEmulatedMedia", features=features)
        page.resize(width, height)
        try:
            page.open(url)
            yield page
        finally:
            self.ask("Target.disposeBrowserContext", browserContextId=context)

    def tab(self, context: str) -> "Page":
        """An empty page in front of the others of a profile."""
        target = self.ask("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.ask(f"{domain}.enable")
        return page

    def _next(self, until: float) -> dict[str, Any] | None:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._back], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return None
            part = os.read(self._back, 1 << 20)
            if not part:
                raise ConnectionError("The browser has ended.")
            self._unread += part
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)


class Page:
    """One page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self._session = browser, session

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the protocol for this page."""
        return self.browser.ask(method, self._session, **parameters)

    def open(self, url: str) -> None:
        """Goes to an address."""
        answer = self.ask("Page.navigate", url=url)
        if answer.get("errorText"):
            raise ConnectionError(f"{url}: {answer['errorText']}")

    def another(self, url: str) -> "Page":
        """Opens a page in a tab of its own, which hides this one."""
        page = self.browser.tab(self.ask("Target.getTargetInfo")["targetInfo"]["browserContextId"])
        page.open(url)
        return page

    def resize(self, width: int, height: int, scale: float = 1, mobile: bool = False) -> None:
        """Makes the window so large, in CSS pixels; `scale` device pixels each."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile
        )

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript gives, once it is no promise any more, as JSON."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def until(self, expression: str, seconds: float = _SECONDS) -> Any:
        """Waits until an expression gives something true, and returns it."""
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(RuntimeError):
                if found := self.value(expression):
                    return found
            if time.monotonic() > end:
                text = self.value("document.body ? document.body.innerText : ''")
                raise AssertionError(f"{expression} did not come true; problems: {self.problems}; page:\n{text}")
            self.browser.take_events(0.05)

    def press(self, key: str) -> None:
        """Presses and releases a key, such as `Tab`, `ArrowRight` or `a`."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38}
        codes |= {"ArrowRight": 39, "ArrowDown": 40, " ": 32}
        known = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper()))}
        self.ask("Input.dispatchKeyEvent", type="keyDown", **known, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **known)

    def mouse(self, kind: str, x: float, y: float, button: str = "none", **more: Any) -> None:
        """A mouse event: `mousePressed`, `mouseMoved` or `mouseReleased` at a place in CSS pixels."""
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, **more)

    def drag(self, points: "Sequence[tuple[float, float]]") -> None:
        """Presses the mouse button at the first of some places, moves through all, and releases it at the last."""
        moved = [("mousePressed", points[0]), *(("mouseMoved", point) for point in points[1:])]
        events = [{"type": kind, "x": x, "y": y} for kind, (x, y) in [*moved, ("mouseReleased", points[-1])]]
        self.browser.ask_all("Input.dispatchMouseEvent", self._session, [event | _LEFT_BUTTON for event in events])

    def picture(self, path: Path, whole: bool = True) -> Path:
        """Writes what the page looks like to a PNG file; all of it, or what is in the window."""
        answer = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))
        return path

    @property
    def problems(self) -> list[str]:
        """Errors that the page has met: exceptions, what its security policy refused, failed requests."""
        self.value("0")
        found = []
        for event in self.browser.events:
            parameters = event.get("params", {})
            if event.get("sessionId") != self._session:
                continue
            if event["method"] == "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                found.append(details.get("exception", {}).get("description") or details["text"])
            elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] == "error":
                found.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}".strip())
            elif event["method"] == "Runtime.consoleAPICalled" and parameters["type"] == "error":
                found.append(" ".join(str(argument.get("value")) for argument in parameters["args"]))
        return found

    @property
    def requested(self) -> list[str]:
        """Addresses that the page has asked for."""
        self.value("0")
        return [
            event["params"]["request"]["url"]
            for event in self.browser.events
            if event["method"] == "Network.requestWillBeSent" and event.get("sessionId") == self._session
        ]


def find() -> str | None:
    """The program of a browser that speaks the protocol, if there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@contextlib.contextmanager
def started(program: str, *options: str) -> Iterator[Browser]:
    """Starts a browser without a window, with more options if there are some, and ends it at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="rudel-browser-", ignore_cleanup_errors=True) as profile:
        command = [
            program, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
            "--hide-scrollbars", "--mute-audio", f"--user-data-dir={profile}", *options,
        ]  # fmt: skip
        read_there, write_here = _pipe()
        read_here, write_there = _pipe()
        shell = f'exec 3<&{read_there} 4>&{write_there} {read_there}<&- {write_there}>&-; exec "$@"'
        process = subprocess.Popen(
            ["bash", "-c", shell, "browser", *command],
            pass_fds=(read_there, write_there),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_there)
        os.close(write_there)
        browser = Browser(write_here, read_here)
        try:
            yield browser
        finally:
            with contextlib.suppress(OSError, TimeoutError):
                browser.ask("Browser.close")
            os.close(write_here)
            os.close(read_here)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _pipe() -> tuple[int, int]:
    """A pipe whose numbers are not those that the browser's have to have."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]
