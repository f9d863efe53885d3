"""Small objects that expand to a lot of work are handled in bounded CPU time."""

from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest

from controller_manager.common.api.core import (
    EndpointAddress,
    EndpointPort,
    Endpoints,
    EndpointSubset,
    Taint,
    Toleration,
)
from controller_manager.common.api.discovery import Endpoint, EndpointSlice, SlicePort
from controller_manager.common.api.model import ObjectMeta, OwnerReference
from controller_manager.common.api.policy import PodDisruptionBudget, PodDisruptionBudgetSpec
from controller_manager.common.api.selectors import LabelSelectorSpec, SelectorRequirement
from controller_manager.common.base.clock import utc_now
from controller_manager.testing import builders
from controller_manager.testing.certificates import authority, hosts, request_pem
from controllers.certificate_signing.authority import read_authority
from controllers.certificate_signing.validity import Validity
from controllers.disruption import selects
from controllers.endpoint_slices.decide import decide
from controllers.endpoints import MANAGED_BY, MANAGER, desired, subsets_of
from controllers.garbage_collector.graph import Graph, ObjectIdentity, Task, claim_of
from controllers.horizontal_pod_autoscaler.limits import History
from controllers.shared.certificate_requests import asked_for, read_request
from controllers.shared.slices import SliceGroup, arrange, identity
from controllers.taint_eviction import countdown
from tests.controllers import pod_lifecycle
from tests.pace import cpu_limit

# Seconds of CPU, many times the usual time; the obvious algorithm takes at least ten times as long.
CPU_SECONDS = 2.0
SERVICE = builders.service("web", {"app": "web"}, clusterIP="10.0.0.1")
POD = builders.pod("web-1", labels={"app": "web"}, ip="10.1.0.1")


def limited_cpu() -> AbstractContextManager[None]:
    return cpu_limit(CPU_SECONDS)


def ip(number: int) -> str:
    return f"10.2.{number >> 8}.{number & 255}"


def test_oversized_endpoints_are_overwritten_quickly() -> None:
    subset = EndpointSubset(
        addresses=tuple(EndpointAddress(ip=ip(number)) for number in range(10_000)),
        ports=tuple(EndpointPort(port=number + 1, name=f"p{number}") for number in range(10_000)),
    )
    current = Endpoints(
        metadata=ObjectMeta(namespace="default", name="web", labels={MANAGED_BY: MANAGER}), subsets=(subset,)
    )
    with limited_cpu():
        wanted = desired(SERVICE, [POD], current)
    assert wanted is not None
    assert [address.ip for found in wanted.subsets for address in found.addresses] == ["10.1.0.1"]


def test_many_ports_and_pods_take_linear_time() -> None:
    service = builders.service(
        "web", {"app": "web"}, clusterIP="10.0.0.1", ports={f"p{number}": number + 1 for number in range(5000)}
    )
    pods = [builders.pod(f"web-{number}", ip=ip(number)) for number in range(1000)]
    with limited_cpu():
        (subset,) = subsets_of(service, pods)
    assert (len(subset.addresses), len(subset.ports)) == (1000, 5000)


def test_many_named_ports_take_linear_time() -> None:
    names = {f"x{number}": number + 1 for number in range(8000)}
    service = builders.service(
        "web", {"app": "web"}, clusterIP="10.0.0.1", ports={f"p{number}": name for number, name in enumerate(names)}
    )
    pod = builders.pod("web-1", ip="10.1.0.1", ports=names)
    with limited_cpu():
        (subset,) = subsets_of(service, [pod])
        made = decide(service, [pod], lambda _: "", [], 100, dict)
    assert len(subset.ports) == 8000
    assert [len(slice_.ports or ()) for slice_ in made.writes.create] == [8000]


def test_many_slices_of_others_take_linear_time() -> None:
    owner = OwnerReference(api_version="v1", kind="Service", name="web", uid=SERVICE.metadata.uid)
    slices = [
        EndpointSlice(
            metadata=ObjectMeta(namespace="default", name=f"s{number:05}", owner_references=(owner,) * (number % 2)),
            address_type="IPv4",
        )
        for number in range(20_000)
    ]
    with limited_cpu():
        made = decide(SERVICE, [POD], lambda _: "", slices, 100, dict)
    assert len(made.writes.delete) == len(slices) - 1


def test_many_unneeded_slices_take_linear_time() -> None:
    groups = [SliceGroup("IPv4", frozenset((SlicePort(name="", port=number + 1),))) for number in range(15_000)]
    endpoint = Endpoint(addresses=("10.0.0.1",))
    wanted = {group: {identity(endpoint): endpoint} for group in groups}
    spare = [
        EndpointSlice(metadata=ObjectMeta(name=f"s{number:05}"), address_type="IPv6", endpoints=())
        for number in range(15_000)
    ]
    with limited_cpu():
        made = arrange(spare, wanted, 100, lambda _: False)
    assert (len(made.drafts), len(made.spare)) == (15_000, 15_000)


def test_request_with_40000_names_is_certified_quickly() -> None:
    pem = request_pem(names=hosts(*(f"n{number}" for number in range(40_000))))
    signer = read_authority(authority())
    now = utc_now()
    with limited_cpu():
        request = read_request(pem)
        asked = asked_for(request)
        certificate = signer.issue(request, ("server auth",), Validity(now, now + timedelta(hours=1)))
    assert len(asked.names["DNS"]) == 40_000
    assert len(certificate) > len(pem)


def test_many_taints_and_tolerations_take_linear_time() -> None:
    taints = tuple(Taint(key=f"k{number}", effect="NoExecute") for number in range(20_000))
    others = tuple(Toleration(key=f"k{number}", operator="Exists", effect="NoSchedule") for number in range(20_000))
    tolerations = tuple(
        Toleration(key=taint.key, operator="Exists", effect="NoExecute", toleration_seconds=10 + number)
        for number, taint in enumerate(taints)
    )
    with limited_cpu():
        running = countdown(taints, (*others, *reversed(tolerations)), {}, 0.0)
    assert running is not None
    assert (len(running[0]), running[1]) == (20_000, 10.0)


def test_long_selectors_of_budgets_are_compiled_once() -> None:
    values = tuple(f"v{number}" for number in range(6000))
    expression = SelectorRequirement(key="app", operator="NotIn", values=values)
    spec = PodDisruptionBudgetSpec(selector=LabelSelectorSpec(match_expressions=(expression,)))
    budgets = [PodDisruptionBudget(metadata=ObjectMeta(name=f"b{number}"), spec=spec) for number in range(200)]
    pods = [builders.pod(f"web-{number}", labels={"app": f"x{number}"}) for number in range(300)]
    with limited_cpu():
        assert all(selects(budget, pod) for budget in budgets for pod in pods)


def test_many_absent_owners_take_linear_time() -> None:
    graph = Graph()
    owners = tuple(OwnerReference(api_version="v1", kind="Secret", name="s", uid=f"u{n}") for n in range(6000))
    dependents = [ObjectIdentity("", "ConfigMap", "default", f"c{n}", f"d{n}") for n in range(8)]
    with limited_cpu():
        for one in dependents:
            for _ in graph.observe(one, ObjectMeta(name=one.name, uid=one.uid, owner_references=owners)):
                pass
        for owner in owners:
            claim = claim_of(dependents[0], owner)
            graph.note_absent(claim)
            assert all(graph.needs(task) for task in graph.claimants(claim) if isinstance(task, Task))
    assert all(graph.is_absent(claim_of(dependents[0], owner)) for owner in owners)


def test_recommendation_history_is_bounded() -> None:
    history = History("u", 0.0, 1)
    for look in range(1, 20_000):
        now = 15.0 * look
        assert history.highest(now, 300.0, look) == look
        history.recommended(now, look)
    assert len(history._lowest._values) < 300
    assert len(history._highest._values) == 1


MAINS = [pod_lifecycle.container(f"c{number}") for number in range(1500)]
SIDECARS = [pod_lifecycle.container(f"c{number}", restartPolicy="Always") for number in range(1500)]


@pytest.mark.parametrize(
    "tree",
    [
        pod_lifecycle.pod(*MAINS),
        pod_lifecycle.pod(initContainers=MAINS),
        pod_lifecycle.pod(initContainers=SIDECARS),
        pod_lifecycle.pod(
            initContainers=SIDECARS, annotations={f"{pod_lifecycle.NOTE}/exit-code": "0"}, restartPolicy="Never"
        ),
    ],
    ids=["main", "init", "sidecar", "sidecars that stop"],
)
def test_pod_with_1500_containers_takes_linear_time(tree: dict[str, Any]) -> None:
    with limited_cpu():
        tree, history = pod_lifecycle.run_lifecycle(tree)
    assert len(history) < 5
    assert tree["status"]["phase"] in ("Running", "Succeeded")
