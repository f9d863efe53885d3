"""Flags of controllers that do not exist yet: read and checked like all others, and without effect.

Whoever writes one of these controllers moves its group beside it.
"""

from controller_manager.app.unimplemented import accounts, network, nodes, storage, workloads
from controller_manager.options import Check, Options

AWAITED: tuple[type[Options], ...] = (
    *accounts.GROUPS,
    *network.GROUPS,
    *nodes.GROUPS,
    *storage.GROUPS,
    *workloads.GROUPS,
)
CHECKS: tuple[Check, ...] = (network.ranges_fit,)
