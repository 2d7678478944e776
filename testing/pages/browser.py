"""A real browser without a screen: it loads a page and tells what happened meanwhile.

Chromium's own protocol over two pipes (`--remote-debugging-pipe`): no port, no driver, no other program.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

PROGRAM: Final = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
"""None: there is none here."""
_LIMIT_S: Final = 120
_QUIET: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
)


class BrowserError(Exception):
    """The browser is gone, is silent, or refuses what it was told."""


class Page:
    """One page of a browser; `troubles` and `requests` are what it has said since it began to load."""

    def __init__(self, tell: int, hear: int) -> None:
        self._tell, self._hear = tell, hear
        self._rest = b""
        self._number = 0
        self._target: str | None = None
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        self.troubles: list[str] = []
        """Exceptions of scripts, and everything written to the console or the browser's log."""
        self.requests: list[str] = []
        """All addresses that were asked for."""

    def load(self, page: Path | str, *, is_dark: bool = False, width: int = 1280, height: int = 900) -> None:
        """Loads a file, or a URL, in place of the page before, and waits until all of it is there."""
        self._session = None
        if self._target is not None:
            self._ask("Target.closeTarget", targetId=self._target)
        for told in (self._events, self.troubles, self.requests):
            told.clear()
        self._target = str(self._ask("Target.createTarget", url="about:blank")["targetId"])
        self._session = str(self._ask("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self._ask("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._take(self._next())

    def value(self, expression: str) -> Any:
        """Returns what a JavaScript expression amounts to in the page."""
        told = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in told:
            raise BrowserError(str(told["exceptionDetails"]))
        return told["result"].get("value")

    def move_pointer(self, x: float, y: float) -> None:
        self._ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self) -> bytes:
        """Returns what is seen, as PNG."""
        return b64decode(self._ask("Page.captureScreenshot")["data"])

    def paper(self) -> bytes:
        return b64decode(self._ask("Page.printToPDF", printBackground=True)["data"])

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            asked["sessionId"] = self._session
        os.write(self._tell, json.dumps(asked).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") != self._number:
                self._take(told)
            elif "error" in told:
                raise BrowserError(f"{method}: {told['error']}")
            else:
                return dict(told["result"])

    def _take(self, told: dict[str, Any]) -> None:
        if "method" not in told or told.get("sessionId") != self._session:
            return
        self._events.append(told)
        params = told["params"]
        match told["method"]:
            case "Runtime.exceptionThrown":
                self.troubles.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.troubles.append(str(params["args"]))
            case "Log.entryAdded":
                self.troubles.append(str(params["entry"]["text"]))
            case "Network.requestWillBeSent":
                self.requests.append(str(params["request"]["url"]))
            case _:
                pass

    def _next(self) -> dict[str, Any]:
        limit = time.monotonic() + _LIMIT_S
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._hear], [], [], max(0.0, limit - time.monotonic()))
            more = os.read(self._hear, 1 << 16) if ready else b""
            if not more:
                raise BrowserError("the browser has ended" if ready else f"the browser was silent for {_LIMIT_S} s")
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))


def _out_of_the_way(descriptor: int) -> int:
    """Moves a file descriptor above those that the shell gives another meaning."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """Starts a browser whose profile is in a folder, and ends it with all its processes."""
    if PROGRAM is None:
        raise BrowserError("there is no Chromium here: install it (Debian: apt install chromium)")
    theirs_in, tell = os.pipe()
    hear, theirs_out = os.pipe()
    theirs_in, theirs_out = _out_of_the_way(theirs_in), _out_of_the_way(theirs_out)
    # The protocol's pipes are file descriptors 3 and 4, which a shell can put there.
    command = ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", PROGRAM, *_QUIET]
    with (folder / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}"],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Page(tell, hear)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(tell)
        os.close(hear)
