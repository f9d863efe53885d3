"""What controllers that keep something in every namespace have in common."""

from collections.abc import Iterable
from typing import Any

from controller_manager.api.core import Namespace
from controller_manager.api.errors import ApiError
from controller_manager.controller import Change, Informers, Key


def takes_content(namespace: Namespace | None) -> bool:
    """Whether something may be created in it: it is there, and not being deleted."""
    return (
        namespace is not None
        and namespace.metadata.deletion_timestamp is None
        and namespace.status.phase != "Terminating"
    )


def is_ending(error: ApiError) -> bool:
    """Whether a write was refused because its namespace is gone or being deleted."""
    causes = error.details.causes if error.details is not None else ()
    return error.code == 404 or any(cause.reason == "NamespaceTerminating" for cause in causes)


def namespace_of(_: Informers, change: Change[Any]) -> Iterable[Key]:
    """The namespace of an object that changed."""
    return (Key("", change.key.namespace),)
