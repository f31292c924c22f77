"""A headless Chromium driven through its DevTools protocol: pages, clicks, what went wrong."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

from websockets.sync.client import connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
PATIENCE = 60.0  # seconds; a loaded machine is slow to start a browser


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def wait_for(what: Callable[[], Any]) -> Any:
    """Return the first true answer of `what`."""
    deadline = time.monotonic() + PATIENCE
    while not (answer := what()):
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.05)
    return answer


class Browser:
    """One browser with one tab. `problems` gathers console errors and uncaught exceptions;
    `requests` the addresses of everything that the page asked for."""

    def __init__(self, executable: str, profile: Path) -> None:
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._answers: dict[int, Any] = {}
        self._sent = 0
        self._process = subprocess.Popen(
            [executable, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        port_file = profile / "DevToolsActivePort"
        wait_for(lambda: port_file.exists() and len(port_file.read_text().split()) > 1)
        port = port_file.read_text().split()[0]
        with urlopen(f"http://127.0.0.1:{port}/json/list") as response:
            pages = [target for target in json.load(response) if target["type"] == "page"]
        self._open = ExitStack()
        self._socket = self._open.enter_context(
            connect(pages[0]["webSocketDebuggerUrl"], max_size=None)
        )
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.call("Browser.close")
        self._open.close()
        self._process.wait(PATIENCE)

    def call(self, method: str, **params: Any) -> Any:
        """Send a command and return its result, noting the events that come before it."""
        self._sent += 1
        self._socket.send(json.dumps({"id": self._sent, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(PATIENCE))
            if message.get("id") == self._sent:
                assert "error" not in message, message
                return message["result"]
            self._note(message["method"], message["params"])

    def open(self, file: Path, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """Load a file and wait until all of its figures are drawn that are not folded."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.theme(scheme)
        self.problems.clear()
        self.requests.clear()
        self.call("Page.navigate", url=file.resolve().as_uri())
        wait_for(
            lambda: self.run(
                "document.readyState === 'complete' && location.protocol === 'file:' && "
                "[...document.querySelectorAll('.plot')]"
                ".every(p => !p.clientWidth || p.querySelector('.drawing'))"
            )
        )

    def theme(self, scheme: str) -> None:
        """Choose "light" or "dark"."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Return the first true value of a JavaScript expression."""
        return wait_for(lambda: self.run(expression))

    def click(self, selector: str) -> None:
        """Press and release the mouse in the middle of the first element that matches."""
        x, y = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        self.move(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def move(self, x: float, y: float) -> None:
        """Move the mouse."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def drag(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """Press the mouse at one place and release it at another."""
        for kind, x, y in (
            ("mouseMoved", x1, y1),
            ("mousePressed", x1, y1),
            ("mouseMoved", x2, y2),
            ("mouseReleased", x2, y2),
        ):
            buttons = {"button": "left", "buttons": 1, "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **buttons)

    def downloads_to(self, folder: Path) -> None:
        """Save what pages offer to save in `folder`."""
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))

    def screenshot(self, path: Path) -> None:
        """Save the whole page as a PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _note(self, method: str, params: Any) -> None:
        match method:
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.problems.append(details.get("exception", details).get("description", ""))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.problems.append(str(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.problems.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
