"""The terminal view of a cluster: problems first, in any screen size."""

from typing import Any

import pytest

from controller_manager.cluster_up.watch import Screen, lines_of

EVIL = "web\x1b[2J\n"


def row(name: str, state: str = "Running", severity: str = "well", kind: str = "Pod", **columns: str) -> dict[str, Any]:
    since = "2026-01-01T00:00:00Z"
    found = {"severity": severity, "kind": kind, "namespace": "shop", "name": name, "state": state, "why": ""}
    return {**found, "since": since, "columns": columns}


def section(*rows: dict[str, Any], count: int | None = None) -> dict[str, Any]:
    many = len(rows) if count is None else count
    return {"count": many, "found": many, "states": [{"state": "Running", "count": many}], "rows": list(rows)}


def overview(**sections: Any) -> dict[str, Any]:
    manager = {
        "name": "manager-0",
        "time": "2026-01-01T03:00:05Z",
        "stopping": "",
        "standingBy": "",
        "summary": "Well.",
    }
    acted = [
        {"key": "shop/web", "seconds": 4.2, "causes": ["it came"], "writes": ["wrote pods shop/web-1"], "count": 3}
    ]
    controllers = [{"name": "replicaset-controller", "acted": acted}, {"name": "idle", "acted": []}]
    return {"manager": manager, "denied": ["nodes"], "unread": {}, "sections": sections, "controllers": controllers}


def test_screen_shows_counts_rows_and_acts() -> None:
    workloads = section(row("web", "Progressing", "struggling", "Deployment", Ready="1 of 3"))
    lines = lines_of(overview(workloads=workloads, pods=section(row("web-1"))), 100, 40)
    assert lines == [
        "manager-0 at 03:00:05 UTC: Well.",
        "nodes      not to be listed",
        "workloads       1  1 Running",
        "pods            1  1 Running",
        "",
        "KIND        WORKLOADS  STATE        READY   AGE",
        "Deployment  shop/web   Progressing  1 of 3  3h",
        "",
        "PODS        STATE    AGE",
        "shop/web-1  Running  3h",
        "",
        "CONTROLLERS THAT ACTED LAST",
        "    4s  replicaset-controller: wrote pods shop/web-1 and 2 more, because: it came",
    ]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (20, 10), (300, 100), (1, 1)])
def test_screen_fits_any_size(width: int, height: int) -> None:
    many = section(*(row(f"pod-{number}-{'x' * 90}") for number in range(200)), count=50_000)
    lines = lines_of(overview(workloads=many, pods=many, events=many, nodes=many), width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)


def test_sections_share_height_and_small_ones_are_complete() -> None:
    many, few = section(*(row(f"pod-{number}") for number in range(200))), section(row("one"), row("two"))
    lines = lines_of(overview(workloads=few, pods=many, events=many, nodes=few), 80, 40)
    assert sum("shop/one" in line for line in lines) == 2
    assert sum("shop/two" in line for line in lines) == 2
    assert sum("shop/pod-" in line for line in lines) > 10


def test_control_characters_are_removed() -> None:
    lines = lines_of(overview(pods=section(row(EVIL))), 80, 40, colored=True)
    assert not any("\x1b[2J" in line or "\n" in line for line in lines)


def test_messages_while_drawing_are_shown_and_stay() -> None:
    written: list[str] = []
    screen = Screen(written.append, colored=False)
    screen.say("before")
    screen.open()
    screen.say("manager-1 ended\n  its last line")
    screen.draw(overview(), "")
    assert "manager-1 ended" in written[-1]
    assert "  its last line" in written[-1]
    screen.close()
    assert written[0] == "before\n"
    assert written[-1] == "manager-1 ended\n  its last line\n"


def test_unreachable_manager_is_shown() -> None:
    written: list[str] = []
    screen = Screen(written.append, colored=False)
    screen.open()
    screen.draw(None, "the connection was refused")
    assert "The manager does not answer: the connection was refused" in written[-1]
