"""Tokens requested by a node: bound to a pod on it, for an audience that a volume of the pod requires (KEP-4412).

The audiences of a volume are that of its token projection, or those of its CSI driver, which is named in the volume or
found through its claim and persistent volume. Migrated in-tree volumes use the CSI drivers that replaced them.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import orjson

from apiserver_stub.admission.chain import Attributes
from apiserver_stub.kinds.values.trees import get_in
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.errors import NotFound, not_found
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.log.formats import quote
from controller_manager.common.serving import authorization
from controller_manager.common.serving.authorization import Authorizer, Decision, all_errors

_DRIVERS = f"storage.{GROUP_DOMAIN}"
_VERB = "request-serviceaccounts-token-audience"
# The CSI drivers of migrated in-tree volumes.
_MIGRATED: Mapping[str, str] = MappingProxyType(
    {
        "awsElasticBlockStore": "ebs.csi.aws.com",
        "azureDisk": "disk.csi.azure.com",
        "azureFile": "file.csi.azure.com",
        "cinder": "cinder.csi.openstack.org",
        "gcePersistentDisk": "pd.csi.storage.gke.io",
        "portworxVolume": "pxd.portworx.com",
        "vsphereVolume": "csi.vsphere.vmware.com",
    }
)


class NodeTokens:
    """The check of token requests; reads pods and their volumes from the store."""

    def __init__(self, store: WatchCache, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer

    async def check(self, node: str, attributes: Attributes) -> None:
        """Raises `Forbidden` for a token that the node does not need, and `NotFound` for one of a pod that does not
        exist.
        """
        spec = attributes.tree.get("spec") or {}
        pod = self._bound_pod(node, spec.get("boundObjectRef") or {}, attributes)
        audiences = spec.get("audiences") or [""]
        if len(audiences) > 1:
            raise attributes.refused("node may only request 0 or 1 audiences")
        (audience,) = audiences
        missing: list[str] = []
        if self._is_mounted(pod, attributes.namespace, audience, missing):
            return
        if missing:
            raise attributes.refused(f"error validating audience {quote(audience)}: {all_errors(missing)}")
        await self._check_allowed(attributes, audience)

    def _bound_pod(self, node: str, reference: Tree, attributes: Attributes) -> Row:
        name, uid = reference.get("name"), reference.get("uid")
        if (reference.get("apiVersion"), reference.get("kind")) != ("v1", "Pod") or not name:
            raise attributes.refused("node requested token not bound to a pod")
        if not uid:
            raise attributes.refused("node requested token with a pod binding without a uid")
        pod = self._found("pods", f"{attributes.namespace}/{name}", "pod")
        if uid != pod.field("metadata.uid"):
            why = f"the UID in the bound object reference ({uid}) does not match the UID in record. "
            raise attributes.refused(f"{why}The object might have been deleted and then recreated")
        if pod.field("spec.nodeName") != node:
            raise attributes.refused("node requested token bound to a pod scheduled on a different node")
        return pod

    def _is_mounted(self, pod: Row, namespace: str, audience: str, missing: list[str]) -> bool:
        """Return whether a volume of a pod requires an audience. Objects that were not found are added to `missing`."""
        for volume in get_in(orjson.loads(pod.data), ("spec", "volumes")) or ():
            try:
                if audience in self._audiences(volume, pod.name, namespace):
                    return True
            except NotFound as error:
                missing.append(error.message)
        return False

    def _audiences(self, volume: Tree, pod: str, namespace: str) -> Iterator[str]:
        """Yield the audiences that a volume is for. Raises `NotFound`."""
        for source in (volume.get("projected") or {}).get("sources") or ():
            if (token := source.get("serviceAccountToken")) is not None:
                yield token.get("audience", "")
        if driver := self._driver(volume, pod, namespace):
            row = self._found(f"csidrivers.{_DRIVERS}", driver, "csidriver", _DRIVERS)
            for request in get_in(orjson.loads(row.data), ("spec", "tokenRequests")) or ():
                yield request.get("audience", "")

    def _driver(self, volume: Tree, pod: str, namespace: str) -> str:
        if get_in(volume, ("ephemeral", "volumeClaimTemplate")) is not None:
            return self._driver_of_claim(f"{namespace}/{pod}-{volume['name']}")
        if claim := volume.get("persistentVolumeClaim"):
            return self._driver_of_claim(f"{namespace}/{claim.get('claimName', '')}")
        return _driver_of(volume)

    def _driver_of_claim(self, key: str) -> str:
        claim = self._found("persistentvolumeclaims", key, "persistentvolumeclaim")
        volume = self._found("persistentvolumes", claim.field("spec.volumeName"), "persistentvolume")
        return _driver_of(orjson.loads(volume.data).get("spec") or {})

    def _found(self, resource: str, key: str, called: str, group: str = "") -> Row:
        row = self._store.get(resource, key)
        if row is None:
            raise not_found(group, called, key.rpartition("/")[2])
        return row

    async def _check_allowed(self, attributes: Attributes, audience: str) -> None:
        """Raises `Forbidden` unless the node may request tokens for an audience independent of its pods."""
        user, name = attributes.user, attributes.name
        asked = authorization.AuthorizerAttributes(user, _VERB, "", "", "v1", audience, "", attributes.namespace, name)
        verdict = await self._authorizer.authorize(asked)
        if verdict.decision is Decision.ALLOW:
            return
        why = f"audience {quote(audience)} not found in pod spec volume, "
        if verdict.error:
            raise attributes.refused(
                f"{why}error authorizing {user.name} to request tokens for this audience: {verdict.error}"
            )
        raise attributes.refused(f"{why}{user.name} is not authorized to request tokens for this audience")


def _driver_of(volume: Tree) -> str:
    """Return the CSI driver of a pod volume or persistent volume, or an empty string."""
    if csi := volume.get("csi"):
        return str(csi.get("driver", ""))
    return next((driver for field, driver in _MIGRATED.items() if field in volume), "")
