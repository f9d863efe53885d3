"""The group storagemigration.k8s.io (KEP-4192): requests to rewrite objects, and their progress."""

from controller_manager.common.api.conditions import Condition, is_condition_true
from controller_manager.common.api.model import Model, Object
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.resource import Resource

GROUP = f"storagemigration.{GROUP_DOMAIN}"

# Condition types of a migration; the last two mean that it is finished.
RUNNING, SUCCEEDED, FAILED = "Running", "Succeeded", "Failed"


def comparable(resource_version: str) -> bool:
    """Return whether a resource version can be compared: it is a positive number of any length."""
    return resource_version.isascii() and resource_version.isdigit() and not resource_version.startswith("0")


def is_newer(resource_version: str, other: str) -> bool:
    """Return whether the first of two comparable resource versions is newer."""
    return (len(resource_version), resource_version) > (len(other), other)


class GroupResource(Model):
    group: str = ""
    resource: str = ""


class StorageVersionMigrationSpec(Model):
    resource: GroupResource = GroupResource()


class StorageVersionMigrationStatus(Model):
    """`resource_version` is the resource version at the start of the migration; older objects are
    rewritten.
    """

    conditions: tuple[Condition, ...] = ()
    resource_version: str = ""


class StorageVersionMigration(Object):
    """A request to rewrite all objects of a resource."""

    spec: StorageVersionMigrationSpec = StorageVersionMigrationSpec()
    status: StorageVersionMigrationStatus = StorageVersionMigrationStatus()

    @property
    def is_running(self) -> bool:
        """Return whether the migration is running."""
        return is_condition_true(self.status.conditions, RUNNING)

    @property
    def has_ended(self) -> bool:
        """Return whether the migration has succeeded or failed."""
        return any(is_condition_true(self.status.conditions, kind) for kind in (SUCCEEDED, FAILED))


MIGRATIONS = Resource(
    GROUP, "v1beta1", "storageversionmigrations", "StorageVersionMigration", False, StorageVersionMigration
)
