"""The status of validating admission policies as recorded from Kubernetes 1.36, in a whole cluster, in virtual time.

Invariant: once the cluster is quiet, each status has the type errors of its expressions, and their generation.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from controller_manager.common.api.admissionregistration import VALIDATING_ADMISSION_POLICIES as POLICIES
from controller_manager.common.api.admissionregistration import ResourceRule
from controller_manager.common.api.errors import ServiceUnavailable
from controller_manager.common.api.model import PartialObject
from controller_manager.common.api.resource import Key, Resource
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.serving.http import refusal
from controller_manager.framework.client.discovery import ServedResource
from controller_manager.testing import Cluster
from controllers.validating_admission_policy_status import SPECS
from controllers.validating_admission_policy_status.schemas import whole
from controllers.validating_admission_policy_status.types import MOST, kinds_of
from tests.scenarios.test_custom_resources import DEFINITIONS, SOON, send
from tests.scenarios.test_manager_flags import most_in_work

LINES = Path(__file__).with_name("validating_admission_policy_status.jsonl").read_text().splitlines()
NAME = "validatingadmissionpolicy-status-controller"
DEFINITION, *ROWS = [json.loads(line) for line in LINES]
PATH = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


async def make(cluster: Cluster, row: Any) -> None:
    tree = {"kind": "ValidatingAdmissionPolicy", "apiVersion": POLICIES.api_version, "metadata": {"name": row["id"]}}
    await send(cluster, "POST", PATH, {**tree, "spec": row["spec"]})


async def status(cluster: Cluster, name: str) -> Any:
    return (await send(cluster, "GET", f"{PATH}/{name}"))["status"]


@pytest.mark.virtual
async def test_policy_status_matches_recorded_statuses() -> None:
    async with Cluster() as cluster:
        await send(cluster, "POST", DEFINITIONS, DEFINITION["definition"])
        await cluster.sleep(SOON)
        await cluster.manage("--leader-elect=false", specs=SPECS)
        for row in ROWS:
            await make(cluster, row)
        await cluster.settle()
        for row in ROWS:
            assert await status(cluster, row["id"]) == row["status"], row["id"]


@pytest.mark.virtual
async def test_changed_policy_is_checked_again() -> None:
    bad = next(row for row in ROWS if row["id"] == "tc02")
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", specs=SPECS)
        await make(cluster, bad)
        await cluster.settle()
        revision = cluster.api.store.revision
        await cluster.client.patch(POLICIES, Key("", "tc02"), {"metadata": {"labels": {"a": "b"}}})
        await cluster.settle()
        assert cluster.api.store.revision == revision + 1, "a label change updates no status"
        better = {"spec": {"validations": [{"expression": "object.spec.replicas > 1"}]}}
        await cluster.client.patch(POLICIES, Key("", "tc02"), better)
        await cluster.settle()
        assert await status(cluster, "tc02") == {"observedGeneration": 2, "typeChecking": {}}


@pytest.mark.virtual
async def test_failed_group_discovery_delays_type_check() -> None:
    of_core = next(row for row in ROWS if row["id"] == "tc22")  # events, which two groups serve
    async with Cluster() as cluster:
        is_broken = True

        async def answer(request: Request) -> Response:
            if request.path == "/apis" and is_broken:
                return refusal(ServiceUnavailable("not now"))
            return await cluster.api.handle(request)

        cluster.serve_beside("/apis", answer)
        await cluster.manage("--leader-elect=false", specs=SPECS)
        await make(cluster, of_core)
        await cluster.sleep(5)
        assert await status(cluster, "tc22") == {}
        is_broken = False
        await cluster.settle()
        assert await status(cluster, "tc22") == of_core["status"]


@pytest.mark.virtual
@pytest.mark.flag("concurrent-validating-admission-policy-status-syncs")
@pytest.mark.parametrize("workers", [1, 3])
async def test_concurrent_syncs_flag_sets_workers(workers: int) -> None:
    async with Cluster() as cluster:
        slow = ("--leader-elect=false", f"--controllers={NAME}", "--kube-api-qps=0.1", "--kube-api-burst=1")
        replica = await cluster.manage(*slow, f"--concurrent-validating-admission-policy-status-syncs={workers}")
        await cluster.sleep(60)
        for row in ROWS[:6]:
            await make(cluster, row)
        assert await most_in_work(cluster, replica, NAME) == workers


def served(group: str, version: str, plural: str) -> ServedResource:
    kind = plural[:-1].title()
    return ServedResource(Resource(group, version, plural, kind, True, PartialObject), frozenset(), {})


THERE = [
    served("", "v1", "pods"),
    served("apps", "v1", "pods"),
    served("apps", "v1beta1", "pods"),
    *(served("many", "v1", f"thing{number}s") for number in range(12)),
]


@pytest.mark.parametrize(
    ("groups", "versions", "plurals", "kinds"),
    [
        (("",), ("v1",), ("pods",), [("", "v1", "Pod"), ("apps", "v1", "Pod")]),
        (("apps",), ("v1", "v1beta1"), ("pods", "none"), [("apps", "v1", "Pod"), ("apps", "v1beta1", "Pod")]),
        (("apps",), ("v1",), ("pods/status", "*", "pods/*"), []),
        (("apps", "*"), ("v1",), ("pods",), []),
        (("apps",), ("v1", "*"), ("pods",), []),
    ],
)
def test_rule_matches_kinds_by_group_version_and_resource(groups: Any, versions: Any, plurals: Any, kinds: Any) -> None:
    rule = ResourceRule(api_groups=groups, api_versions=versions, resources=plurals)
    assert [tuple(kind) for kind in kinds_of((rule,), THERE)] == kinds


def test_number_of_checked_kinds_is_limited() -> None:
    many = ResourceRule(
        api_groups=("many",), api_versions=("v1",), resources=tuple(each.resource.plural for each in THERE)
    )
    pods = ResourceRule(api_groups=("apps",), api_versions=("v1",), resources=("pods",))
    assert len(kinds_of((many,), THERE)) == MOST
    assert len(kinds_of((many, pods), THERE)) == MOST
    assert len(kinds_of((pods, many), THERE)) == MOST + 1


def test_recursive_schema_ends_without_fields() -> None:
    schemas = {"Node": {"type": "object", "properties": {"next": {"allOf": [{"$ref": "#/components/schemas/Node"}]}}}}
    found = whole(schemas, {"$ref": "#/components/schemas/Node"}, frozenset())
    assert found == {"type": "object", "properties": {"next": {"type": "object"}}}
