"""Drives a browser through every page of the viewer and names what is wrong with it.

A page is complete when nothing in it waits, no request is under way, and it stays so for some frames.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import importlib.util
import itertools
import json
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Any

from tests import launching

SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
SCHEMES = ("light", "dark")
MILLISECONDS = 30_000
"""How long a page may take, on a machine that does other things too. What it takes is measured elsewhere."""

_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
_QUIET_FRAMES = 3
_TALLEST = 4_000  # pixels of a screenshot
_MOST_CONTROLS = 120
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/\S*")

_IS_COMPLETE = """() => {
  const isThere = document.querySelector("main h1, main [role=alert]") !== null;
  return isThere && document.querySelector('main :is(.waiting, [aria-busy="true"])') === null;
}"""

_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"

# A radio group is reached at one of its buttons.
_FIND_CONTROLS = """() => {
  const everything = (root) =>
    [...root.querySelectorAll("*")].flatMap((element) =>
      element.shadowRoot ? [element, ...everything(element.shadowRoot)] : [element]);
  const all = everything(document).filter((element) =>
    element.matches("a[href], button, input, select, textarea, summary, [tabindex]"));
  const groups = new Set();
  const isReached = (element) => {
    if (element.tabIndex < 0 || element.disabled || element.closest("[inert]") !== null) return false;
    if (!element.checkVisibility({ visibilityProperty: true })) return false;
    if (element.type !== "radio") return true;
    const isFirst = !groups.has(element.name);
    groups.add(element.name);
    return isFirst;
  };
  const look = (element) => {
    const { outlineStyle, outlineWidth, boxShadow, borderColor, backgroundColor } = getComputedStyle(element);
    return [outlineStyle, outlineWidth, boxShadow, borderColor, backgroundColor].join();
  };
  document.activeElement?.blur();
  window.checked = { look, controls: [...all].filter(isReached) };
  window.checked.before = window.checked.controls.map(look);
  return window.checked.controls.length;
}"""

_FOCUSED = """() => {
  const { controls, before, look } = window.checked;
  let focused = document.activeElement;
  while (focused.shadowRoot?.activeElement) focused = focused.shadowRoot.activeElement;
  const isSame = (control) =>
    control === focused || (control.type === "radio" && focused.type === "radio" && control.name === focused.name);
  const number = controls.findIndex(isSame);
  return { number, isVisible: number < 0 || look(focused) !== before[number] };
}"""

_CALLED = """(number) => {
  const { tagName, className, textContent } = window.checked.controls[number];
  return `${tagName.toLowerCase()}.${String(className.baseVal ?? className)} "${textContent.trim().slice(0, 40)}"`;
}"""

# The row that is marked, or that has the focus.
_CURRENT = """() => {
  const marked = document.querySelector('main [aria-current="true"]');
  const row = marked ?? document.activeElement.closest("main :is(tr, li)");
  return row === null ? null : row.textContent.trim().slice(0, 200);
}"""


def missing() -> str | None:
    """What is not installed here; None where a browser can be driven."""
    if chromium() is None:
        return "Chromium is not installed"
    for package in ("playwright", "axe_playwright_python"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed"
    return None


def chromium() -> str | None:
    return next(filter(None, map(shutil.which, _CHROMIUM)), None)


@contextlib.contextmanager
def browser(*arguments: str) -> Iterator[Any]:
    """The system's Chromium without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", *arguments])
        try:
            yield found
        finally:
            found.close()


@contextlib.contextmanager
def serving(*words: object, **more: Any) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The viewer's server on these runs: its address with the token, and its process."""
    with tempfile.TemporaryDirectory() as folder:
        errors = open(pathlib.Path(folder) / "stderr", "w+")  # noqa: SIM115 - closed below
        process = subprocess.Popen(
            [sys.executable, "-m", "launch.view", *map(str, words), "--port=0"],
            cwd=launching.ROOT,
            env=launching.environment(PYTHONUNBUFFERED="1", **more),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        lines: queue.Queue[str] = queue.Queue()

        def read() -> None:
            for line in itertools.chain(process.stdout, [""]):
                lines.put(line)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            printed = ""
            while (found := _ADDRESS.search(printed)) is None:
                line = lines.get(timeout=60)
                printed += line
                assert line, f"the viewer ended: {printed}{pathlib.Path(errors.name).read_text()}"
            yield found[0].rstrip(".,"), process
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(20)
            finally:
                process.kill()
                errors.close()


class _Host(http.server.SimpleHTTPRequestHandler):
    """A static file server as others run them: with byte ranges, or without."""

    protocol_version = "HTTP/1.1"

    def __init__(self, *arguments: Any, ranges: bool, **named: Any):
        self._ranges = ranges
        super().__init__(*arguments, **named)

    def do_GET(self) -> None:
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        path = pathlib.Path(self.translate_path(self.path))
        if not self._ranges or found is None or not path.is_file():
            super().do_GET()
            return
        content = path.read_bytes()
        first, last = found[1], found[2]
        begin = int(first) if first else max(0, len(content) - int(last))
        end = min(len(content), int(last) + 1) if first and last else len(content)
        self.send_response(206)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(content)}")
        self.send_header("Content-Length", str(end - begin))
        self.end_headers()
        self.wfile.write(content[begin:end])

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def hosting(folder: pathlib.Path, *, ranges: bool) -> Iterator[str]:
    """The address of a folder that a static host serves below another address, as pages of projects are."""
    with tempfile.TemporaryDirectory() as root:
        (pathlib.Path(root) / "project").mkdir()
        (pathlib.Path(root) / "project" / "viewer").symlink_to(folder.resolve(), target_is_directory=True)
        handler = functools.partial(_Host, directory=root, ranges=ranges)
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            try:
                yield f"http://127.0.0.1:{server.server_port}/project/viewer/"
            finally:
                server.shutdown()


class Visit:
    """A page of a browser whose faults are noted in ``problems``. A context manager.

    ``address`` is the viewer's, with its token where it has one.
    """

    def __init__(self, browser: Any, address: str, size: str = "desktop", scheme: str = "light"):
        width, height = SIZES[size]
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.page.set_default_timeout(MILLISECONDS)
        self.problems: list[str] = []
        self._asked: set[Any] = set()  # requests without an answer
        self.base = address.partition("?")[0]
        self._host = urllib.parse.urlsplit(address).netloc
        self.page.on("console", self._heed_console)
        self.page.on("pageerror", lambda error: self._note(f"page error: {error}"))
        self.page.on("dialog", self._heed_dialog)
        self.page.on("request", self._heed_request)
        self.page.on("requestfailed", self._heed_failure)
        self.page.on("requestfinished", lambda request: self._asked.discard(request))
        self.page.on("response", self._heed_response)
        if address != self.base:
            self.page.goto(address)  # the token becomes a cookie
            self.wait()

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: Any) -> None:
        self.context.close()

    def open(self, route: str) -> None:
        """Loads an address anew, as a deep link does, and waits until its page is complete."""
        self.page.goto("about:blank")
        self._asked.clear()
        self.page.goto(self.base + route)
        self.wait()

    def wait(self) -> None:
        """Waits until the page is complete."""
        quiet, deadline = 0, time.monotonic() + MILLISECONDS / 1_000
        while quiet < _QUIET_FRAMES:
            self.page.wait_for_function(_IS_COMPLETE)
            self.page.evaluate(_FRAMES)
            quiet = quiet + 1 if not self._asked and self.page.evaluate(_IS_COMPLETE) else 0
            if time.monotonic() > deadline:
                raise TimeoutError(f"requests without an end: {[request.url for request in self._asked][:3]}")

    def document(self, name: str) -> Any:
        """A document of the viewer."""
        response = self.context.request.get(f"{self.base}data/{name}")
        assert response.ok, f"data/{name}: {response.status}"
        return json.loads(response.text())

    @property
    def heading(self) -> str:
        return self.page.locator("main h1").first.inner_text()

    @property
    def route(self) -> str:
        return self.page.evaluate("location.hash")

    def _note(self, problem: str) -> None:
        self.problems.append(" ".join(problem.split())[:600])

    def _heed_console(self, message: Any) -> None:
        if message.type == "error":
            self._note(f"console error: {message.text} ({message.location.get('url', '')})")

    def _heed_dialog(self, dialog: Any) -> None:
        self._note(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _heed_request(self, request: Any) -> None:
        self._asked.add(request)
        parts = urllib.parse.urlsplit(request.url)
        if parts.scheme not in ("data", "blob", "about") and parts.netloc != self._host:
            self._note(f"request to another host: {request.url}")

    def _heed_failure(self, request: Any) -> None:
        self._asked.discard(request)
        if request.failure != "net::ERR_ABORTED":  # of a page that has been left
            self._note(f"request failed: {request.url} ({request.failure})")

    def _heed_response(self, response: Any) -> None:
        if response.status == 202:  # whose content the page does not read, so that it has no end
            self._asked.discard(response.request)
        if response.status >= 400:
            self._note(f"status {response.status}: {response.url}")


def routes(visit: Visit) -> list[str]:
    """Every kind of page. Of runs of the same kind and tasks, the first one has them all."""
    found, alike = ["#/", "#/leaderboard"], {}
    for run in visit.document("runs.json")["runs"]:
        slug = urllib.parse.quote(run["slug"])
        found.append(f"#/run/{slug}")
        if run["status"] == "finished":
            alike.setdefault((run["kind"], *sorted(run["tasks"])), []).append(slug)
        if run["kind"] == "generated":
            found.append(f"#/images/{slug}")
    for (kind, *_), slugs in alike.items():
        if kind != "generated":
            found += _pages_of(visit, slugs)
    return list(dict.fromkeys(found))


def _pages_of(visit: Visit, slugs: Sequence[str]) -> Iterator[str]:
    """Of the first run, and of its comparisons with the others."""
    slug, *others = slugs
    yield f"#/run/{slug}/report"
    tasks = visit.document(f"runs/{slug}/run.json")["tasks"]
    if any(task["kind"] == "bias" for task in tasks.values()):
        yield f"#/bias/{slug}"
    if others:
        yield f"#/compare/{slug}/{','.join(others[:5])}"
        yield f"#/flips/{slug}/{others[0]}"
    for name, described in tasks.items():
        if described["rows"]:
            task = urllib.parse.quote(name, safe="")
            yield f"#/questions/{slug}/{task}"
            for row in dict.fromkeys((0, described["rows"] - 1)):
                yield f"#/question/{slug}/{task}/{row}"
            for other in others[:1]:
                yield f"#/question/{slug}/{task}/1?with={other}"
                yield f"#/flips/{slug}/{other}?task={task}"


def check_page(visit: Visit, route: str, *, axe: bool = True) -> list[str]:
    """Opens a page and returns what is wrong with it."""
    visit.problems.clear()
    try:
        visit.open(route)
        visit.problems += _faults(visit)
        if axe:
            visit.problems += accessibility(visit)
    except Exception as error:  # such as a page that is never complete: the next one is looked at all the same
        visit.problems.append(f"not complete: {' '.join(str(error).split())[:300]}")
    return [*visit.problems]


def _faults(visit: Visit) -> Iterator[str]:
    page = visit.page
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    if wide > 0:
        yield f"the page scrolls sideways by {wide} px"
    if (count := page.locator("main h1").count()) != 1:
        yield f"{count} headings h1"
    if not page.title().strip():
        yield "no title"
    for waiting in page.locator(".waiting:visible").all_inner_texts():
        yield f"it still says: {waiting}"
    for alert in page.locator("main [role=alert]:visible").all_inner_texts():
        yield f"alert: {alert}"


def accessibility(visit: Visit) -> list[str]:
    """Serious and critical findings of axe-core."""
    from axe_playwright_python.sync_playwright import Axe

    # Positions on the screen matter, such as what is scrolled out of sight.
    found = Axe().run(visit.page, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"axe {one['id']} ({one['impact']}), {len(one['nodes'])} times: {one['help']}, such as"
        f" {one['nodes'][0]['html'][:200]} {one['nodes'][0].get('failureSummary', '')[:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def check_keyboard(visit: Visit, route: str) -> list[str]:
    """Whether the Tab key reaches every control of a page, and focus can be seen."""
    visit.open(route)
    page, found = visit.page, []
    count = page.evaluate(_FIND_CONTROLS)
    reached: set[int] = set()
    for _ in range(min(count, _MOST_CONTROLS) + 10):
        page.keyboard.press("Tab")
        focused = page.evaluate(_FOCUSED)
        if focused["number"] < 0 or focused["number"] in reached:
            continue
        reached.add(focused["number"])
        if not focused["isVisible"]:
            found.append(f"focus cannot be seen: {page.evaluate(_CALLED, focused['number'])}")
    lost = [number for number in range(min(count, _MOST_CONTROLS)) if number not in reached]
    found += [f"Tab does not reach {page.evaluate(_CALLED, number)}" for number in lost[:5]]
    return found


def check_list(visit: Visit, route: str) -> list[str]:
    """Whether keys move through a list and open a row, and the back button returns."""
    visit.open(route)
    page, heading, found = visit.page, visit.heading, []

    def press(key: str, before: str | None) -> str | None:
        page.keyboard.press(key)
        with contextlib.suppress(Exception):
            page.wait_for_function(f"(before) => ({_CURRENT})() !== before", arg=before, timeout=3_000)
        return page.evaluate(_CURRENT)

    places = [None]
    for key in ("j", "j", "k"):
        places.append(press(key, places[-1]))
    if places[1] is None:
        return [] if page.locator("main .empty").count() else ["the key j marks no row"]
    if places[2] == places[1]:
        is_short = page.locator("main :is(tbody tr, ol > li)").count() < 2
        return [] if is_short else [f"a second j stays at {places[1]!r}"]
    if places[3] != places[1]:
        found.append(f"j, j, k lead to {places[1:]}")
    before = visit.route
    page.keyboard.press("Enter")
    try:
        page.wait_for_function("(before) => location.hash !== before", arg=before, timeout=5_000)
    except Exception:
        return [*found, "Enter opens nothing"]
    visit.wait()
    page.go_back()
    page.wait_for_function(
        "(heading) => document.querySelector('main h1')?.innerText === heading", arg=heading, timeout=MILLISECONDS
    )
    visit.wait()
    return found


def check_reload(visit: Visit, route: str) -> list[str]:
    """Whether a page is the same after a reload."""
    visit.open(route)
    before = (visit.heading, visit.route)
    visit.page.reload()
    visit.wait()
    after = (visit.heading, visit.route)
    return [] if before == after else [f"reload: {before} becomes {after}"]


def screenshot(visit: Visit, path: pathlib.Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    width, height = visit.page.evaluate("[innerWidth, document.documentElement.scrollHeight]")
    clip = {"x": 0, "y": 0, "width": width, "height": min(height, _TALLEST)}
    visit.page.screenshot(path=path, full_page=True, clip=clip)


def walk(
    browser: Any, address: str, name: str, size: str, scheme: str, images: pathlib.Path | None, *, axe: bool = True
) -> dict[str, list[str]]:
    """Checks every page. Returns route -> problems, of pages that have some."""
    found = {}
    with Visit(browser, address, size, scheme) as visit:
        for number, route in enumerate(routes(visit)):
            if problems := check_page(visit, route, axe=axe):
                found[route] = problems
            if images is not None:
                called = re.sub(r"[^A-Za-z0-9.]+", "-", route).strip("-") or "runs"
                screenshot(visit, images / f"{name}-{size}-{scheme}" / f"{number:02}-{called[:80]}.png")
    return found


@contextlib.contextmanager
def bundled(runs: Sequence[object]) -> Iterator[pathlib.Path]:
    """The static site of runs, in a temporary folder."""
    with tempfile.TemporaryDirectory() as root:
        folder = pathlib.Path(root) / "site"
        status, _, err = launching.launch_process("launch.view", *runs, f"--bundle={folder}")
        assert status == 0, err
        yield folder
