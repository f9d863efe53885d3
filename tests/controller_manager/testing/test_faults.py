"""Faults of the network on watches."""

import asyncio
from collections import Counter

import pytest

from controller_manager.common.api.core import PODS
from controller_manager.common.api.errors import Expired
from controller_manager.framework import Client, TransportError
from controller_manager.testing import Cluster, FaultyNetwork


async def _outcome(cluster: Cluster) -> str:
    """Return the outcome of the first bookmark of a watch."""
    network = FaultyNetwork(lambda _: cluster.transport())
    bookmarks: list[str] = []

    def start_faults() -> None:
        network.rate = 5.0  # a fifth of it applies to a chunk

    client = Client(network.connect())
    events = client.watch(PODS, resource_version="1", timeout=3600, opened=start_faults, bookmarked=bookmarks.append)
    try:
        async with asyncio.timeout(600):
            event = await anext(events)
    except TransportError:
        return "broken"
    except Expired:
        return "expired"
    except TimeoutError:
        return "silent"
    finally:
        await events.aclose()
    assert not bookmarks
    return f"late {event.type}"


@pytest.mark.virtual
async def test_bookmarks_suffer_the_same_faults_as_events() -> None:
    async with Cluster() as cluster:
        outcomes = Counter([await _outcome(cluster) for _ in range(40)])
    assert set(outcomes) == {"broken", "expired", "silent", "late BOOKMARK"}
