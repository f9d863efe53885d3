"""The permissions of kubelets: read the objects that pods on their node need, and manage their own objects.

Admission restricts writes to the own node, because it sees the objects. This authorizer never denies, so another one
may allow more.
"""

from collections.abc import Callable, Mapping
from functools import partial

from apiserver_stub.authz.node.graph import ATTACHMENT, POD_CERTIFICATE, SLICE, NodeGraph
from apiserver_stub.authz.node.references import (
    CLAIM,
    CONFIG_MAP,
    POD,
    RESOURCE_CLAIM,
    SECRET,
    SERVICE_ACCOUNT,
    VOLUME,
)
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import (
    ALLOWED,
    NO_OPINION,
    NO_RULES,
    Authorization,
    AuthorizerAttributes,
    Decision,
    Rules,
)

NODES_GROUP = "system:nodes"
_USER = "system:node:"
_LEASES = "kube-node-lease"
_READ = frozenset({"get", "list", "watch"})
_OWN = frozenset({"get", "create", "update", "patch", "delete"})
_CHANGES = frozenset({"update", "patch"})
_WRITES = frozenset({"create", "update", "patch"})
_SLICES_OF_NODE = frozenset({"watch", "list", "deletecollection"})
_OF_SLICE = frozenset({"get", "update", "patch", "delete"})
_UNLISTED = Rules(incomplete=True, error="node authorizer does not support user rule resolution")

_CERTIFICATES, _STORAGE = f"certificates.{GROUP_DOMAIN}", f"storage.{GROUP_DOMAIN}"
# The permissions of all nodes, by group and resource, without further checks.
_OF_ALL: Mapping[tuple[str, str], frozenset[str]] = {
    (f"authentication.{GROUP_DOMAIN}", "tokenreviews"): frozenset({"create"}),
    (f"authorization.{GROUP_DOMAIN}", "subjectaccessreviews"): frozenset({"create"}),
    (f"authorization.{GROUP_DOMAIN}", "localsubjectaccessreviews"): frozenset({"create"}),
    ("", "services"): _READ,
    ("", "events"): _WRITES,
    (f"events.{GROUP_DOMAIN}", "events"): _WRITES,
    ("", "endpoints"): frozenset({"get"}),
    (_CERTIFICATES, "certificatesigningrequests"): _READ | {"create"},
    (_CERTIFICATES, "clustertrustbundles"): _READ,
    (_STORAGE, "csidrivers"): _READ,
    (f"node.{GROUP_DOMAIN}", "runtimeclasses"): _READ,
}


def node_of(user: User) -> str | None:
    """Return the node name of a kubelet user, which may be empty; None for other users."""
    is_node = user.name.startswith(_USER) and NODES_GROUP in user.groups
    return user.name.removeprefix(_USER) if is_node else None


def _refused(reason: str) -> Authorization:
    return Authorization(Decision.NO_OPINION, reason)


def _narrowed(attributes: AuthorizerAttributes, path: str, node: str) -> bool:
    """Return whether a field selector restricts the request to objects of a node."""
    selector = attributes.selectors.fields
    terms = () if selector is None else selector.terms
    return any(term.equal and (term.path, term.value) == (path, node) for term in terms)


class NodeAuthorizer:
    """Decides requests of nodes; has no opinion about others."""

    def __init__(self, graph: NodeGraph) -> None:
        self._graph = graph
        readable, single = self._readable, self._single
        self._rules: Mapping[tuple[str, str], Callable[[str, AuthorizerAttributes], Authorization]] = {
            ("", SECRET): partial(readable, SECRET),
            ("", CONFIG_MAP): partial(readable, CONFIG_MAP),
            ("", CLAIM): self._claim,
            ("", VOLUME): partial(single, VOLUME),
            (f"resource.{GROUP_DOMAIN}", RESOURCE_CLAIM): partial(single, RESOURCE_CLAIM),
            (_STORAGE, ATTACHMENT): partial(single, ATTACHMENT),
            ("", SERVICE_ACCOUNT): self._service_account,
            (f"coordination.{GROUP_DOMAIN}", "leases"): self._lease,
            (_STORAGE, "csinodes"): self._csi_node,
            (f"resource.{GROUP_DOMAIN}", SLICE): self._slice,
            ("", "nodes"): self._node,
            ("", POD): self._pod,
            (_CERTIFICATES, POD_CERTIFICATE): self._pod_certificate,
        }

    async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        """Return ALLOW, or NO_OPINION with a reason. The graph is read on the first request that is not allowed, so
        clusters without kubelets never need it.
        """
        found = self._decide(attributes)
        if found.decision is Decision.ALLOW or self._graph.complete or node_of(attributes.user) is None:
            return found
        await self._graph.read()
        return self._decide(attributes)

    def _decide(self, attributes: AuthorizerAttributes) -> Authorization:
        node = node_of(attributes.user)
        if node is None:
            return NO_OPINION
        if not node:
            return _refused(f'unknown node for user "{attributes.user.name}"')
        rule = self._rules.get((attributes.group, attributes.resource))
        if rule is not None:
            return rule(node, attributes)
        if attributes.subresource:
            return NO_OPINION
        allowed = attributes.verb in _OF_ALL.get((attributes.group, attributes.resource), ())
        return ALLOWED if allowed else NO_OPINION

    async def rules_for(self, user: User, namespace: str) -> Rules:
        """Return that the permissions of a node cannot be listed; no permissions for other users."""
        return NO_RULES if node_of(user) is None else _UNLISTED

    def _related(self, kind: str, node: str, of: AuthorizerAttributes) -> Authorization:
        if not of.name:
            return _refused("No Object name found")
        if self._graph.leads(kind, of.namespace, of.name, node):
            return ALLOWED
        return _refused(f"no relationship found between node '{node}' and this object")

    def _single(self, kind: str, node: str, of: AuthorizerAttributes) -> Authorization:
        if of.verb != "get":
            return _refused("can only get individual resources of this type")
        return _refused("cannot get subresource") if of.subresource else self._related(kind, node, of)

    def _readable(self, kind: str, node: str, of: AuthorizerAttributes) -> Authorization:
        if of.verb not in _READ:
            return _refused("can only read resources of this type")
        if of.subresource:
            return _refused("cannot read subresource")
        if not of.namespace:
            return _refused("can only read namespaced object of this type")
        return self._related(kind, node, of)

    def _claim(self, node: str, of: AuthorizerAttributes) -> Authorization:
        if of.subresource != "status":
            return self._single(CLAIM, node, of)
        if of.verb not in _CHANGES:
            return _refused("can only get/update/patch this type")
        return self._related(CLAIM, node, of)

    def _service_account(self, node: str, of: AuthorizerAttributes) -> Authorization:
        if of.verb == "get" and not of.subresource:
            return self._readable(SERVICE_ACCOUNT, node, of)
        if of.verb != "create" or not of.name:
            return _refused("can only create tokens for individual service accounts")
        if of.subresource != "token":
            return _refused("can only create token subresource of serviceaccount")
        return self._related(SERVICE_ACCOUNT, node, of)

    def _lease(self, node: str, of: AuthorizerAttributes) -> Authorization:
        if of.verb not in _OWN:
            return _refused("can only get, create, update, patch, or delete a node lease")
        if of.namespace != _LEASES:
            return _refused(f'can only access leases in the "{_LEASES}" system namespace')
        if of.verb != "create" and of.name != node:  # admission checks the name of a new one
            return _refused("can only access node lease with the same name as the requesting node")
        return ALLOWED

    def _csi_node(self, node: str, of: AuthorizerAttributes) -> Authorization:
        if of.verb not in _OWN:
            return _refused("can only get, create, update, patch, or delete a CSINode")
        if of.subresource:
            return _refused("cannot authorize CSINode subresources")
        if of.verb != "create" and of.name != node:
            return _refused("can only access CSINode with the same name as the requesting node")
        return ALLOWED

    def _slice(self, node: str, of: AuthorizerAttributes) -> Authorization:
        if of.subresource:
            return _refused("cannot authorize ResourceSlice subresources")
        if of.verb == "create":
            return ALLOWED
        if of.verb in _OF_SLICE:
            return self._related(SLICE, node, of)
        if of.verb in _SLICES_OF_NODE:
            if _narrowed(of, "spec.nodeName", node):
                return ALLOWED
            return _refused("can only list/watch/deletecollection resourceslices with nodeName field selector")
        known = "get, watch, list, create, update, patch, delete, deletecollection"
        return _refused(f"only the following verbs are allowed for a ResourceSlice: {known}")

    def _node(self, node: str, of: AuthorizerAttributes) -> Authorization:
        if of.subresource == "status":
            return ALLOWED if of.verb in _CHANGES else NO_OPINION
        if of.subresource:
            return NO_OPINION
        if of.verb in _WRITES:
            return ALLOWED
        if of.verb not in _READ:
            return NO_OPINION
        if of.name == node:
            return ALLOWED
        if not of.name:
            return _refused(f"node '{node}' cannot read all nodes, only its own Node object")
        return _refused(f"node '{node}' cannot read '{of.name}', only its own Node object")

    def _pod(self, node: str, of: AuthorizerAttributes) -> Authorization:
        match of.subresource, of.verb:
            case "", "get":
                return self._single(POD, node, of)
            case "", ("list" | "watch"):
                if _narrowed(of, "spec.nodeName", node):
                    return ALLOWED
                if of.name:
                    return self._related(POD, node, of)
                return _refused("can only list/watch pods with spec.nodeName field selector")
            case ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create"):
                return ALLOWED
        return NO_OPINION

    def _pod_certificate(self, node: str, of: AuthorizerAttributes) -> Authorization:
        if of.subresource:
            return _refused("nodes may not access the status subresource of PodCertificateRequests")
        match of.verb:
            case "create":
                return ALLOWED
            case "get":
                return self._related(POD_CERTIFICATE, node, of)
            case "list" | "watch":
                if _narrowed(of, "spec.nodeName", node):
                    return ALLOWED
                return _refused("can only list/watch podcertificaterequests with nodeName field selector")
        return _refused(f"nodes may not {of.verb} podcertificaterequests")
