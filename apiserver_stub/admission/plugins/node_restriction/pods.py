"""Pods that a node may create (mirror pods), and the parts of other pods on it that it may change."""

from typing import Any

from apiserver_stub.admission.chain import Attributes
from apiserver_stub.authz.node.references import CONFIG_MAP, MIRROR, SECRET, needs
from apiserver_stub.kinds.values.trees import get_in
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.errors import not_found
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.log.formats import quote

_LOCAL = frozenset(
    {
        "awsElasticBlockStore", "azureDisk", "cephfs", "cinder", "downwardAPI", "emptyDir", "fc", "flexVolume",
        "flocker", "gcePersistentDisk", "gitRepo", "hostPath", "image", "iscsi", "nfs", "photonPersistentDisk",
        "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume",
    }
)  # fmt: skip
# What other volume types refer to, in the order of the checks.
_REFERRING = (
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
)
_PROJECTED = (
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
)
_NODE_NAME = ("spec", "nodeName")
_ON_NODE = "update pod status for pods with spec.nodeName set to itself"


def check_mirror(node: str, attributes: Attributes, row: Row | None) -> None:
    """Raises `Forbidden` for a new pod that is not a mirror pod of the node; `row` is the Node, None if it does not
    exist. Then `NotFound` is raised for an otherwise valid pod.
    """
    pod, who = attributes.tree, f"node {quote(node)}"
    if MIRROR not in (get_in(pod, ("metadata", "annotations")) or {}):
        why = f"pod does not have {quote(MIRROR)} annotation, {who} can only create mirror pods"
        raise attributes.refused(why)
    if get_in(pod, _NODE_NAME) != node:
        raise attributes.refused(f"{who} can only create pods with spec.nodeName set to itself")
    owners = get_in(pod, ("metadata", "ownerReferences")) or []
    if why := _owner_problem(owners, node):
        raise attributes.refused(f"{who} {why}")
    if row is None:
        raise not_found("", "node", node)
    expected, found = owners[0].get("uid", ""), row.field("metadata.uid")
    if expected != found:
        raise attributes.refused(f"node {node} UID mismatch: expected {expected} got {found}")
    if what := reference_of(pod.get("spec") or {}):
        raise attributes.refused(f"{who} can not create pods that reference {what}")


def _owner_problem(owners: list[Tree], node: str) -> str:
    if len(owners) > 1:
        return "can only create pods with a single owner reference set to itself"
    owner = owners[0] if owners else {}
    if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
        return "can only create pods with an owner reference set to itself"
    if not owner.get("controller"):
        return "can only create pods with a controller owner reference set to itself"
    return "must not set blockOwnerDeletion on an owner reference" if owner.get("blockOwnerDeletion") else ""


def reference_of(spec: Tree) -> str:
    """Return the kind of API object that a pod refers to; empty if it refers to none."""
    if spec.get("serviceAccountName"):
        return "serviceaccounts"
    named = {kind for kind, _ in needs(spec, "")}
    for kind in (SECRET, CONFIG_MAP):
        if kind in named:
            return kind
    if spec.get("resourceClaims"):
        return "resourceclaims"
    return next((what for volume in spec.get("volumes") or () if (what := _reference_of_volume(volume))), "")


def _reference_of_volume(volume: Tree) -> str:
    if not _LOCAL.isdisjoint(volume):
        return ""
    what = next((what for field, what in _REFERRING if field in volume), "")
    if what or "projected" not in volume:
        return what
    sources = (volume["projected"] or {}).get("sources") or ()
    found = (what for source in sources for field, what in _PROJECTED if field in source)
    return next(found, "")


def check_status(node: str, attributes: Attributes) -> None:
    """Raises `Forbidden` for the status of a pod on another node, and for status fields that nodes may not set."""
    new, old, who = attributes.tree, attributes.old_object or {}, f"node {quote(node)}"
    if get_in(old, _NODE_NAME) != node:
        raise attributes.refused(f"{who} can only {_ON_NODE}")
    labels = ("metadata", "labels")
    if (get_in(new, labels) or {}) != (get_in(old, labels) or {}):
        raise attributes.refused(f"{who} cannot update labels through pod status")
    if _claims(new) != _claims(old):
        raise attributes.refused(f"{who} cannot update resource claim statues")
    extended = ("status", "extendedResourceClaimStatus")
    if get_in(new, extended) != get_in(old, extended):
        raise attributes.refused(f"{who} cannot update extended resource claim status")


def _claims(pod: Tree) -> list[Any]:
    statuses = get_in(pod, ("status", "resourceClaimStatuses")) or []
    return [(each.get("name"), each.get("resourceClaimName")) for each in statuses]
