"""How claims to devices count in resource quotas (KEP-4381, KEP-5004): by number, and by the devices of each class that
they may be given at most, under the name of the class and of the extended resource that it stands for.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from controller_manager.common.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.common.api.pod_resources import Amounts, largest, plus
from controller_manager.common.api.quantity import Quantity, parse
from controller_manager.common.api.quota.evaluator import ONE, Evaluator, Measured
from controller_manager.common.api.quota.pods import DEVICE_CLASS, REQUESTS, PodEvaluator, is_extended_request
from controller_manager.common.api.tree import FrozenTree
from controller_manager.common.base.clock import utc_now

RESOURCE_CLAIMS = f"resourceclaims.resource.{GROUP_DOMAIN}"
EXTENDED_CLAIM = f"resource.{PLATFORM_DOMAIN}/extended-resource-claim"
"""The annotation of claims that are made for the extended resources of a pod, which they belong to."""
_OF_CLASS = f".deviceclass.resource.{GROUP_DOMAIN}/devices"
_MOST_DEVICES = 32  # that a claim can be given


class DeviceClasses(NamedTuple):
    """The names of the extended resources that classes of devices stand for, by class; None for those of none."""

    extended: Mapping[str, str | None]

    @classmethod
    def of(cls, classes: Iterable[FrozenTree]) -> "DeviceClasses":
        """Return what the objects say."""
        return cls({one["metadata"]["name"]: (one.get("spec") or {}).get("extendedResourceName") for one in classes})

    def name_of(self, device_class: str) -> str:
        """Return the extended resource of a class; empty if there is none."""
        return self.extended.get(device_class) or ""

    def stands_for(self, resource: str) -> bool:
        """Return whether a resource that pods request means the devices of a class."""
        if resource.startswith(DEVICE_CLASS):
            return resource.removeprefix(DEVICE_CLASS) in self.extended
        return resource in self.extended.values()


class Cluster(Protocol):
    """What is known of the cluster that a claim is in."""

    def device_classes(self) -> DeviceClasses:
        """Return the classes of devices that there are."""

    def pod(self, namespace: str, name: str) -> FrozenTree | None:
        """Return a pod."""

    def device_claims(self, namespace: str) -> Iterable[FrozenTree]:
        """Return the claims to devices of a namespace."""


class DeviceClaimEvaluator(Evaluator):
    """Claims to devices, in a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(RESOURCE_CLAIMS)
        self._cluster = cluster

    def counts(self, name: str) -> bool:
        if super().counts(name) or name.endswith(_OF_CLASS):
            return True
        if not is_extended_request(name):
            return False
        classes = self._cluster.device_classes()
        return classes.stands_for(name.removeprefix(REQUESTS))

    def measure(self, obj: FrozenTree) -> Measured:
        devices: Amounts = {}
        for request in ((obj.get("spec") or {}).get("devices") or {}).get("requests") or ():
            devices = plus(devices, _devices(request))
        usage = {self.object_count: ONE, **{name + _OF_CLASS: amount for name, amount in devices.items()}}
        return Measured({**usage, **self._extended(obj, devices)})

    def _extended(self, claim: FrozenTree, devices: Amounts) -> Amounts:
        """Return the devices under the names of extended resources, but for those that count with the pod already."""
        if not devices:
            return {}
        classes, pod = self._cluster.device_classes(), self._pod_of(claim)
        counted = PodEvaluator().measure(pod).usage_at(utc_now()) if pod is not None else {}
        named: dict[str, Quantity] = {}
        for device_class, amount in devices.items():
            named[REQUESTS + DEVICE_CLASS + device_class] = amount
            if extended := classes.name_of(device_class):
                named[REQUESTS + extended] = amount
        left = {
            name: amount._replace(number=amount.number - counted[name].number) if name in counted else amount
            for name, amount in named.items()
        }
        return {name: amount for name, amount in left.items() if amount.number > 0}

    def _pod_of(self, claim: FrozenTree) -> FrozenTree | None:
        """Return the pod whose extended resources a claim is for: its owner, unless that has another such claim, or an
        earlier one.
        """
        owner = _owner(claim)
        if owner is None:
            return None
        metadata = claim["metadata"]
        pod = self._cluster.pod(metadata["namespace"], owner["name"])
        if pod is None or pod["metadata"].get("uid") != owner.get("uid"):
            return None
        told = (pod.get("status") or {}).get("extendedResourceClaimStatus")
        if told is not None:
            return pod if told.get("resourceClaimName") == metadata.get("name") else None
        others = (one for one in self._cluster.device_claims(metadata["namespace"]) if _owner(one) == owner)
        return None if any(_age(one) < _age(claim) for one in others) else pod


def _owner(claim: FrozenTree) -> FrozenTree | None:
    """Return the reference of a claim for extended resources to its pod."""
    metadata = claim.get("metadata") or {}
    if (metadata.get("annotations") or {}).get(EXTENDED_CLAIM) != "true":
        return None
    owner: FrozenTree | None = next(
        (one for one in metadata.get("ownerReferences") or () if one.get("controller")), None
    )
    return owner if owner and (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Pod") else None


def _age(claim: FrozenTree) -> tuple[str, str]:
    return claim["metadata"].get("creationTimestamp") or "", claim["metadata"].get("name") or ""


def _devices(request: FrozenTree) -> Amounts:
    """Return how many devices of each class a request may be given; of alternatives the most of each class."""
    if alternatives := request.get("firstAvailable"):
        return largest(*map(_of_one, alternatives))
    exactly = request.get("exactly")
    return _of_one(exactly) if exactly else {}


def _of_one(request: FrozenTree) -> Amounts:
    match request.get("allocationMode"):
        case "ExactCount":
            number = request.get("count") or 0
        case "All":
            number = _MOST_DEVICES
        case _:
            number = 0
    return {request.get("deviceClassName") or "": parse(str(number))}
