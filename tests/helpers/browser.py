"""A real headless Chromium, spoken to through its DevTools pipe; nothing but the standard library."""

import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE = 60  # seconds for one answer, on a machine that does other work as well


def find_browser():
    """The path of a browser, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page in one browser.

    Attributes:
        complaints: everything the page has written to the console, and every uncaught exception.
        requests: addresses of all that the page has asked for.
    """

    def __init__(self, executable):
        self.complaints, self.requests = [], []
        self._buffer, self._count, self._session = b"", 0, None
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4; a shell puts the pipes there.
        shell = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        flags = (
            "--headless=new --remote-debugging-pipe --no-sandbox --disable-gpu --no-first-run "
            "--disable-extensions --disable-background-networking --disable-dev-shm-usage"
        )
        self._process = subprocess.Popen(
            ["bash", "-c", shell, executable, *flags.split(), f"--user-data-dir={self._profile.name}"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        """End the browser and remove its profile."""
        self._process.terminate()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._profile.cleanup()

    def call(self, method, **parameters):
        """One command of the DevTools protocol, and its answer."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def wait_for(self, event):
        """Read on until the page reports `event`."""
        while self._read().get("method") != event:
            pass

    def show(self, path, width=1280, height=900, dark=False):
        """Load a file in a window of that width."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait_for("Page.loadEventFired")

    def run(self, script):
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key, code):
        """Press and let go a key."""
        text = {"text": "\r" if key == "Enter" else key}
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=code,
                **(text if kind == "keyDown" else {}),
            )

    def _read(self):
        """The next message, whether answer or event."""
        until = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0, until - time.monotonic()))
            data = os.read(self._from, 1 << 20) if ready else b""
            if not data:
                raise RuntimeError("the browser does not answer")
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        event, found = message.get("method"), message.get("params", {})
        if event in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.complaints.append(found)
        elif event == "Network.requestWillBeSent":
            self.requests.append(found["request"]["url"])
        return message
