"""The group storagemigration.k8s.io (KEP-4192): who wants objects written anew, and how far that is."""

from controller_manager.common.api.conditions import Condition, is_condition_true
from controller_manager.common.api.model import Model, Object
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.resource import Resource

GROUP = f"storagemigration.{GROUP_DOMAIN}"

# Types of conditions of a migration; the last two end it.
RUNNING, SUCCEEDED, FAILED = "Running", "Succeeded", "Failed"


def comparable(resource_version: str) -> bool:
    """Tell whether a resource version is one that others can be compared with: a positive number, of any length."""
    return resource_version.isascii() and resource_version.isdigit() and not resource_version.startswith("0")


def is_newer(resource_version: str, other: str) -> bool:
    """Tell which of two comparable resource versions is the newer one: whether it is the first."""
    return (len(resource_version), resource_version) > (len(other), other)


class GroupResource(Model):
    group: str = ""
    resource: str = ""


class StorageVersionMigrationSpec(Model):
    resource: GroupResource = GroupResource()


class StorageVersionMigrationStatus(Model):
    """`resource_version` is the one up to which objects are written anew, since it began after what they are
    to be written for.
    """

    conditions: tuple[Condition, ...] = ()
    resource_version: str = ""


class StorageVersionMigration(Object):
    """Somebody wants all objects of a resource written anew."""

    spec: StorageVersionMigrationSpec = StorageVersionMigrationSpec()
    status: StorageVersionMigrationStatus = StorageVersionMigrationStatus()

    @property
    def is_running(self) -> bool:
        """Return whether it is its turn."""
        return is_condition_true(self.status.conditions, RUNNING)

    @property
    def has_ended(self) -> bool:
        """Return whether it has succeeded or failed."""
        return any(is_condition_true(self.status.conditions, kind) for kind in (SUCCEEDED, FAILED))


MIGRATIONS = Resource(
    GROUP, "v1beta1", "storageversionmigrations", "StorageVersionMigration", False, StorageVersionMigration
)
