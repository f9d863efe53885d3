"""The group rbac.authorization.k8s.io: roles and bindings."""

import msgspec

from controller_manager.common.api.model import Model, Object
from controller_manager.common.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.selectors import LabelSelectorSpec

GROUP = f"rbac.authorization.{GROUP_DOMAIN}"
AUTO_UPDATE = f"rbac.authorization.{PLATFORM_DOMAIN}/autoupdate"
"""The annotation of default roles and bindings; servers do not update those with the value `false`."""


class RoleRule(Model):
    """`rules[]`, complete: verbs on resources of API groups, or on paths; `*` means all."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(default=(), name="nonResourceURLs")


class AggregationRule(Model):
    """`aggregationRule`, complete: selects the roles whose rules are combined."""

    cluster_role_selectors: tuple[LabelSelectorSpec, ...] = ()


class Role(Object):
    """A role of a namespace."""

    rules: tuple[RoleRule, ...] = ()


class ClusterRole(Object):
    """A role of the cluster; a binding in a namespace may grant it for that namespace only."""

    rules: tuple[RoleRule, ...] = ()
    aggregation_rule: AggregationRule | None = None


class Subject(Model):
    """`subjects[]`, complete: a User, a Group or a ServiceAccount."""

    kind: str = ""
    api_group: str = ""
    name: str = ""
    namespace: str = ""


class RoleRef(Model):
    """`roleRef`, complete."""

    api_group: str = ""
    kind: str = ""
    name: str = ""


class RoleBinding(Object):
    """Grants a role to subjects, in a namespace or, as a ClusterRoleBinding, in the cluster."""

    role_ref: RoleRef = RoleRef()
    subjects: tuple[Subject, ...] = ()


ROLES = Resource(GROUP, "v1", "roles", "Role", True, Role)
ROLE_BINDINGS = Resource(GROUP, "v1", "rolebindings", "RoleBinding", True, RoleBinding)
CLUSTER_ROLES = Resource(GROUP, "v1", "clusterroles", "ClusterRole", False, ClusterRole)
CLUSTER_ROLE_BINDINGS = Resource(GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding", False, RoleBinding)
