"""Pods as the checks of the Pod Security Standards see them, and the words in which they tell of violations."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from controller_manager.common.api.tree import Tree

_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
NOTHING: Mapping[str, Any] = {}


class Container(NamedTuple):
    """A container of any sort, and its security context (empty without one)."""

    name: str
    tree: Tree
    security: Mapping[str, Any]


class CheckedPod(NamedTuple):
    """What checks look at: the security context is empty without one. The `fields` are the names of all fields of the
    spec, of containers and of security contexts, and `annotations` if it has any.
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
        """Return whether it says that it runs on Windows, where some fields cannot be set."""
        return bool((self.spec.get("os") or NOTHING).get("name") == "windows")

    @property
    def has_own_users(self) -> bool:
        """Return whether it runs in a user namespace of its own (KEP-127)."""
        return self.spec.get("hostUsers") is False


class Violation(NamedTuple):
    """What a pod may not do: in general, and what of it in this pod."""

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
    """Return names with what they are: `containers "a", "b"`."""
    return f"{plural(word, len(values))} {quoted(values)}"


def setters(by_pod: bool, containers: Collection[str]) -> str:
    """Return who sets something: the pod, containers, or both; empty for nobody."""
    told = ["pod"] if by_pod else []
    if containers:
        told.append(named("container", containers))
    return " and ".join(told)


def uses(names: Sequence[str]) -> str:
    return "uses" if len(names) == 1 else "use"
