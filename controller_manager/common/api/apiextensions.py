"""The group apiextensions.k8s.io, as far as controllers read it: the versions of custom resources."""

from controller_manager.common.api.model import Model, Object
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.resource import Resource

STORAGE_MIGRATING = "StorageMigrating"
"""The type of the condition that objects are being written in the version of storage."""


class DefinitionVersion(Model):
    """A version; one of them is that of storage."""

    name: str = ""
    storage: bool = False


class DefinitionSpec(Model):
    versions: tuple[DefinitionVersion, ...] = ()


class DefinitionCondition(Model):
    """A condition of a definition, as far as it is read."""

    type: str = ""
    status: str = ""
    observed_generation: int = 0


class DefinitionStatus(Model):
    """`stored_versions` are those in which there may be objects."""

    conditions: tuple[DefinitionCondition, ...] = ()
    stored_versions: tuple[str, ...] = ()


class CustomResourceDefinition(Object):
    """The definition of a custom resource, only ever read: what is written of it is applied."""

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
