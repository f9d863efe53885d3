"""Reject values of disabled features, unless the stored object already has such a value."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.combine import KindRules
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.tree import Tree

Path = tuple[str, ...]
_POD = ("spec",)
_TEMPLATE = ("spec", "template", "spec")
POD_SPECS: Mapping[str, Path] = MappingProxyType({
    "pods": _POD,
    "podtemplates": ("template", "spec"),
    "replicationcontrollers": _TEMPLATE,
    **dict.fromkeys(("replicasets.apps", "deployments.apps", "statefulsets.apps", "daemonsets.apps"), _TEMPLATE),
    "jobs.batch": _TEMPLATE,
    "cronjobs.batch": ("spec", "jobTemplate", *_TEMPLATE),
})  # fmt: skip
"""The path of the pod spec by `plural.group`."""

_POLICY = ("securityContext", "seLinuxChangePolicy")
_MOUNT, _RECURSIVE = "MountOption", "Recursive"


def without_feature(
    rules: KindRules, part: str, refuse: Callable[[Tree, ErrorList], None], is_used: Callable[[Tree], bool]
) -> KindRules:
    """Return rules that also `refuse` values in a top-level field, unless the stored object uses them."""

    def on_create(new: Any, at: FieldPath, errors: ErrorList) -> None:
        rules.on_create(new, at, errors)
        refuse(new, errors)

    def change(new: Tree, old: Tree, errors: ErrorList) -> None:
        rules.change(new, old, errors)
        if new.get(part) is not old.get(part) and not is_used(old):
            refuse(new, errors)

    return replace(rules, on_create=on_create, change=change)


def without_mount_policy(rules: KindRules, spec: Path) -> KindRules:
    """Return rules that reject the SELinux change policy MountOption, unless the stored pod spec has a policy."""
    path = (*spec, *_POLICY)

    def refuse(tree: Tree, errors: ErrorList) -> None:
        if get_in(tree, path) == _MOUNT:
            errors.unsupported(place(".".join(path)), _MOUNT, (_RECURSIVE,))

    return without_feature(rules, path[0], refuse, lambda old: get_in(old, path) is not None)
