"""How controllers work with the cloud: calls that end, and nodes that load balancers lead to."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import TypeVar

from controller_manager.common.api.core import Node
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.base.errors import describe
from controller_manager.framework.cloud_provider import DEADLINE, CloudError, ImplementedElsewhere, RetryLater

T = TypeVar("T")

EXCLUDED = f"node.{PLATFORM_DOMAIN}/exclude-from-external-load-balancers"
TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


# How what is asked of a cloud or of the server may fail.
FAILURES = (ApiError, OSError)


async def answer_of(call: Awaitable[T]) -> T:
    """Await a call of a provider. Raises TimeoutError if it takes too long, and what providers may raise: whatever else
    one raises becomes a CloudError.
    """
    try:
        async with asyncio.timeout(DEADLINE):
            return await call
    except (OSError, ImplementedElsewhere, RetryLater):
        raise
    except Exception as error:
        raise CloudError(f"the provider raised {describe(error)}") from error


def is_included(node: Node) -> bool:
    """Return whether the labels of a node let load balancers lead to it; a value that is none excludes it."""
    labels = node.metadata.labels or {}
    return EXCLUDED not in labels or labels[EXCLUDED] in _FALSE


def backends(nodes: Iterable[Node]) -> list[Node]:
    """The nodes that load balancers lead to, by name: whether they are ready, their own health checks find out."""
    found = [
        node
        for node in nodes
        if node.metadata.deletion_timestamp is None
        and is_included(node)
        and all(taint.key != TO_BE_DELETED for taint in node.spec.taints)
    ]
    return sorted(found, key=lambda node: node.metadata.name)


def identities(nodes: Iterable[Node]) -> Mapping[str, str]:
    """The names of nodes with what the cloud calls them: of a node nothing else matters."""
    return {node.metadata.name: node.spec.provider_id for node in nodes}
