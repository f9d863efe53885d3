"""Helpers of the controllers that use a cloud provider: calls with a deadline, and the backends of load balancers."""

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


# The exceptions that calls of a cloud provider or of the API server may raise.
FAILURES = (ApiError, OSError)


async def answer_of(call: Awaitable[T]) -> T:
    """Await a call of a provider. Raises TimeoutError after the deadline.

    OSError, ImplementedElsewhere and RetryLater pass through. Any other exception becomes a CloudError.
    """
    try:
        async with asyncio.timeout(DEADLINE):
            return await call
    except (OSError, ImplementedElsewhere, RetryLater):
        raise
    except Exception as error:
        raise CloudError(f"the provider raised {describe(error)}") from error


def is_included(node: Node) -> bool:
    """Return whether load balancers may send traffic to a node, by its labels. A label value that is not a boolean
    excludes it.
    """
    labels = node.metadata.labels or {}
    return EXCLUDED not in labels or labels[EXCLUDED] in _FALSE


def backends(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes that load balancers may send traffic to, by name.

    Readiness is left to the health checks of the load balancer.
    """
    found = [
        node
        for node in nodes
        if node.metadata.deletion_timestamp is None
        and is_included(node)
        and all(taint.key != TO_BE_DELETED for taint in node.spec.taints)
    ]
    return sorted(found, key=lambda node: node.metadata.name)


def identities(nodes: Iterable[Node]) -> Mapping[str, str]:
    """Return the provider IDs of nodes by node name: the only facts of a node that matter here."""
    return {node.metadata.name: node.spec.provider_id for node in nodes}
