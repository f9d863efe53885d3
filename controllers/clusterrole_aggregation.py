"""Aggregates the rules of cluster roles into roles with an aggregation rule."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import msgspec

from controller_manager.common.api.rbac import CLUSTER_ROLES, ClusterRole, RoleRule
from controller_manager.common.api.selectors import LabelSelector
from controller_manager.framework import (
    Change,
    Context,
    ControllerSpec,
    Informers,
    Key,
    Mapped,
    Options,
    PolicyRule,
    TerminalError,
    key_of,
)

MANAGER = "clusterrole-aggregation-controller"
WORKERS = 5
_GATHERING = "gathering"


class ClusterRoleAggregationOptions(Options):
    """Cluster role aggregation controller"""


# Observed: a role with an aggregation rule, and all other roles.
# Decided: its rules are those of the matching roles, selector by selector, roles by name, each rule once. Its own rules
#   count only if another role has them. A difference is applied by force. Aggregated roles may be aggregated by others,
#   which are reconciled in turn.


class ClusterRoleAggregationController:
    """Reconciles roles with an aggregation rule."""

    def __init__(self, context: Context, _: ClusterRoleAggregationOptions) -> None:
        self._client = context.client
        self._roles = context.informers.get(CLUSTER_ROLES)

    async def reconcile(self, key: Key) -> None:
        """Update the rules of role `key`."""
        role = self._roles.get(key)
        if role is None or role.aggregation_rule is None:
            return
        roles = self._roles.list()
        comparisons = len(role.aggregation_rule.cluster_role_selectors) * len(roles)
        step = partial(gathered, role, roles)
        wanted = step() if comparisons <= _FEW else await self._client.worker.run(step)
        if wanted != role.rules:
            rules = msgspec.to_builtins(wanted)
            await self._client.apply(CLUSTER_ROLES, key, {"rules": rules}, MANAGER, uid=role.metadata.uid)


# Number of selector comparisons that take a few milliseconds.
_FEW = 5000


def gathered(role: ClusterRole, roles: Iterable[ClusterRole]) -> tuple[RoleRule, ...]:
    """Return the aggregated rules of a role. Raises `TerminalError` for an invalid selector."""
    name = role.metadata.name
    others = sorted((one for one in roles if one.metadata.name != name), key=lambda one: one.metadata.name)
    found: dict[RoleRule, None] = {}
    for selector in selectors_of(role):
        for other in others:
            if selector.matches(other.metadata.labels):
                found.update(dict.fromkeys(other.rules))
    return tuple(found)


def selectors_of(role: ClusterRole) -> Sequence[LabelSelector]:
    """Return the selectors of a role. Raises `TerminalError`."""
    if role.aggregation_rule is None:
        return ()
    try:
        return [selector.selector() for selector in role.aggregation_rule.cluster_role_selectors]
    except KeyError as operator:
        raise TerminalError(f"a selector of the role has the operator {operator}, which there is not") from None


def gathering(informers: Informers, _: Change[ClusterRole]) -> Iterator[Key]:
    """Yield all roles with an aggregation rule. They are few, and any role may match them."""
    return map(key_of, informers.get(CLUSTER_ROLES).by_index(_GATHERING, _GATHERING))


def _gathers(role: ClusterRole) -> tuple[str, ...]:
    return (_GATHERING,) if role.aggregation_rule is not None else ()


SPECS = (
    ControllerSpec(
        name=MANAGER,
        queue="ClusterRoleAggregator",
        aliases=("clusterrole-aggregation",),
        reconciler=ClusterRoleAggregationController,
        options=ClusterRoleAggregationOptions,
        workers=lambda _: WORKERS,
        watches=(Mapped(CLUSTER_ROLES, gathering, indexes={_GATHERING: _gathers}),),
        rbac=(
            PolicyRule(
                groups=(CLUSTER_ROLES.group,),
                resources=("clusterroles",),
                verbs=("escalate", "get", "list", "watch", "patch"),
            ),
        ),
    ),
)
