"""The parts of a pod that determine its related objects; pure.

Pods of one template need the same objects. So the result is cached by the bytes of these parts, without the random name
of the token volume.
"""

from functools import lru_cache
from typing import Any, TypedDict

import msgspec

from apiserver_stub.authz.node.references import MIRROR, Reference, needs, pod_references, references

_REMEMBERED = 256  # cached sets of parts; pods of one template are usually consecutive
_FROM = b'From"'  # the names of all fields of a container that name objects end like this
_TOKEN_VOLUME, _PROJECTED = b'{"name":"kube-api-access-', b'","projected":{'
_EPHEMERAL = b'"ephemeral"'


class _Identity(msgspec.Struct, gc=False, frozen=True):
    uid: str = ""
    annotations: dict[str, str] | None = None


class _Status(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    resource_claim_statuses: msgspec.Raw = msgspec.Raw()
    extended_resource_claim_status: msgspec.Raw = msgspec.Raw()


_Trees = list[dict[str, Any]] | None


class _Variable(TypedDict, total=False):
    valueFrom: dict[str, Any] | None


class _Container(TypedDict, total=False):
    env: list[_Variable] | None
    envFrom: _Trees


class _ReferringSpec(TypedDict, total=False):
    """The fields of a pod spec that refer to other objects; decoding only these takes a third of the time."""

    nodeName: str | None
    serviceAccountName: str | None
    imagePullSecrets: _Trees
    initContainers: list[_Container] | None
    containers: list[_Container] | None
    ephemeralContainers: list[_Container] | None
    volumes: _Trees
    resourceClaims: _Trees


class _Referring(msgspec.Struct, gc=False, frozen=True):
    """The parts of a pod that refer to other objects, and those that decide where these lead."""

    metadata: _Identity = _Identity()
    spec: _ReferringSpec | None = None
    status: _Status = _Status()


_NONE = msgspec.Raw()


class _Parts(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """The spec of a pod, in the parts that may refer to other objects."""

    node_name: str | None = None
    service_account_name: str | None = None
    image_pull_secrets: msgspec.Raw = _NONE
    init_containers: msgspec.Raw = _NONE
    containers: msgspec.Raw = _NONE
    ephemeral_containers: list[msgspec.Raw] | None = None
    volumes: msgspec.Raw = _NONE
    resource_claims: list[msgspec.Raw] | None = None


class _Pod(msgspec.Struct, gc=False, frozen=True):
    metadata: _Identity = _Identity()
    spec: _Parts = _Parts()
    status: _Status = _Status()


_POD = msgspec.json.Decoder(_Pod)
_REFERRING = msgspec.json.Decoder(_Referring)
_CONTAINERS = msgspec.json.Decoder(list[_Container] | None)
_TREES = msgspec.json.Decoder(_Trees)


class PodState:
    """The decoded parts of a pod: `node` may be empty, `signature` changes if the pod may need other objects. Raises
    the errors of msgspec for invalid bytes.
    """

    __slots__ = ("_data", "_pod", "node", "signature")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pod = pod = _POD.decode(data)
        self.node = pod.spec.node_name or ""
        self.signature = _signature(pod)

    def references(self, namespace: str, name: str) -> frozenset[Reference]:
        """Return the objects that the pod needs on its node."""
        pod, parts = self._pod, self._pod.spec
        volumes = bytes(parts.volumes)
        has_claims = parts.resource_claims or _EPHEMERAL in volumes
        if has_claims or self.signature != pod.metadata.uid or MIRROR in (pod.metadata.annotations or ()):
            return _read_whole(namespace, name, self._data)
        containers = _naming(parts.init_containers), _naming(parts.containers)
        secrets = bytes(parts.image_pull_secrets)
        return references(namespace, _needs(parts.service_account_name, secrets, containers, _alike(volumes)))


def _signature(pod: _Pod) -> Any:
    """Return a value that changes if references of a pod may have changed; the rest of its spec is immutable."""
    ephemeral, status = len(pod.spec.ephemeral_containers or ()), pod.status
    claims = bytes(status.resource_claim_statuses), bytes(status.extended_resource_claim_status)
    uid = pod.metadata.uid
    return (uid, ephemeral, *claims) if ephemeral or any(claims) else uid


def _read_whole(namespace: str, name: str, data: bytes) -> frozenset[Reference]:
    pod = _REFERRING.decode(data)
    metadata = {"annotations": pod.metadata.annotations}
    parts = {"metadata": metadata, "spec": pod.spec or {}, "status": _claims_of(pod.status)}
    return pod_references(namespace, name, parts)


@lru_cache(maxsize=_REMEMBERED)
def _needs(
    account: str | None, secrets: bytes, containers: tuple[bytes, bytes], volumes: bytes
) -> tuple[tuple[str, str], ...]:
    init_containers, main_containers = (_CONTAINERS.decode(each or b"null") for each in containers)
    spec = {
        "serviceAccountName": account,
        "imagePullSecrets": _TREES.decode(secrets or b"null"),
        "initContainers": init_containers,
        "containers": main_containers,
        "volumes": _TREES.decode(volumes or b"null"),
    }
    return tuple(needs(spec, ""))


def _naming(containers: msgspec.Raw) -> bytes:
    """Return the containers if one of them may name an object."""
    found = bytes(containers)
    return found if _FROM in found else b""


def _alike(volumes: bytes) -> bytes:
    """Return the volumes with a fixed name for the token volume; nothing refers to names of volumes here."""
    at = volumes.find(_TOKEN_VOLUME)
    if at < 0:
        return volumes
    at += len(_TOKEN_VOLUME)
    end = volumes.find(b'"', at)
    return volumes[:at] + volumes[end:] if volumes.startswith(_PROJECTED, end) else volumes


def _claims_of(status: _Status) -> dict[str, Any]:
    fields = {
        "resourceClaimStatuses": status.resource_claim_statuses,
        "extendedResourceClaimStatus": status.extended_resource_claim_status,
    }
    return {name: msgspec.json.decode(raw) for name, raw in fields.items() if bytes(raw)}
