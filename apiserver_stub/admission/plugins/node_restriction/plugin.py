"""Checks the writes of kubelets that depend on object contents, which the authorizer cannot see.

| written                          | by a node                                                                       |
|----------------------------------|---------------------------------------------------------------------------------|
| nodes                            | itself, without taints, owners or a config source, with allowed labels          |
| pods                             | its own mirror pods; delete, evict and update the status of pods on it only     |
| claims                           | capacity, conditions and allocated resources in the status                      |
| tokens of service accounts       | bound to pods that run on it, for an audience that these mount                  |
| leases, CSINodes                 | with its own name                                                               |
| resource slices                  | creates and deletes its own; the authorizer checks other requests               |
| requests for its certificates    | with its own name                                                               |
| requests for pod certificates    | for pods that run on it and their accounts; not for mirror pods                 |

A user of `system:nodes` whose name contains no node name may not write at all.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from apiserver_stub.admission.chain import ALL, AdmissionPlugin, Attributes, Rule
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.admission.plugins.certificates import POD_REQUESTS, subject_of
from apiserver_stub.admission.plugins.node_restriction.labels import changed, forbidden_labels
from apiserver_stub.admission.plugins.node_restriction.pod_certificates import check_pod_certificate
from apiserver_stub.admission.plugins.node_restriction.pods import check_mirror, check_status
from apiserver_stub.admission.plugins.node_restriction.tokens import NodeTokens
from apiserver_stub.authz.node.authorizer import node_of
from apiserver_stub.kinds.strategies.certificate_requests import REQUESTS
from apiserver_stub.kinds.values.trees import get_in
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.certificates import NODE_CLIENT, NODE_SERVING
from controller_manager.common.api.errors import not_found
from controller_manager.common.api.platform import GROUP_DOMAIN, NODE_PREFIX
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.log.formats import quote

_LEASES = "kube-node-lease"
_SOURCE, _TAINTS, _OWNERS = ("spec", "configSource"), ("spec", "taints"), ("metadata", "ownerReferences")
_LABELS, _NODE_NAME = ("metadata", "labels"), ("spec", "nodeName")
_OF_STATUS = ("capacity", "conditions", "allocatedResources", "allocatedResourceStatuses")
_OF_METADATA = ("resourceVersion", "managedFields")


def node_restriction(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin NodeRestriction."""
    tokens = NodeTokens(parts.store, parts.authorizer)
    rule = Rule(NodeRestriction(parts.store, tokens).admit, ("create", "update", "delete"), (ALL,), (ALL,))
    return AdmissionPlugin("NodeRestriction", mutating=(rule,))


class NodeRestriction:
    """A validating check that runs with the mutating plugins, before they change the object."""

    def __init__(self, store: WatchCache, tokens: NodeTokens) -> None:
        self._store = store
        self._tokens = tokens
        self._checks: Mapping[str, Callable[[str, Attributes], None]] = {
            "pods": self._check_pod,
            "nodes": check_node,
            "persistentvolumeclaims": check_claim,
            f"leases.coordination.{GROUP_DOMAIN}": check_lease,
            f"csinodes.storage.{GROUP_DOMAIN}": check_csi_node,
            f"resourceslices.resource.{GROUP_DOMAIN}": check_slice,
            REQUESTS: check_certificate_request,
            POD_REQUESTS: self._check_pod_certificate,
        }

    def admit(self, attributes: Attributes) -> Awaitable[None] | None:
        """Raises `Forbidden` for a write that the node may not make, and `NotFound` for a pod or node that does not
        exist.
        """
        node = node_of(attributes.user)
        if node is None:
            return None
        if not node:
            raise attributes.refused(f"could not determine node from user {quote(attributes.user.name)}")
        resource = attributes.kind.storage
        if check := self._checks.get(resource):
            check(node, attributes)
        elif resource == "serviceaccounts" and (attributes.operation, attributes.subresource) == ("create", "token"):
            return self._tokens.check(node, attributes)
        return None

    def _check_pod(self, node: str, attributes: Attributes) -> None:
        match attributes.subresource:
            case "":
                self._check_whole_pod(node, attributes)
            case "status":
                check_status(node, attributes)
            case "eviction":
                self._check_on_node(attributes, f"node {node} can only evict pods", node)
            case other:
                why = f"unexpected pod subresource {quote(other)}, only 'status' and 'eviction' are allowed"
                raise attributes.refused(why)

    def _check_whole_pod(self, node: str, attributes: Attributes) -> None:
        who = f"node {quote(node)}"
        match attributes.operation:
            case "create":
                check_mirror(node, attributes, self._store.get("nodes", node))
            case "delete":
                self._check_on_node(attributes, f"{who} can only delete pods", node)
            case other:
                why = f"unexpected operation {quote(other.upper())}, {who} can only create and delete mirror pods"
                raise attributes.refused(why)

    def _check_pod_certificate(self, node: str, attributes: Attributes) -> None:
        if attributes.operation != "create" or attributes.subresource:
            raise attributes.refused(f"unexpected operation {attributes.operation.upper()}")
        check_pod_certificate(node, attributes, self._store)

    def _check_on_node(self, attributes: Attributes, may: str, node: str) -> None:
        row = self._store.get("pods", f"{attributes.namespace}/{attributes.name}")
        if row is None:
            raise not_found("", "pod", attributes.name)
        if row.field("spec.nodeName") != node:
            raise attributes.refused(f"{may} with spec.nodeName set to itself")


def check_node(node: str, attributes: Attributes) -> None:
    """Raises `Forbidden` for another node, and for fields that a node may not change on itself."""
    who = f"node {quote(node)}"
    if attributes.name != node:
        raise attributes.refused(f"{who} is not allowed to modify node {quote(attributes.name)}")
    match attributes.operation:
        case "create":
            if get_in(attributes.tree, _SOURCE) is not None:
                raise attributes.refused(f"{who} is not allowed to create pods with a non-nil configSource")
            if names := forbidden_labels(get_in(attributes.tree, _LABELS) or {}):
                raise attributes.refused(f"{who} is not allowed to set the following labels: {', '.join(names)}")
        case "update":
            _check_node_update(who, attributes)


def _check_node_update(who: str, attributes: Attributes) -> None:
    new, old = attributes.tree, attributes.old_object
    source = get_in(new, _SOURCE)
    if source is not None and source != get_in(old, _SOURCE):
        raise attributes.refused(f"{who} is not allowed to update configSource to a new non-nil configSource")
    for path, what in ((_TAINTS, "taints"), (_OWNERS, "ownerReferences")):
        if (get_in(new, path) or []) != (get_in(old, path) or []):
            raise attributes.refused(f"{who} is not allowed to modify {what}")
    if names := forbidden_labels(changed(get_in(new, _LABELS) or {}, get_in(old, _LABELS) or {})):
        raise attributes.refused(f"is not allowed to modify labels: {', '.join(names)}")


def check_claim(node: str, attributes: Attributes) -> None:
    """Raises `Forbidden` if other fields than the volume status reported by the node change."""
    if attributes.subresource != "status":
        raise attributes.refused("may only update PVC status")
    if _besides(attributes.tree) != _besides(attributes.old_object or {}):
        why = f"node {quote(node)} is not allowed to update fields other than status.quantity and status.conditions"
        raise attributes.refused(why)


def _besides(claim: Tree) -> Any:
    """Return a claim without empty values and the fields that nodes may change."""
    metadata = {name: value for name, value in claim["metadata"].items() if value and name not in _OF_METADATA}
    status = {name: value for name, value in (claim.get("status") or {}).items() if value and name not in _OF_STATUS}
    return metadata, status, claim.get("spec")


def check_lease(node: str, attributes: Attributes) -> None:
    """Raises `Forbidden` for any lease but the one of the node."""
    if attributes.namespace != _LEASES:
        raise attributes.refused(f"can only access leases in the {quote(_LEASES)} system namespace")
    if attributes.name != node:
        raise attributes.refused("can only access node lease with the same name as the requesting node")


def check_csi_node(node: str, attributes: Attributes) -> None:
    """Raises `Forbidden` for a CSINode of another name."""
    if attributes.name != node:
        raise attributes.refused("can only access CSINode with the same name as the requesting node")


def check_slice(node: str, attributes: Attributes) -> None:
    """Raises `Forbidden` for creating or deleting a resource slice of another node."""
    slice_ = attributes.object if attributes.operation == "create" else attributes.old_object
    if attributes.operation != "update" and get_in(slice_, _NODE_NAME) != node:
        why = f"can only {attributes.operation} ResourceSlice with the same NodeName as the requesting node"
        raise attributes.refused(why)


def check_certificate_request(node: str, attributes: Attributes) -> None:
    """Raises `Forbidden` for a request for the certificate of another node."""
    spec = attributes.tree.get("spec") or {} if attributes.operation == "create" else {}
    if spec.get("signerName") not in (NODE_CLIENT, NODE_SERVING):
        return
    try:
        subject = subject_of(spec)
    except ValueError as error:
        raise attributes.refused(f"unable to parse csr: {error}") from None
    if subject.common_name != f"{NODE_PREFIX}{node}":
        raise attributes.refused(f"can only create a node CSR with CN={NODE_PREFIX}{node}")
