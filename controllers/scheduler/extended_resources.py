"""Extended resources backed by device classes (KEP-5004): the claim for a pod on a node without them; pure.

Each long-running container has its own request. Init containers that end before others start reuse those devices. For
what is missing they share one request, since they run one after the other.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from controller_manager.common.api.core import PODS, Container, ContainerExtendedResourceRequest, Pod
from controller_manager.common.api.devices import (
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from controller_manager.common.api.model import ObjectMeta, OwnerReference
from controller_manager.common.api.quantity import parse
from controller_manager.common.api.quota.device_claims import EXTENDED_CLAIM
from controller_manager.common.api.quota.pods import DEVICE_CLASS
from controller_manager.common.base.random import random_source

ClassByResource = Callable[[str], DeviceClass | None]
_LONGEST_NAME, _LONGEST_PREFIX = 253, 58


class _Containers(NamedTuple):
    """The containers of a pod by number, init containers first: long-running ones, and those that end before
    others start.
    """

    lasting: Mapping[int, Container]
    passing: Mapping[int, Container]


def class_for(
    resource: str, device_class: Callable[[str], DeviceClass | None], explicit: Callable[[str], Iterable[DeviceClass]]
) -> DeviceClass | None:
    """Return the device class of an extended resource: by its implicit name, else the newest that declares it."""
    if resource.startswith(DEVICE_CLASS):
        return device_class(resource.removeprefix(DEVICE_CLASS))
    named = sorted(explicit(resource), key=lambda one: one.metadata.name)
    return max(named, key=lambda one: one.metadata.creation_timestamp or "", default=None)


def resources_of(device_class: DeviceClass) -> frozenset[str]:
    """Return the extended resources that a class provides."""
    implicit = DEVICE_CLASS + device_class.metadata.name
    return frozenset(filter(None, (implicit, device_class.spec.extended_resource_name)))


def is_for_extended(claim: ResourceClaim) -> bool:
    """Return whether a claim was created by a scheduler for extended resources of a pod."""
    return (claim.metadata.annotations or {}).get(EXTENDED_CLAIM) == "true"


def claim_for(
    pod: Pod, resources: Collection[str], class_of: ClassByResource
) -> tuple[ResourceClaim, tuple[ContainerExtendedResourceRequest, ...]]:
    """Return the claim for extended resources of a pod, and the mapping of containers to requests."""
    requests, mappings = requests_for(pod, resources, class_of)
    meta = pod.metadata
    prefix = f"{meta.name}-extended-resources-"
    made = ObjectMeta(
        name=prefix[:_LONGEST_PREFIX] + random_source().suffix(),
        generate_name=prefix[:_LONGEST_NAME],
        namespace=meta.namespace,
        annotations={EXTENDED_CLAIM: "true"},
        owner_references=(
            OwnerReference(api_version="v1", kind=PODS.kind, name=meta.name, uid=meta.uid, controller=True),
        ),
    )
    return ResourceClaim(metadata=made, spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests))), mappings


def requests_for(
    pod: Pod, resources: Collection[str], class_of: ClassByResource
) -> tuple[tuple[DeviceRequest, ...], tuple[ContainerExtendedResourceRequest, ...]]:
    """Return the requests for extended resources of a pod, and the mapping of containers to requests."""
    containers = _containers(pod)
    requests: list[DeviceRequest] = []
    mappings: list[ContainerExtendedResourceRequest] = []
    for resource in sorted(resources):
        found = class_of(resource)
        if found is not None:
            for_one, given = _requests_for_one(containers, resource, found.metadata.name)
            requests += for_one
            mappings += given
    return tuple(sorted(requests, key=lambda one: one.name)), tuple(mappings)


def _requests_for_one(
    containers: _Containers, resource: str, device_class: str
) -> tuple[list[DeviceRequest], list[ContainerExtendedResourceRequest]]:
    counts: dict[str, int] = {}
    used: list[tuple[Container, str]] = []
    own: dict[int, str] = {}
    for number, container in containers.lasting.items():
        if wanted := _amount(container, resource):
            own[number] = name = _request_name(number, container, resource)
            counts[name] = wanted
            used.append((container, name))
    lacking: dict[str, int] = {}
    for number, container in containers.passing.items():
        wanted = _amount(container, resource)
        for later, name in own.items():
            if later > number and wanted > 0:
                used.append((container, name))
                wanted -= counts[name]
        if wanted > 0:
            name = _request_name(number, container, resource)
            lacking[name] = wanted
            used.append((container, name))
    shared = max(lacking, key=lambda name: lacking[name], default="")
    if shared:
        counts[shared] = lacking[shared]
    requests = [
        DeviceRequest(name=name, exactly=ExactDeviceRequest(device_class_name=device_class, count=count))
        for name, count in counts.items()
    ]
    given = [
        ContainerExtendedResourceRequest(
            container_name=container.name, resource_name=resource, request_name=shared if name in lacking else name
        )
        for container, name in used
    ]
    return requests, given


def _containers(pod: Pod) -> _Containers:
    first = len(pod.spec.init_containers)
    every = dict(enumerate((*pod.spec.init_containers, *pod.spec.containers)))
    passing = {number: one for number, one in every.items() if number < first and one.restart_policy != "Always"}
    return _Containers({number: one for number, one in every.items() if number not in passing}, passing)


def _requests_of(container: Container) -> Mapping[str, str]:
    return (container.resources.requests if container.resources is not None else None) or {}


def _amount(container: Container, resource: str) -> int:
    return int(parse(_requests_of(container).get(resource, "0")).number)


def _request_name(number: int, container: Container, resource: str) -> str:
    return f"container-{number}-request-{sorted(_requests_of(container)).index(resource)}"
