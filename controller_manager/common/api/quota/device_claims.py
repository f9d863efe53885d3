"""Quota usage of device claims (KEP-4381, KEP-5004): number of claims, and the maximum number of devices of each class,
counted for the class and for the extended resource of the class.
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
"""The annotation of claims created for the extended resources of a pod."""
_OF_CLASS = f".deviceclass.resource.{GROUP_DOMAIN}/devices"
_MOST_DEVICES = 32  # devices per claim


class DeviceClasses(NamedTuple):
    """The extended resource of each device class, by class name; None if the class has none."""

    extended: Mapping[str, str | None]

    @classmethod
    def of(cls, classes: Iterable[FrozenTree]) -> "DeviceClasses":
        """Return the classes of these objects."""
        return cls({one["metadata"]["name"]: (one.get("spec") or {}).get("extendedResourceName") for one in classes})

    def name_of(self, device_class: str) -> str:
        """Return the extended resource of a class; empty if it has none."""
        return self.extended.get(device_class) or ""

    def stands_for(self, resource: str) -> bool:
        """Return whether a requested resource of a pod means devices of a class."""
        if resource.startswith(DEVICE_CLASS):
            return resource.removeprefix(DEVICE_CLASS) in self.extended
        return resource in self.extended.values()


class Cluster(Protocol):
    """The other objects of the cluster that the evaluation needs."""

    def device_classes(self) -> DeviceClasses:
        """Return the device classes."""

    def pod(self, namespace: str, name: str) -> FrozenTree | None:
        """Return a pod, or None."""

    def device_claims(self, namespace: str) -> Iterable[FrozenTree]:
        """Return the device claims of a namespace."""


class DeviceClaimEvaluator(Evaluator):
    """Evaluates device claims in a cluster."""

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
        """Return the devices by extended resource, without those that the pod already counts."""
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
        """Return the pod that a claim for extended resources belongs to: its owner, unless the owner has another or an
        earlier claim.
        """
        owner = _owner(claim)
        if owner is None:
            return None
        metadata = claim["metadata"]
        pod = self._cluster.pod(metadata["namespace"], owner["name"])
        if pod is None or pod["metadata"].get("uid") != owner.get("uid"):
            return None
        status = (pod.get("status") or {}).get("extendedResourceClaimStatus")
        if status is not None:
            return pod if status.get("resourceClaimName") == metadata.get("name") else None
        others = (one for one in self._cluster.device_claims(metadata["namespace"]) if _owner(one) == owner)
        return None if any(_age(one) < _age(claim) for one in others) else pod


def _owner(claim: FrozenTree) -> FrozenTree | None:
    """Return the reference from a claim for extended resources to its pod."""
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
    """Return the maximum number of devices of each class for a request; with alternatives, the maximum of each
    class.
    """
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
