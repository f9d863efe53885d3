"""Kinds with their own preparation on write."""

from typing import Any

import pytest

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
SETS = "/apis/apps/v1/namespaces/default/daemonsets"
GENERATION = "deprecated.daemonset.template.generation"


@pytest.mark.parametrize(
    ("time", "kept"),
    [
        ("0001-01-01T00:00:01.000000Z", "0001-01-01T00:00:01.000000Z"),
        ("0999-06-01T00:00:00.500000Z", "0999-06-01T00:00:00.500000Z"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
        ("2024-01-01T00:00:00.000000+14:00", "2023-12-31T10:00:00.000000Z"),
        ("0001-01-01T00:00:00.000000Z", None),
    ],
)
async def test_lease_times_of_any_year_are_validated(api, time: str, kept: str | None) -> None:
    made = (await api.post(LEASES, {"metadata": {"name": "a"}, "spec": {"renewTime": time}})).tree
    assert made["spec"].get("renewTime") == kept


def _set(**annotations: str) -> dict[str, Any]:
    labels = {"a": "b"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": "d", "annotations": annotations}, "spec": spec}


async def test_daemon_set_template_generation_counts_changes(api) -> None:
    def count(tree: dict[str, Any]) -> str:
        found: str = tree["metadata"]["annotations"][GENERATION]
        return found

    made = (await api.post(SETS, _set())).tree
    assert count(made) == "1"
    made["spec"]["minReadySeconds"] = 5
    made["metadata"]["annotations"] = {GENERATION: "7"}
    assert count((await api.put(f"{SETS}/d", made)).tree) == "1"
    made = (await api.get(f"{SETS}/d")).tree
    made["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    del made["metadata"]["annotations"]
    assert count((await api.put(f"{SETS}/d", made)).tree) == "2"
    made = (await api.get(f"{SETS}/d")).tree | {"status": {"numberReady": 1}}
    assert count((await api.put(f"{SETS}/d/status", made)).tree) == "2"


@pytest.mark.parametrize(("given", "kept"), [("7", "7"), ("0", "1"), ("x", "1"), ("-3", "1")])
async def test_daemon_set_may_bring_its_template_generation(api, given: str, kept: str) -> None:
    assert (await api.post(SETS, _set(**{GENERATION: given}))).tree["metadata"]["annotations"] == {GENERATION: kept}


@pytest.mark.parametrize(("given", "kept"), [(-1, 1), (0, 0), (5, 5)])
async def test_negative_grace_period_of_pod_becomes_one_second(api, given: int, kept: int) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": given}
    made = (await api.post("/api/v1/namespaces/default/pods", {"metadata": {"name": "p"}, "spec": spec})).tree
    assert made["spec"]["terminationGracePeriodSeconds"] == kept


async def test_negative_grace_period_of_template_is_preserved(api) -> None:
    tree = _set()
    tree["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = -1
    assert (await api.post(SETS, tree)).tree["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == -1
