"""Namespaces, for controllers that maintain an object in each of them."""

from collections.abc import Iterable
from typing import Any

from controller_manager.common.api.core import Namespace
from controller_manager.framework import Change, Informers, Key


def takes_content(namespace: Namespace | None) -> bool:
    """Return whether objects can be created in a namespace: it exists and is not being deleted."""
    return (
        namespace is not None
        and namespace.metadata.deletion_timestamp is None
        and namespace.status.phase != "Terminating"
    )


def namespace_of(_: Informers, change: Change[Any]) -> Iterable[Key]:
    """Return the namespace of an object that changed."""
    return (Key("", change.key.namespace),)
