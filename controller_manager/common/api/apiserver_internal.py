"""The group internal.apiserver.k8s.io (KEP-2339): the versions in which API servers store the objects of a resource."""

from collections.abc import Sequence

import msgspec

from controller_manager.common.api.model import Model, Object
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.resource import Resource

GROUP = f"internal.apiserver.{GROUP_DOMAIN}"
ALL_EQUAL = "AllEncodingVersionsEqual"
"""The condition type that all servers use the same storage version."""

IDENTITY_LABEL, API_SERVER = "apiserver.kubernetes.io/identity", "kube-apiserver"
"""The label of the lease of each API server in the system namespace, and its value."""


class ServerStorageVersion(Model):
    """The storage version of one server, and the versions it can decode and serve, as `group/version`."""

    api_server_id: str = msgspec.field(name="apiServerID", default="")
    encoding_version: str = ""
    decodable_versions: tuple[str, ...] = ()
    served_versions: tuple[str, ...] = ()


class StorageVersionCondition(Model):
    """`status.conditions[]`, complete."""

    type: str = ""
    status: str = ""
    observed_generation: int = 0
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class StorageVersionStatus(Model):
    storage_versions: tuple[ServerStorageVersion, ...] = ()
    common_encoding_version: str | None = None
    conditions: tuple[StorageVersionCondition, ...] = ()


class StorageVersion(Object):
    """The storage versions of a resource on all servers; the object's name is `group.resource`."""

    status: StorageVersionStatus = StorageVersionStatus()


STORAGE_VERSIONS = Resource(GROUP, "v1alpha1", "storageversions", "StorageVersion", False, StorageVersion)


def with_servers(
    status: StorageVersionStatus, servers: Sequence[ServerStorageVersion], generation: int, now: str
) -> StorageVersionStatus:
    """Return the status for these servers, with their common storage version if there is one.

    The transition time of the condition changes with its status, and when the common version changes.
    """
    encodings = {server.encoding_version for server in servers}
    common = encodings.pop() if len(encodings) == 1 else None
    before = next((condition for condition in status.conditions if condition.type == ALL_EQUAL), None)
    suffix = "Set" if common is not None else "Unset"
    condition = StorageVersionCondition(
        type=ALL_EQUAL,
        status="True" if common is not None else "False",
        observed_generation=generation,
        last_transition_time=now,
        reason=f"CommonEncodingVersion{suffix}",
        message=f"Common encoding version {suffix.lower()}",
    )
    moved = None not in (common, status.common_encoding_version) and common != status.common_encoding_version
    if before is not None and before.status == condition.status and not moved:
        condition = msgspec.structs.replace(condition, last_transition_time=before.last_transition_time)
    others = (condition if one.type == ALL_EQUAL else one for one in status.conditions)
    return StorageVersionStatus(
        storage_versions=tuple(servers),
        common_encoding_version=common,
        conditions=(*others, condition) if before is None else tuple(others),
    )
