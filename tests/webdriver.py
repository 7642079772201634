"""webdriver.py: headless Chromium over WebDriver, as far as the tests of the book need it."""
import base64
import contextlib
import http.client
import json
import pathlib
import re
import shutil
import subprocess

from helpers import HANG, wait_for

KEYS = {"Home": "\ue011", "End": "\ue010", "ArrowRight": "\ue014", "Tab": "\ue004"}
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--hide-scrollbars", "--allow-file-access-from-files",
         "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")


class Browser:
    """One window.  Messages on the console and requests that leave are in `faults()`."""

    def __init__(self):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, text=True)
        for line in self.driver.stdout:
            if found := re.search(r"successfully on port (\d+)", line):
                self.port = int(found[1])
                break
        options = {"goog:chromeOptions": {"args": list(FLAGS), "binary": shutil.which("chromium")},
                   "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        made = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": options}}, whole=True)
        self.session = f"/session/{made['sessionId']}"

    def ask(self, verb, path, body=None, whole=False):
        path = path if whole else self.session + path
        with contextlib.closing(http.client.HTTPConnection(
                "127.0.0.1", self.port, timeout=HANG)) as connection:
            connection.request(verb, path, json.dumps(body) if verb == "POST" else None)
            value = json.loads(connection.getresponse().read())["value"]
        if isinstance(value, dict) and value.get("error"):
            raise RuntimeError(f"{path}: {value['error']}: {value['message'][:300]}")
        return value

    def close(self):
        self.ask("DELETE", "")
        with self.driver as driver:
            driver.terminate()

    def run(self, script, *arguments):
        """What a function body returns."""
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def command(self, name, **parameters):
        """A command of Chromium's own protocol."""
        return self.ask("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def resize(self, width, height=900):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height,
                     deviceScaleFactor=1, mobile=False)

    def open(self, url, width=1280, height=900):
        self.resize(width, height)
        self.ask("POST", "/url", {"url": "about:blank"})
        self.ask("POST", "/url", {"url": url})

    def type(self, *keys):
        """Keys into what has the focus."""
        actions = [{"type": kind, "value": KEYS.get(key, key)}
                   for key in keys for kind in ("keyDown", "keyUp")]
        self.ask("POST", "/actions", {"actions": [{"type": "key", "id": "k", "actions": actions}]})

    def box(self, selector):
        return self.run("const b = document.querySelector(arguments[0]).getBoundingClientRect();"
                        "return [b.x, b.y, b.width, b.height]", selector)

    def focus(self, selector):
        self.run("document.querySelector(arguments[0]).focus()", selector)

    def fill(self, selector, text):
        """Replaces what stands in an input, as typing does."""
        self.run("const [selector, text] = arguments, input = document.querySelector(selector);"
                 "input.value = text; for (const kind of ['input', 'change'])"
                 "input.dispatchEvent(new Event(kind, {bubbles: true}))", selector, text)

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).textContent.trim()", selector)

    def cell(self, name):
        return self.text(f"[data-cell='{name}']")

    def until(self, script, *arguments):
        """What the script returns once it is not false."""
        return wait_for(lambda: self.run(script, *arguments))

    def picture(self, path, selector):
        found = self.ask("POST", "/element", {"using": "css selector", "value": selector})
        shot = self.ask("GET", f"/element/{next(iter(found.values()))}/screenshot")
        pathlib.Path(path).write_bytes(base64.b64decode(shot))

    def faults(self):
        """Messages on the console, and requests that leave, since the last call."""
        out = [entry["message"][:200]
               for entry in self.ask("POST", "/se/log", {"type": "browser"})]
        for entry in self.ask("POST", "/se/log", {"type": "performance"}):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                if not url.startswith(("file:", "data:", "blob:", "about:", "http://127.0.0.1:")):
                    out.append(f"asks for {url}")
        return out
