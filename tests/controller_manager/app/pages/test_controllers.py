"""/debug/controllers as HTML and as JSON."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from controller_manager.app.pages.controllers import controllers_handler, page
from controller_manager.app.state import LockState, ManagerState
from controller_manager.common.api.errors import InternalError
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.serving.http import refusal
from controller_manager.framework.cache.change import InformerState
from controller_manager.framework.controller.runner import ControllerState, Phase
from controller_manager.framework.work.failures import Due, Failing, LoopState, Running
from controller_manager.framework.work.spinning import Spinning
from controller_manager.testing import Cluster

EVIL = '<script>alert("x")</script>'
WORK = LoopState(
    name="namespace-controller",
    workers=10,
    ready=3,
    delayed=40,
    running=(Running("web", 12.5, ("namespaces web updated",)), Running(EVIL, 0.004, (EVIL,))),
    next=tuple(Due(f"ns-{n}", 60.0 * n, n, ("error",)) for n in range(25)),
    failing=(
        Failing("web", f"TransportError: {EVIL}", 7205, 3, False, False, ("namespaces web updated",), 4.0),
        Failing("odd", "GiveUp: no such kind", 60, 1, given_up=True, defect=False, where=f"a.py:3 in {EVIL}"),
    ),
    failing_keys=14,
    last_error=f"web: TransportError: {EVIL}",
    last_error_seconds=7205,
    outcomes={"done": 12345, "error": 2, "requeue": 0},
    spinning=(Spinning(EVIL, 12, (EVIL,)),),
)
STATE = ManagerState(
    name="cluster-controller-manager",
    identity=f"host_{EVIL}",
    time="2026-01-02T03:04:05Z",
    uptime=200000,
    stopping="",
    locks=(LockState("kube-system/cluster-controller-manager", "host_1", "2026-01-01T00:00:00Z", True, ("a", "b")),),
    controllers=(
        ControllerState("a-quiet-controller", Phase.RUNNING, 3600),
        ControllerState("namespace-controller", Phase.RUNNING, 3600, work=WORK),
        ControllerState("node-controller", Phase.ELSEWHERE, component="cloud-controller-manager"),
        ControllerState("z-controller", Phase.CRASHED, 3, 4, "ValueError: no", 3, 60, ("pods",)),
    ),
    informers=(
        InformerState("a-quiet-resource", 3, True, 1.0, "1234", 1, 9, 0, ""),
        InformerState("nodes", 3, True, 1.0, "1234", 1, 9, 2, "", (f"a/{EVIL}: no number",)),
        InformerState("pods", 50000, True, 300.0, "1234", 1, 9, 2, ""),
        InformerState("services", 0, False, 1.0, "", 1, 0, 1, EVIL),
    ),
)


class Text(HTMLParser):
    """The visible text of a page, and its elements."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.feed(html)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag not in ("meta", "br", "link", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)


async def ask(accept: str = "", *query: tuple[str, str]):
    headers = {"accept": accept} if accept else {}
    return await controllers_handler(lambda: STATE)(Request("GET", "/debug/controllers", query, headers))


async def test_format_by_accept_header_and_query():
    for response in (await ask(), await ask("*/*"), await ask("text/html", ("format", "json"))):
        assert response.headers["content-type"] == "application/json"
        found = json.loads(response.body)
        assert found["locks"][0]["leads"] is True
        assert found["controllers"][1]["work"]["running"][0]["causes"] == ["namespaces web updated"]
    response = await ask("text/html,application/xhtml+xml,*/*;q=0.8")
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert 'http-equiv="refresh"' in response.body.decode()
    assert 'http-equiv="refresh"' not in (await ask("text/html", ("refresh", "off"))).body.decode()


async def test_controllers_are_sorted_by_severity_with_reason():
    found = json.loads((await ask()).body)
    assert [(one["name"], one["severity"], one["why"]) for one in found["controllers"]] == [
        ("z-controller", "broken", "crashed"),
        ("namespace-controller", "struggling", "14 keys are failing"),
        ("node-controller", "waiting", "runs in another component"),
        ("a-quiet-controller", "well", ""),
    ]
    assert [(one["selection"], one["severity"]) for one in found["informers"]] == [
        ("services", "broken"),
        ("nodes", "struggling"),
        ("pods", "struggling"),
        ("a-quiet-resource", "well"),
    ]
    assert found["summary"] == (
        "2 of 4 controllers need a look: z-controller (crashed), namespace-controller (14 keys are failing). "
        "3 of 4 local copies need a look: services (cannot be read), nodes (1 unreadable), "
        "pods (nothing heard from the server)."
    )
    read = Text(page(STATE))
    assert read.open == []
    assert found["summary"] in read.text
    places = [read.text.rindex(one) for one in ("z-controller", "node-controller", "a-quiet-controller")]
    assert places == sorted(places)


def test_severity_is_shown_as_word_and_symbol():
    for word in ("✖ broken", "▲ struggling", "… waiting", "✓ well"):
        assert word in Text(page(STATE)).text


def test_failing_keys_show_error_and_next_retry():
    text = Text(page(STATE)).text
    for expected in (
        "web TransportError: <script>",
        "failed 3 times in a row, last 2 h 0 min ago, next try in 4.0 s because: namespaces web updated",
        "odd GiveUp: no such kind failed once, last 1 min 0 s ago, given up until something changes",
        "and 12 more",
    ):
        assert expected in text, expected


def test_page_shows_state_of_manager():
    read = Text(page(STATE))
    for expected in (
        "cluster-controller-manager leads",
        "up 2 d 7 h",
        "host_1 this one",
        "web 12.5 s because: namespaces web updated",
        "in 1 min 0 s, failed 1 times",
        "and 35 more",
        "12,345 done 2 error",
        "restarted 4 times",
        "waits for pods",
        "at cloud-controller-manager",
        "50,000",
        "5 min 0 s",
        "no number",
    ):
        assert expected in read.text, expected


def test_resolved_errors_are_marked_as_past():
    work = replace(WORK, failing=(), failing_keys=0)
    state = replace(STATE, controllers=(ControllerState("namespace-controller", Phase.RUNNING, 3600, work=work),))
    assert "none now; the last error: web: TransportError:" in Text(page(state)).text


async def test_filter_matches_names_keys_errors_and_causes():
    for words, controllers, informers in (
        ("NO SUCH KIND", ["namespace-controller"], []),
        ("crashed", ["z-controller"], []),
        ("nodes", [], ["nodes"]),
        ("error", ["z-controller", "namespace-controller"], []),
        ("nothing has this", [], []),
    ):
        for name in ("q", "filter"):
            found = json.loads((await ask("", (name, words))).body)
            assert [one["name"] for one in found["controllers"]] == controllers, words
            assert [one["selection"] for one in found["informers"]] == informers, words
    html = (await ask("text/html", ("q", "no such kind"))).body.decode()
    assert html.count("data-filter hidden") == 7
    assert 'value="no such kind"' in html


async def test_filter_text_is_escaped():
    html = (await ask("text/html", ("q", f'"{EVIL}'))).body.decode()
    assert EVIL not in html
    assert Text(html).seen >= {"form", "input"}


async def test_csp_allows_the_script_of_the_page_only():
    response = await ask("text/html")
    html = response.body.decode()
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert len(scripts) == 1
    assert f"script-src 'sha256-{digest}';" in response.headers["content-security-policy"]


def test_cluster_text_is_escaped():
    html = page(STATE)
    assert EVIL not in html
    assert EVIL in Text(html).text


@pytest.mark.parametrize("leads", [True, False])
def test_idle_manager_is_well(leads):
    lock = LockState("", "", "", leads, ())
    quiet = ManagerState("manager", "me", "2026-01-02T03:04:05Z", 0.5, "", (lock,), (), ())
    text = Text(page(quiet)).text
    assert "All is well." in text
    assert ("manager leads" if leads else "manager stands by") in text
    assert "no election" in text


def test_stop_reason_is_shown():
    stopping = ManagerState("manager", "me", "2026-01-02T03:04:05Z", 5, "received SIGTERM", (), (), ())
    assert "Stopping: received SIGTERM" in Text(page(stopping)).text


@pytest.mark.virtual
async def test_controller_with_failing_runs_is_not_well():
    async def refuse(_: Request) -> Response:
        return refusal(InternalError("out of order"))

    async with Cluster() as cluster:
        for namespace in ("default", "kube-system", "kube-public", "kube-node-lease"):
            cluster.serve_beside(f"/api/v1/namespaces/{namespace}/serviceaccounts", refuse)
        replica = await cluster.manage(
            "--controllers=serviceaccount-controller",
            "--authorization-always-allow-paths=/debug/controllers",
            strict=False,
        )
        await cluster.sleep(30)
        answer = await replica.manager.pages.handle(Request("GET", "/debug/controllers"))
        assert isinstance(answer.body, bytes)
        found = json.loads(answer.body)
        assert found["summary"].startswith("1 of 1 controllers needs a look: serviceaccount-controller (the last ")
        (one,) = found["controllers"]
        assert one["severity"] == "broken"
        assert "InternalError: out of order" in one["work"]["failing"][0]["error"]
        assert one["work"]["failing"][0]["causes"]
        assert one["work"]["failing"][0]["retry_seconds"] > 0
