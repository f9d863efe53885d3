"""PodCertificateRequests of a node: allowed for pods that run on it, with matching fields."""

import orjson

from apiserver_stub.admission.chain import Attributes
from apiserver_stub.authz.node.references import MIRROR
from apiserver_stub.kinds.values.trees import get_in
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.errors import UnknownError
from controller_manager.common.base.log.formats import quote


def check_pod_certificate(node: str, attributes: Attributes, store: WatchCache) -> None:
    """Raises `Forbidden` for a request that cannot be valid, and `UnknownError` if this server may not have seen the
    objects yet, so that the node retries.
    """
    spec, namespace = attributes.tree.get("spec") or {}, attributes.namespace
    pod_key, account = f"{namespace}/{spec.get('podName') or ''}", spec.get("serviceAccountName") or ""
    about = f"PodCertificateRequest for pod {quote(pod_key)}"
    if spec.get("nodeName") != node:
        named = f"PodCertificateRequest.Spec.NodeName={quote(spec.get('nodeName') or '')}"
        raise attributes.refused(f"{named}, which is not the requesting node {quote(node)}")
    uid = _found(store, "nodes", node, "node").field("metadata.uid")
    if (named_uid := spec.get("nodeUID") or "") != uid:
        raise UnknownError(
            f"{about} names node UID {quote(named_uid)}, inconsistent with the running node ({quote(uid)})"
        )
    row = _found(store, "pods", pod_key, "pod")
    if (named_uid := spec.get("podUID") or "") != (uid := row.field("metadata.uid")):
        raise UnknownError(f"{about} contains pod UID ({quote(named_uid)}) which differs from running pod {quote(uid)}")
    pod = orjson.loads(row.data)
    if get_in(pod, ("spec", "nodeName")) != node:
        why = f"pod {quote(pod_key)} is not running on node {quote(node)} named in the PodCertificateRequest"
        raise attributes.refused(why)
    if MIRROR in (get_in(pod, ("metadata", "annotations")) or {}):
        raise attributes.refused(f"pod {quote(pod_key)} is a mirror pod")
    runs_as = get_in(pod, ("spec", "serviceAccountName")) or ""
    if account != runs_as:
        differs = f"that differs from running pod ({quote(runs_as)})"
        raise attributes.refused(f"{about} contains serviceAccountName ({quote(account)}) {differs}")
    uid = _found(store, "serviceaccounts", f"{namespace}/{account}", "service account").field("metadata.uid")
    if (named_uid := spec.get("serviceAccountUID") or "") != uid:
        differs = f"which differs from the running service account ({quote(uid)})"
        raise UnknownError(f"{about} names service account UID {quote(named_uid)}, {differs}")


def _found(store: WatchCache, resource: str, key: str, what: str) -> Row:
    row = store.get(resource, key)
    if row is None:
        why = f"{what.replace(' ', '')} {quote(key.rpartition('/')[2])} not found"
        raise UnknownError(f"while retrieving {what} {quote(key)} named in the PodCertificateRequest: {why}")
    return row
