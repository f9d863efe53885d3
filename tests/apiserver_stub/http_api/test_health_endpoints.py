"""Health endpoints, rules 1 to 4, and Health check output."""

import re
from typing import Any

import pytest

NAMES = ["ping", "log", "poststarthook/bootstrap-controller"]


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_healthy_server_answers_ok(api: Any, path: str) -> None:
    """Rule 1: clients rely on the status code alone."""
    answer = await api.get(path)
    assert (answer.status, answer.body) == (200, b"ok")


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
@pytest.mark.parametrize("query", ["verbose", "verbose=1", "verbose=true"])
async def test_verbose_prints_one_line_per_check(api: Any, path: str, query: str) -> None:
    """Rule 2 and Health check output."""
    lines = (await api.get(f"{path}?{query}")).body.decode().splitlines()
    assert all(re.fullmatch(r"\[\+\]\S+ ok", line) for line in lines[:-1])
    assert lines[-1] == f"{path[1:]} check passed"
    assert {f"[+]{name} ok" for name in NAMES} <= set(lines)


async def test_shutdown_is_a_readiness_check(api: Any) -> None:
    """Health check output: `shutdown` is listed in the readiness output."""
    assert b"[+]shutdown ok" in (await api.get("/readyz?verbose")).body
    assert b"shutdown" not in (await api.get("/livez?verbose")).body
    api.server.unready()
    refused = await api.get("/readyz")
    assert refused.status == 500
    assert b"[-]shutdown failed" in refused.body
    assert (await api.get("/livez")).status == 200


async def test_check_can_be_excluded(api: Any) -> None:
    """Rule 3 and Health check output: an excluded check prints as such; the parameters combine."""
    api.server.unready()
    answer = await api.get("/readyz?verbose&exclude=shutdown")
    assert answer.status == 200
    assert b"[+]shutdown excluded: ok" in answer.body


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
async def test_single_checks(api: Any, path: str, name: str) -> None:
    """Rule 4: the text between `[+]` and `ok` names a check of its own path."""
    assert (await api.get(f"{path}/{name}")).status == 200


async def test_unknown_check_is_not_found(api: Any) -> None:
    """Rule 4: only names of the verbose output are checks."""
    assert (await api.get("/livez/nonsense")).status == 404
