"""How well a node suits a pod, as numbers from 0 to 100 of each kind, which are weighed and added up; pure.

kind                      weight  better
taints to avoid           3       fewer of those that are not tolerated, compared with the other nodes
preferred nodes           2       more weight of the terms that match, compared with the other nodes
spread                    2       fewer pods of the same kind near, compared (`spread.py`)
devices                   2       those of earlier alternatives (`devices.py`), compared
pods that are liked       2       more of them near, fewer of others, compared (`pod_affinity.py`)
least allocated           1       more CPU and memory left
balanced allocation       1       CPU and memory are used alike, more than they would be without the pod
images                    1       more of its images (by size, and by how many nodes have them) are there
"""

import math
from typing import NamedTuple

from .cluster_state import ClusterState
from .filters import intolerable_preferences
from .node_info import NodeInfo
from .requirements import Requirements

MOST = 100
TAINTS, NODES, SPREAD, PODS, DEVICES = 3, 2, 2, 2, 2
_MEBIBYTE = 1 << 20
# Minimum image size that counts, and the maximum per container.
_SMALLEST_IMAGE, _LARGEST_IMAGE = 23 * _MEBIBYTE, 1000 * _MEBIBYTE


class Suitability(NamedTuple):
    """The cached scores of a node: the final part `score`, and values to normalize over all nodes."""

    score: int
    taints: int
    preferred: int


def suitability(asked: Requirements, node: NodeInfo, state: ClusterState, *, compares: bool = False) -> Suitability:
    """Return the scores of a node that depend on it alone."""
    score = _least_allocated(asked, node) + _balanced(asked, node)
    if node.images and asked.images:
        score += _images(asked, node, state)
    return Suitability(
        score, intolerable_preferences(asked, node, compares=compares), preference(asked, node) if node.node else 0
    )


def preference(asked: Requirements, node: NodeInfo) -> int:
    """Return the weight of the matching preferred terms."""
    found, there = 0, node.node
    for weight, term in asked.preferred_nodes:
        if term is not None and there is not None and term.matches(there):
            found += weight
    return found


def _least_allocated(asked: Requirements, node: NodeInfo) -> int:
    """Return the mean free share of CPU and memory."""
    there, weight = node.allocatable, asked.weight
    found = number = 0
    if there.cpu:
        number += 1
        left = there.cpu - node.weight_cpu - weight.cpu
        found += left * MOST // there.cpu if left > 0 else 0
    if there.memory:
        number += 1
        left = there.memory - node.weight_memory - weight.memory
        found += left * MOST // there.memory if left > 0 else 0
    return found // number if number else 0


def _balanced(asked: Requirements, node: NodeInfo) -> int:
    """Return how balanced CPU and memory usage is with the pod, relative to without it."""
    there, wanted = node.allocatable, asked.requests
    if not (wanted.cpu or wanted.memory):
        return 0  # such pods go anywhere
    after = _evenness(node.cpu + wanted.cpu, there.cpu, node.memory + wanted.memory, there.memory)
    before = _evenness(node.cpu, there.cpu, node.memory, there.memory)
    return MOST // 2 + (MOST // 2 + after - before) // 2


def _evenness(cpu: int, all_cpu: int, memory: int, all_memory: int) -> int:
    if not (all_cpu and all_memory):
        return MOST
    deviation = abs(min(1.0, cpu / all_cpu) - min(1.0, memory / all_memory)) / 2
    return int((1.0 - deviation) * MOST)


def _images(asked: Requirements, node: NodeInfo, state: ClusterState) -> int:
    nodes = len(state.order) or 1
    there = (image for image in asked.images if image in node.images)
    total = sum(int(node.images[image] * (state.nodes_with_image(image) / nodes)) for image in there)
    most = _LARGEST_IMAGE * len(asked.images)
    total = max(_SMALLEST_IMAGE, min(total, most))
    return MOST * (total - _SMALLEST_IMAGE) // (most - _SMALLEST_IMAGE)


def compared(values: list[int], *, fewer: bool = False) -> list[int]:
    """Return values as percentages of the largest; with `fewer`, smaller values score higher."""
    largest = max(values, default=0)
    if largest <= 0:
        return [MOST if fewer else 0] * len(values)
    shares = [MOST * value // largest for value in values]
    return [MOST - share for share in shares] if fewer else shares


def within_range(values: list[int]) -> list[int]:
    """Return values scaled between minimum and maximum, 0 to 100; they may be negative."""
    least, largest = min(values, default=0), max(values, default=0)
    if least == largest:
        return [0] * len(values)
    return [int(MOST * ((value - least) / (largest - least))) for value in values]


def domain_weight(domains: int) -> float:
    """Return the weight of a pod for a number of domains."""
    return math.log(domains + 2)
