"""Namespaces and resource quotas."""

from collections.abc import Mapping

from controller_manager.common.api.conditions import Condition
from controller_manager.common.api.model import Model, Object
from controller_manager.common.api.resource import Resource


class NamespaceSpec(Model):
    finalizers: tuple[str, ...] = ()


class NamespaceStatus(Model):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Namespace(Object):
    """A scope of names. It is deleted with all objects in it."""

    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False, Namespace)


class ScopeRequirement(Model):
    """`spec.scopeSelector.matchExpressions[]`, complete."""

    scope_name: str
    operator: str
    values: tuple[str, ...] = ()


class ScopeSelector(Model):
    match_expressions: tuple[ScopeRequirement, ...] = ()


class ResourceQuotaSpec(Model):
    hard: Mapping[str, str] | None = None
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(Model):
    hard: Mapping[str, str] | None = None
    used: Mapping[str, str] | None = None


class ResourceQuota(Object):
    """Limits on the total usage of the objects in a namespace."""

    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", True, ResourceQuota)
