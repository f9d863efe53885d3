"""Pods as seen by the checks of the Pod Security Standards, and the texts of violations."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from controller_manager.common.api.tree import Tree

_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
NOTHING: Mapping[str, Any] = {}


class Container(NamedTuple):
    """A container of any type and its security context (empty if not set)."""

    name: str
    tree: Tree
    security: Mapping[str, Any]


class CheckedPod(NamedTuple):
    """The input of checks: the security context is empty if it is not set. `fields` are the names of all fields set in
    the spec, in containers and in security contexts, and `annotations` if there are any.
    """

    annotations: Mapping[str, str]
    spec: Mapping[str, Any]
    security: Mapping[str, Any]
    containers: Sequence[Container]
    fields: Collection[str]

    @classmethod
    def of(cls, tree: Tree) -> "CheckedPod":
        """Return the pod in an object, or in a template."""
        spec = tree.get("spec") or NOTHING
        whole = spec.get("securityContext") or NOTHING
        annotations = (tree.get("metadata") or NOTHING).get("annotations") or NOTHING
        fields = {*spec, *whole}
        if annotations:
            fields.add("annotations")
        containers = []
        for field in _CONTAINERS:
            for one in spec.get(field) or ():
                security = one.get("securityContext") or NOTHING
                fields.update(one, security)
                containers.append(Container(one.get("name", ""), one, security))
        return cls(annotations, spec, whole, containers, fields)

    @property
    def is_windows(self) -> bool:
        """Return whether the pod OS is Windows, where some fields cannot be set."""
        return bool((self.spec.get("os") or NOTHING).get("name") == "windows")

    @property
    def has_own_users(self) -> bool:
        """Return whether the pod runs in a user namespace (KEP-127)."""
        return self.spec.get("hostUsers") is False


class Violation(NamedTuple):
    """A violation: the rule, and the details of the pod."""

    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


Look = Callable[[CheckedPod], Violation | None]


def plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def quoted(values: Collection[str]) -> str:
    return ", ".join([f'"{value}"' for value in values])


def named(word: str, values: Collection[str]) -> str:
    """Return names with their noun: `containers "a", "b"`."""
    return f"{plural(word, len(values))} {quoted(values)}"


def setters(by_pod: bool, containers: Collection[str]) -> str:
    """Return what sets a field: the pod, containers, or both; an empty string for neither."""
    names = ["pod"] if by_pod else []
    if containers:
        names.append(named("container", containers))
    return " and ".join(names)


def uses(names: Sequence[str]) -> str:
    return "uses" if len(names) == 1 else "use"
