"""The text and status of health endpoints."""

import pytest
import structlog.testing

from controller_manager.common.api.wire import Request
from controller_manager.common.base.log import get_logger
from controller_manager.common.serving.health import Health


@pytest.fixture
def health() -> Health:
    made = Health(get_logger("test"))
    made.add("informers", lambda: "")
    made.add("lease", lambda: "", endpoints=("healthz",))
    return made


def ask(health: Health, path: str, *query: tuple[str, str], method: str = "GET") -> tuple[int, str]:
    response = health.answer(Request(method, path, query))
    assert response is not None
    assert isinstance(response.body, bytes)
    return response.status, response.body.decode()


VERBOSE = ("verbose", "")
WARNING = 'warn: some health checks cannot be excluded: no matches for "nope"\n'


@pytest.mark.parametrize(
    ("path", "query", "text"),
    [
        ("/healthz", (), "ok"),
        ("/healthz", (VERBOSE,), "[+]ping ok\n[+]informers ok\n[+]lease ok\nhealthz check passed\n"),
        ("/livez", (VERBOSE,), "[+]ping ok\n[+]informers ok\nlivez check passed\n"),
        (
            "/readyz",
            (VERBOSE, ("exclude", "informers")),
            "[+]ping ok\n[+]informers excluded: ok\nreadyz check passed\n",
        ),
        ("/livez/ping", (), "ok"),
        ("/livez/ping", (VERBOSE,), "[+]ping ok\nping check passed\n"),
        ("/livez", (VERBOSE, ("exclude", "nope")), f"[+]ping ok\n[+]informers ok\n{WARNING}livez check passed\n"),
    ],
)
def test_healthy_process_answers_ok(health, path, query, text):
    assert ask(health, path, *query) == (200, text)


def test_failed_check_is_named_without_its_reason(health):
    health.add("store", lambda: "password wrong")
    text = "[+]ping ok\n[+]informers ok\n[-]store failed: reason withheld\nreadyz check failed\n"
    assert ask(health, "/readyz") == (500, text)
    assert ask(health, "/readyz/store") == (500, "[-]store failed: reason withheld\nstore check failed\n")
    assert ask(health, "/readyz", ("exclude", "store")) == (200, "ok")


def test_check_is_available_under_its_aliases(health):
    health.add("datastore", lambda: "gone", also=("etcd",))
    assert ask(health, "/readyz/etcd") == (500, "[-]datastore failed: reason withheld\netcd check failed\n")
    for name in ("etcd", "datastore"):
        status, text = ask(health, "/readyz", ("exclude", name), VERBOSE)
        assert (status, "[+]datastore excluded: ok\n" in text, "warn" in text) == (200, True, False)


def test_excludes_without_match_are_reported(health):
    status, text = ask(health, "/livez", ("exclude", "b"), ("exclude", "a"), VERBOSE)
    assert (status, 'no matches for "a","b"\n' in text) == (200, True)


def test_only_changes_are_logged():
    with structlog.testing.capture_logs() as lines:
        health, why = Health(get_logger("test")), ["", "late", "late", "later", "", ""]
        health.add("clock", lambda: why.pop(0))
        for _ in range(6):
            ask(health, "/livez")
    events = [(line["event"], line.get("failed")) for line in lines]
    assert events == [
        ("health check fails", {"clock": "late"}),
        ("health check fails", {"clock": "later"}),
        ("health check passes", None),
    ]


def test_checks_failing_at_start_are_logged_as_info():
    with structlog.testing.capture_logs() as lines:
        health, why = Health(get_logger("test")), ["starts", "starts still", "", "late", ""]
        health.add("clock", lambda: why.pop(0))
        for _ in range(5):
            ask(health, "/readyz")
    assert [(line["log_level"], line["event"]) for line in lines] == [
        ("info", "health check does not pass yet"),
        ("info", "health check passes"),
        ("warning", "health check fails"),
        ("info", "health check passes"),
    ]


def test_excluded_failures_do_not_repeat_log_lines():
    with structlog.testing.capture_logs() as lines:
        health = Health(get_logger("test"))
        health.add("leader", lambda: "late")
        for number in range(5):
            assert ask(health, "/readyz")[0] == 500
            assert ask(health, "/readyz", ("exclude", "leader"), ("exclude", f"{number}"))[0] == 200
        assert ask(health, "/readyz", ("exclude", "ping"))[0] == 500
    assert len(lines) == 1


def test_unknown_checks_methods_and_paths_are_refused(health):
    assert ask(health, "/livez/lease")[0] == 404
    assert ask(health, "/livez", method="POST")[0] == 405
    assert health.answer(Request("GET", "/metrics")) is None
    assert health.answer(Request("GET", "/healthzz")) is None


def test_duplicate_check_name_is_refused_per_endpoint(health):
    with pytest.raises(ValueError, match="ping"):
        health.add("ping", lambda: "")
    health.add("lease", lambda: "lost", endpoints=("livez",))
    assert ask(health, "/livez/lease")[0] == 500
    assert ask(health, "/healthz/lease")[0] == 200
