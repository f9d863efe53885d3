"""/debug/controllers: the same state for browsers and for programs."""

import json
from html.parser import HTMLParser

import pytest

from controller_manager.api.wire import Request
from controller_manager.app.pages.controllers import controllers_handler, page
from controller_manager.app.state import LockState, ManagerState
from controller_manager.cache import InformerState
from controller_manager.controller.state import ControllerState, Phase
from controller_manager.work import LoopState
from controller_manager.work.state import Due, Failing, Running

EVIL = '<script>alert("x")</script>'
WORK = LoopState(
    name="namespace-controller",
    workers=10,
    ready=3,
    delayed=40,
    running=(Running("web", 12.5, ("namespaces web updated",)), Running(EVIL, 0.004, (EVIL,))),
    next=tuple(Due(f"ns-{n}", 60.0 * n, n, ("error",)) for n in range(25)),
    failing=(Failing("web", f"TransportError: {EVIL}", 7205, 3, given_up=False, defect=False),),
    failing_keys=1,
    last_error=f"web: TransportError: {EVIL}",
    last_error_seconds=7205,
    outcomes={"done": 12345, "error": 2, "requeue": 0},
)
STATE = ManagerState(
    name="cluster-controller-manager",
    identity=f"host_{EVIL}",
    time="2026-01-02T03:04:05Z",
    uptime=200000,
    stopping="",
    locks=(LockState("kube-system/cluster-controller-manager", "host_1", "2026-01-01T00:00:00Z", True, ("a", "b")),),
    controllers=(
        ControllerState("endpoints-controller", Phase.CRASHED, 3, 4, "ValueError: no", 3, 60, ("pods",)),
        ControllerState("namespace-controller", Phase.RUNNING, 3600, work=WORK),
        ControllerState("node-controller", Phase.ELSEWHERE, component="cloud-controller-manager"),
    ),
    informers=(
        InformerState("pods", 50000, True, 300.0, "1234", 1, 9, 2, ""),
        InformerState("services", 0, False, 1.0, "", 1, 0, 1, EVIL),
        InformerState("nodes", 3, True, 1.0, "1234", 1, 9, 2, "", (f"a/{EVIL}: no number",)),
    ),
)


class Text(HTMLParser):
    """What a reader sees, and which elements there are."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.feed(html)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag not in ("meta", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)


async def ask(accept: str = "", *query: tuple[str, str]):
    headers = {"accept": accept} if accept else {}
    return await controllers_handler(lambda: STATE)(Request("GET", "/debug/controllers", query, headers))


async def test_programs_get_json_and_browsers_a_page():
    for response in (await ask(), await ask("*/*"), await ask("text/html", ("format", "json"))):
        assert response.headers["content-type"] == "application/json"
        found = json.loads(response.body)
        assert found["locks"][0]["leads"] is True
        assert found["controllers"][1]["work"]["running"][0]["causes"] == ["namespaces web updated"]
        assert [one["phase"] for one in found["controllers"]] == ["crashed", "running", "elsewhere"]
    response = await ask("text/html,application/xhtml+xml,*/*;q=0.8")
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert 'http-equiv="refresh"' in response.body.decode()
    assert 'http-equiv="refresh"' not in (await ask("text/html", ("refresh", "off"))).body.decode()


def test_the_page_says_what_is_wrong_first():
    read = Text(page(STATE))
    assert read.open == []
    assert "endpoints-controller: failing; pods: not heard of; nodes: 1 unreadable" in read.text
    for expected in (
        "cluster-controller-manager leads",
        "up 2 d 7 h",
        "host_1 this one",
        "web 12.5 s namespaces web updated",
        "in 1 min 0 s, failed 1 times error",
        "and 20 more",
        "12,345 done, 2 error",
        "2 h 0 min ago",
        "restarted 4 times",
        "waits for pods",
        "at cloud-controller-manager",
        "50,000",
        "5 min 0 s",
        "no number",
    ):
        assert expected in read.text, expected


def test_no_text_of_the_cluster_becomes_markup():
    html = page(STATE)
    assert "script" not in Text(html).seen
    assert EVIL in Text(html).text


@pytest.mark.parametrize("leads", [True, False])
def test_a_quiet_manager_is_well(leads):
    lock = LockState("", "", "", leads, ())
    quiet = ManagerState("manager", "me", "2026-01-02T03:04:05Z", 0.5, "", (lock,), (), ())
    text = Text(page(quiet)).text
    assert "All is well." in text
    assert ("manager leads" if leads else "manager stands by") in text
    assert "no election" in text


def test_it_says_why_it_stops():
    stopping = ManagerState("manager", "me", "2026-01-02T03:04:05Z", 5, "received SIGTERM", (), (), ())
    assert "Stopping: received SIGTERM" in Text(page(stopping)).text
