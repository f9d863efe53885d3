"""Health checks, and what makes them fail (API concepts, Health check output and Health endpoints)."""

from typing import Any

import pytest

# The checks of kube-apiserver 1.36 that exist here.
HOOKS = [
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/kube-apiserver-autoregistration",
]


@pytest.fixture
def backend(disk: Any) -> Any:
    return disk


async def ask(api: Any, url: str, method: str = "GET") -> tuple[int, str]:
    response = await api.send(method, url)
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    return response.status, response.body.decode()


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/healthz", ["ping", "log", "datastore", *HOOKS]),
        ("/livez", ["ping", "log", "datastore", *HOOKS]),
        ("/readyz", ["ping", "log", "datastore", *HOOKS, "shutdown"]),
    ],
)
async def test_documented_checks_exist(started: Any, path: str, names: list[str]) -> None:
    """Health check output: one line per check, for the checks of the document that exist here."""
    async with started() as api:
        lines = [*(f"[+]{name} ok" for name in names), f"{path[1:]} check passed", ""]
        assert await ask(api, f"{path}?verbose") == (200, "\n".join(lines))
        for name in names:
            assert await ask(api, f"{path}/{name}") == (200, "ok")


async def test_store_that_cannot_write_is_not_ready(started: Any, disk: Any) -> None:
    """Health endpoints, rules 1 and 3; the reason is not shown, and a restart would not help."""
    async with started() as api:
        disk.full = True
        refusal = await api.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
        assert (refusal.status, "no space left" in refusal.tree["message"]) == (503, True)
        assert (await api.get("/api/v1/namespaces/default")).status == 200
        status, text = await ask(api, "/readyz")
        assert (status, "[-]datastore failed: reason withheld\n" in text, "no space" in text) == (500, True, False)
        assert text.endswith("readyz check failed\n")
        assert (await ask(api, "/readyz/datastore"))[0] == 500
        assert await ask(api, "/livez") == (200, "ok")
        for name in ("datastore", "etcd", "etcd-readiness"):
            assert await ask(api, f"/readyz?exclude={name}") == (200, "ok")
        disk.full = False
        assert (await api.post("/api/v1/namespaces", {"metadata": {"name": "n"}})).status == 201
        assert await ask(api, "/readyz") == (200, "ok")


async def test_store_with_failing_checkpoints_is_not_ready(started: Any, disk: Any) -> None:
    """Failing checkpoints are reported before the disk is full; writes continue."""
    async with started() as api:
        disk.problem = "the write-ahead log cannot be folded into the database: disk I/O error"
        disk.checkpoint_counts = (3, 1)
        assert (await ask(api, "/readyz"))[0] == 500
        assert await ask(api, "/livez") == (200, "ok")
        await api.config("a")
        page = (await api.send("GET", "/metrics")).body.decode()
        for line in (
            'apiserver_storage_checkpoints_total{result="failure"} 1',
            'apiserver_storage_checkpoints_total{result="success"} 3',
            'apiserver_storage_write_failures_total{outcome="unknown"} 0',
        ):
            assert f"\n{line}\n" in page
        disk.problem = ""
        assert await ask(api, "/readyz") == (200, "ok")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_health_allows_only_get(started: Any, method: str) -> None:
    async with started() as api:
        assert (await ask(api, "/livez", method))[0] == 405


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_healthy_server_answers_ok(api: Any, path: str) -> None:
    """Rule 1: clients rely on the status code alone."""
    answer = await api.get(path)
    assert (answer.status, answer.body) == (200, b"ok")


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


async def test_unknown_check_is_not_found(api: Any) -> None:
    """Rule 4: only names of the verbose output are checks."""
    assert (await api.get("/livez/nonsense")).status == 404
