"""References of pods and volumes to secrets, config maps, claims and service accounts; works on plain trees, pure."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from controller_manager.common.api.tree import FrozenTree

POD, SECRET, CONFIG_MAP, SERVICE_ACCOUNT = "pods", "secrets", "configmaps", "serviceaccounts"
CLAIM, VOLUME, RESOURCE_CLAIM = "persistentvolumeclaims", "persistentvolumes", "resourceclaims"
MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a pod that stands for one its node runs anyway."""
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_NAMING: Mapping[str, tuple[str, str]] = {
    "secret": (SECRET, "secretName"),
    "azureFile": (SECRET, "secretName"),
    "configMap": (CONFIG_MAP, "name"),
    "persistentVolumeClaim": (CLAIM, "claimName"),
}
"""Volume sources that name an object: its kind and the field with the name."""
_WITH_SECRET = ("cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos")
# Volumes whose secret is in the namespace of the claim unless they set one.
_BESIDE_CLAIM = ("cephfs", "flexVolume", "rbd", "scaleIO", "iscsi")
_NAMESPACED = ("cinder", "storageos")
_OF_NODES = ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef")


class Reference(NamedTuple):
    """An object by plural, namespace (empty if cluster-scoped) and name."""

    kind: str
    namespace: str
    name: str


def pod_references(namespace: str, name: str, pod: FrozenTree) -> frozenset[Reference]:
    """Return the objects that a pod needs on its node. Mirror pods need none: a node could create one to gain access to
    any object. Pods of one template and namespace share the same set.
    """
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    if MIRROR in (metadata.get("annotations") or {}):
        return frozenset()
    claims = ((RESOURCE_CLAIM, each) for each in _resource_claims(spec, pod.get("status") or {}) if each)
    return references(namespace, (*needs(spec, name), *claims))


@lru_cache(maxsize=4096)
def references(namespace: str, named: tuple[tuple[str, str], ...]) -> frozenset[Reference]:
    """Return references to objects of a namespace by kind and name; equal arguments return the same set."""
    return frozenset(Reference(kind, namespace, name) for kind, name in named)


def needs(spec: FrozenTree, pod: str) -> Iterator[tuple[str, str]]:
    """Yield kind and name of the objects that a pod spec refers to, without resource claims."""
    named = (
        (SERVICE_ACCOUNT, spec.get("serviceAccountName")),
        *((SECRET, each.get("name")) for each in spec.get("imagePullSecrets") or ()),
        *(found for each in _CONTAINERS for one in spec.get(each) or () for found in _of_container(one)),
        *(found for volume in spec.get("volumes") or () for found in _of_volume(volume, pod)),
    )
    return ((kind, name) for kind, name in named if name)


def volume_references(volume: FrozenTree) -> tuple[Reference, frozenset[Reference]] | None:
    """Return the claim that a persistent volume is bound to, and the secrets that nodes need for it; None without a
    claim.
    """
    spec = volume.get("spec") or {}
    bound = spec.get("claimRef")
    if not bound:
        return None
    beside = bound.get("namespace", "")
    claim = Reference(CLAIM, beside, bound.get("name", ""))
    secrets = frozenset(Reference(SECRET, namespace, name) for namespace, name in _secrets(spec, beside) if name)
    return claim, secrets


def _of_container(container: FrozenTree) -> Iterator[tuple[str, Any]]:
    for source in container.get("envFrom") or ():
        yield SECRET, _name(source.get("secretRef"))
        yield CONFIG_MAP, _name(source.get("configMapRef"))
    for variable in container.get("env") or ():
        if source := variable.get("valueFrom"):
            yield SECRET, _name(source.get("secretKeyRef"))
            yield CONFIG_MAP, _name(source.get("configMapKeyRef"))


def _of_volume(volume: FrozenTree, pod: str) -> Iterator[tuple[str, Any]]:
    for field, found in volume.items():
        if field == "name" or found is None:
            continue
        if field == "projected":
            for source in found.get("sources") or ():
                yield SECRET, _name(source.get("secret"))
                yield CONFIG_MAP, _name(source.get("configMap"))
        elif field in _NAMING:
            kind, name = _NAMING[field]
            yield kind, found.get(name)
        elif field == "csi":
            yield SECRET, _name(found.get("nodePublishSecretRef"))
        elif field in _WITH_SECRET:
            yield SECRET, _name(found.get("secretRef"))
        elif field == "ephemeral" and not volume.get("persistentVolumeClaim"):
            yield CLAIM, f"{pod}-{volume.get('name', '')}"


def _resource_claims(spec: FrozenTree, status: FrozenTree) -> Iterator[Any]:
    """Yield the names of the resource claims of a pod; the status has the names of generated ones."""
    made = {each.get("name"): each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()}
    for claim in spec.get("resourceClaims") or ():
        yield claim.get("resourceClaimName") or made.get(claim.get("name"))
    yield (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")


def _secrets(spec: FrozenTree, beside: str) -> Iterator[tuple[str, str]]:
    azure = spec.get("azureFile") or {}
    yield azure.get("secretNamespace") or beside, azure.get("secretName", "")
    for kind in _BESIDE_CLAIM:
        secret = (spec.get(kind) or {}).get("secretRef") or {}
        yield secret.get("namespace") or beside, secret.get("name", "")
    secrets = [(spec.get(kind) or {}).get("secretRef") for kind in _NAMESPACED]
    csi = spec.get("csi") or {}
    for secret in (*secrets, *(csi.get(each) for each in _OF_NODES)):
        if secret:
            yield secret.get("namespace", ""), secret.get("name", "")


def _name(reference: FrozenTree | None) -> Any:
    return None if reference is None else reference.get("name")
