"""The group apiextensions.k8s.io: the fields that controllers read, mainly the versions of custom resources."""

from controller_manager.common.api.model import Model, Object
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.resource import Resource

STORAGE_MIGRATING = "StorageMigrating"
"""The condition type for a migration of objects to the storage version."""


class DefinitionVersion(Model):
    """A version; one of them is the storage version."""

    name: str = ""
    storage: bool = False


class DefinitionSpec(Model):
    versions: tuple[DefinitionVersion, ...] = ()


class DefinitionCondition(Model):
    """A condition of a definition; only the fields that are read."""

    type: str = ""
    status: str = ""
    observed_generation: int = 0


class DefinitionStatus(Model):
    """`stored_versions` are the versions in which objects may be stored."""

    conditions: tuple[DefinitionCondition, ...] = ()
    stored_versions: tuple[str, ...] = ()


class CustomResourceDefinition(Object):
    """The definition of a custom resource; read only, since changes are made with server-side apply."""

    spec: DefinitionSpec = DefinitionSpec()
    status: DefinitionStatus = DefinitionStatus()


DEFINITIONS = Resource(
    f"apiextensions.{GROUP_DOMAIN}",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    False,
    CustomResourceDefinition,
)
