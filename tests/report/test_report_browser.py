"""The report in a real browser: headless Chromium, controlled through a pipe; skipped if none is installed."""

import base64
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from helpers.report_example import facts_and_history
from uulearn.app.facts import ColumnFacts, ColumnImportance, RaisedWarning
from uulearn.report import write_report
from uulearn.training import History

PATIENCE = 30.0
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--no-first-run",
    "--no-default-browser-check",
    "--remote-debugging-pipe",
)
# The browser reads commands from descriptor 3 and writes to 4; this launcher puts the pipes there.
LAUNCH = (
    "import os, sys; r, w = map(int, sys.argv[1:3]); os.dup2(r, 3); os.dup2(w, 4); os.execvp(sys.argv[3], sys.argv[3:])"
)


def find_browser():
    names = ("/usr/bin/chromium", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


class Browser:
    """The DevTools protocol over a pipe: JSON messages that end with a zero byte."""

    def __init__(self, path, folder):
        (to_read, self.to_write), (self.to_listen, to_answer) = os.pipe(), os.pipe()
        ends = [os.dup(end) for end in (to_read, to_answer)]
        while min(ends) < 10:  # dup2 to 3 and 4 must overwrite neither
            ends = [os.dup(end) for end in ends]
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *map(str, ends), path, *FLAGS, f"--user-data-dir={folder}"],
            pass_fds=ends,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for end in (to_read, to_answer, *ends):
            os.close(end)
        self.buffer, self.events, self.number = b"", [], 0

    def call(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next_message()
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method, session):
        while True:
            for event in self.events:
                if event.get("method") == method and event.get("sessionId") == session:
                    return event
            self.events.append(self.next_message())

    def next_message(self):
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.to_listen], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"no message from the browser for {PATIENCE:g} seconds")
            read = os.read(self.to_listen, 1 << 20)
            if not read:
                raise ConnectionError("the browser closed the pipe")
            self.buffer += read
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def close(self):
        os.close(self.to_write)
        os.close(self.to_listen)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(5)


class Page:
    """One tab: its content, its requests and its log."""

    def __init__(self, browser, *, width=1280, height=900, dark=False, media="screen"):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def resize(self, width, height=900):
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )

    def open(self, path):
        self.call("Page.navigate", url=path.as_uri())
        self.browser.wait_for("Page.loadEventFired", self.session)
        return self

    def ask(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key, **more):
        codes = {"Tab": 9, "Enter": 13}
        event = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key], **more}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **event, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def events_of(self, *methods):
        return [
            event["params"]
            for event in self.browser.events
            if event.get("sessionId") == self.session and event.get("method") in methods
        ]

    def picture(self):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        return base64.b64decode(self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"])

    def paper(self):
        self.call("Emulation.setEmulatedMedia", media="")
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)["data"])

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)


# -------------------------------------------------------------------------------------------------------------- tests

HOSTILE = [
    "<script>hacked = 1</script>",
    '"><img src=x onerror="hacked = 1">',
    "x" * 3000,
    "عمر المريض",
    "🧪" * 50,
    "</style>",
]
EVERY_DETAIL_OPEN = "document.querySelectorAll('details').forEach(each => each.open = true)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    path = find_browser()
    if path is None:
        pytest.skip("no Chromium or Chrome is installed")
    running = Browser(path, tmp_path_factory.mktemp("profile"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Three pages: a usual model, one with hostile names and long lists, one with optional parts missing."""
    folder = tmp_path_factory.mktemp("reports")
    facts, history = facts_and_history()
    names = [HOSTILE[at % len(HOSTILE)] for at in range(300)]
    command = "uulearn " + "very_long_name" * 50
    hostile = replace(
        facts,
        sets=(replace(facts.sets[0], name=HOSTILE[0]), replace(facts.sets[1], name=HOSTILE[2])),
        columns=tuple(ColumnFacts(f"{text}{at}", "number", used=True) for at, text in enumerate(names)),
        importance=tuple(ColumnImportance(text, 0.3 / (at + 1), 0.01) for at, text in enumerate(names)),
        warnings=tuple(RaisedWarning("ClosePriorsWarning", text) for text in HOSTILE),
        command=command,
        commands={"predict": command},
    )
    long = [{"epoch": e, "positive": 0.3 - e / 900, "negative": 0.1, "unbiased": 0.4 - e / 900} for e in range(1, 501)]
    sparse = replace(facts, importance=None, commands={}, notes=(), sensitivity=type(facts.sensitivity)())
    return {
        "usual": write_report(folder / "usual.html", facts, history),
        "hostile": write_report(folder / "hostile.html", hostile, History(long, HOSTILE[1]), title=HOSTILE[0]),
        "sparse": write_report(folder / "sparse.html", sparse, History()),
    }


@pytest.fixture
def show(browser, reports):
    """Opens pages and closes them at the end."""
    opened = []

    def opens(name="usual", **how):
        opened.append(Page(browser, **how).open(reports[name]))
        return opened[-1]

    yield opens
    for page in opened:
        page.close()


@pytest.mark.parametrize("name", ["usual", "hostile", "sparse"])
def test_nothing_is_loaded_run_or_logged(show, reports, name):
    page = show(name)
    page.ask(EVERY_DETAIL_OPEN)
    assert page.ask("typeof hacked") == "undefined"
    assert page.events_of("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown") == []
    assert [asked["request"]["url"] for asked in page.events_of("Network.requestWillBeSent")] == [
        reports[name].as_uri()
    ]
    assert page.ask("document.compatMode") == "CSS1Compat"


@pytest.mark.parametrize("name", ["usual", "hostile", "sparse"])
def test_page_is_not_wider_than_the_screen(show, name):
    page = show(name, width=390)
    page.ask(EVERY_DETAIL_OPEN)
    for width in (390, 320, 1280):
        page.resize(width)
        assert page.ask("document.documentElement.scrollWidth") <= width
        wider = "[...document.querySelectorAll('body *')].filter(each => !each.closest('.scroll, pre, figure, .skip')"
        assert (
            page.ask(f"{wider} && each.getBoundingClientRect().right > {width} + 1).map(each => each.outerHTML)") == []
        )


def test_layout_uses_the_full_width_on_a_desktop_and_one_column_on_a_phone(show):
    page = show(width=1440)
    places = "[...document.querySelectorAll('main section')].map(each => each.getBoundingClientRect())"
    ends = f"[Math.min(...{places}.map(p => p.left)), Math.max(...{places}.map(p => p.right))]"
    left, right = page.ask(ends)
    assert left < 60
    assert right > 1380
    assert page.ask(f"new Set({places}.map(p => p.left)).size") == 2
    page.resize(390)
    assert page.ask(f"new Set({places}.map(p => p.left)).size") == 1


@pytest.mark.parametrize("name", ["usual", "sparse"])
def test_boxes_of_a_column_follow_each_other_and_the_columns_end_together(show, name):
    page = show(name, width=1280)
    columns = page.ask(
        "[...document.querySelectorAll('.column')].map(column => [...column.children].map(each => {"
        "  const box = each.getBoundingClientRect(); return [box.top, box.bottom] }))"
    )
    assert len(columns) == 2
    for boxes in columns:
        assert {round(below[0] - above[1]) for above, below in itertools.pairwise(boxes)} == {20}
    assert abs(columns[0][-1][1] - columns[1][-1][1]) <= 1


def test_wide_tables_have_a_shadow_where_they_continue(show):
    page = show(width=390)
    page.ask(EVERY_DETAIL_OPEN)
    wide = "[...document.querySelectorAll('.scroll')].filter(each => each.scrollWidth > each.clientWidth)"
    shadows = page.ask(f"{wide}.map(each => getComputedStyle(each).backgroundAttachment)")
    assert shadows
    assert set(shadows) == {"local, local, scroll, scroll"}


@pytest.mark.parametrize("width", [390, 1280])
def test_figures_are_completely_visible(show, width):
    page = show(width=width)
    boxes = page.ask(
        "[...document.querySelectorAll('svg.plot')].map(each => ({"
        "id: each.closest('figure').id, width: each.getBoundingClientRect().width,"
        "curves: [...each.querySelectorAll('.curve, .bar, .dot')].map(part => part.getBoundingClientRect().height),"
        "paint: [...each.querySelectorAll('.curve')].map(part => getComputedStyle(part).stroke),"
        "letters: [...each.querySelectorAll('text')].map(part => parseFloat(getComputedStyle(part).fontSize)),"
        "outside: [...each.querySelectorAll('text')].filter(part => {"
        "  const inner = part.getBoundingClientRect(), outer = each.getBoundingClientRect();"
        "  return inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.top < outer.top - 1"
        "    || inner.bottom > outer.bottom + 1 }).map(part => part.textContent)}))"
    )
    assert len(boxes) == 7
    for box in boxes:
        assert box["width"] > (300 if width < 500 else 340), box["id"]
        assert max(box["curves"]) > 5, box["id"]
        assert min(box["letters"]) >= 12, box["id"]  # the same on a phone
        assert box["outside"] == [], box["id"]
        assert "none" not in box["paint"]


def test_chart_labels_do_not_overlap(show):
    page = show(width=390)
    overlapping = page.ask(
        "[...document.querySelectorAll('svg.plot')].flatMap(plot => {"
        "  const names = [...plot.querySelectorAll('text')].map(text => text.getBoundingClientRect());"
        "  return names.filter((a, i) => names.some((b, j) => i < j && a.left < b.right && b.left < a.right"
        "    && a.top + 3 < b.bottom && b.top + 3 < a.bottom)).map(() => plot.closest('figure').id) })"
    )
    assert overlapping == []


def test_keyboard_reaches_all_controls(show):
    page = show()
    page.press("Tab")
    assert page.ask("document.activeElement.className") == "skip"
    assert page.ask("document.activeElement.getBoundingClientRect().top") >= 0  # visible when focused
    seen = 0
    for _ in range(80):
        page.press("Tab")
        seen += page.ask("document.activeElement.tagName") == "SUMMARY"
        if page.ask("document.activeElement === document.body"):
            break
        assert page.ask("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert seen == page.ask("document.querySelectorAll('summary').length") == 9


def test_keyboard_opens_details_and_follows_the_skip_link(show):
    page = show()
    page.press("Tab")
    page.press("Enter")
    assert page.ask("location.hash") == "#report"
    page.ask("document.querySelector('#figure-targets summary').focus()")
    page.press("Enter")
    assert page.ask("document.querySelector('#figure-targets details').open") is True
    page.press("Tab")
    assert page.ask("document.activeElement.getAttribute('role')") == "region"  # a table that arrow keys can scroll


def test_screen_readers_get_headings_charts_and_tables(show):
    page = show()
    page.ask(EVERY_DETAIL_OPEN)
    page.call("Accessibility.enable")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    names = {}
    for node in nodes:
        if not node.get("ignored"):
            names.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
    pictures = [name for role in ("image", "img", "graphics-document") for name in names.get(role, [])]
    assert len(pictures) == 7
    assert all(len(name) > 40 for name in pictures)
    assert any(name.startswith("Risk on the training rows by epoch Positive term") for name in pictures)
    assert "Estimated accuracy" in names["heading"]
    assert names["main"] == [""]
    assert names["navigation"] == ["Sections of this report"]
    assert len(names["table"]) == page.ask("document.querySelectorAll('table').length") == 11


def luminance(color):
    channels = [int(part) / 255 for part in color[4:-1].split(",")]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize(("dark", "media"), [(False, "screen"), (True, "screen"), (True, "print")])
def test_text_has_contrast_in_both_themes_and_print_is_white(show, dark, media):
    page = show("hostile", dark=dark, media=media)
    pairs = page.ask(
        "[...document.querySelectorAll('p, li, dt, dd, h1, h2, h3, td, th, summary, a, code, caption')].map(each => {"
        "  let ground = each;"
        "  while (getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)') ground = ground.parentElement;"
        "  return getComputedStyle(each).color + '|' + getComputedStyle(ground).backgroundColor })"
    )
    assert len(pairs) > 100
    for ink, ground in (pair.split("|") for pair in set(pairs)):
        low, high = sorted((luminance(ink), luminance(ground)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, ground)
    body = luminance(page.ask("getComputedStyle(document.body).backgroundColor"))
    assert body < 0.05 if dark and media == "screen" else body == 1


def test_page_prints_on_a_few_sheets(show):
    page = show(media="print", width=794)
    assert page.ask("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert page.ask("getComputedStyle(document.querySelector('#figure-targets details')).display") == "none"
    page.ask("document.querySelector('#figure-targets details').open = true")
    assert page.ask("getComputedStyle(document.querySelector('#figure-targets details')).display") == "block"
    broken = (
        "[...document.querySelectorAll('figure')].filter(each => getComputedStyle(each).breakInside !== 'avoid').length"
    )
    assert page.ask(broken) == 0
    paper = page.paper()
    assert paper.startswith(b"%PDF")
    sheets = paper.count(b"/Type /Page\n") + paper.count(b"/Type /Page ")
    assert 3 <= sheets <= 12
    assert b"/MediaBox [0 0 594" in paper or b"/MediaBox [0 0 595" in paper  # A4
