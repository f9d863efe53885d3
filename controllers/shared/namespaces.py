"""Namespaces, for controllers that keep something in every one."""

from collections.abc import Iterable
from typing import Any

from controller_manager.common.api.core import Namespace
from controller_manager.framework.controller import Change, Informers, Key


def takes_content(namespace: Namespace | None) -> bool:
    """Return whether something may be created in it: it is there, and not being deleted."""
    return (
        namespace is not None
        and namespace.metadata.deletion_timestamp is None
        and namespace.status.phase != "Terminating"
    )


def namespace_of(_: Informers, change: Change[Any]) -> Iterable[Key]:
    """The namespace of an object that changed."""
    return (Key("", change.key.namespace),)
