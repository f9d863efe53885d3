"""Gives the cluster roles that gather the rules of others those rules."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import msgspec

from controller_manager.common.api.rbac import CLUSTER_ROLES, ClusterRole, RoleRule
from controller_manager.common.api.selectors import LabelSelector
from controller_manager.common.options import Options
from controller_manager.framework.controller import (
    Change,
    Context,
    ControllerSpec,
    Informers,
    Key,
    Mapped,
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
# Decided: its rules are those of the roles that its selectors match, selector by selector, roles in the order of their
#   names, each rule once; its own count only if another has them. Where that is not what it has, it is applied, and the
#   field is taken from whoever owned it. One that gathers may be gathered by another, which is looked at in turn.


class ClusterRoleAggregationController:
    """Reconciles one role that gathers rules."""

    def __init__(self, context: Context, _: ClusterRoleAggregationOptions) -> None:
        self._client = context.client
        self._roles = context.informers.get(CLUSTER_ROLES)

    async def reconcile(self, key: Key) -> None:
        """Give role `key` the rules that it is to gather."""
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


# Comparisons of a selector with a role that take a few milliseconds.
_FEW = 5000


def gathered(role: ClusterRole, roles: Iterable[ClusterRole]) -> tuple[RoleRule, ...]:
    """Return the rules that a role gathers from others. Raises `TerminalError` for a selector that selects nothing."""
    name = role.metadata.name
    others = sorted((one for one in roles if one.metadata.name != name), key=lambda one: one.metadata.name)
    found: dict[RoleRule, None] = {}
    for selector in selectors_of(role):
        for other in others:
            if selector.matches(other.metadata.labels):
                found.update(dict.fromkeys(other.rules))
    return tuple(found)


def selectors_of(role: ClusterRole) -> Sequence[LabelSelector]:
    """Return what a role gathers. Raises `TerminalError`."""
    if role.aggregation_rule is None:
        return ()
    try:
        return [selector.selector() for selector in role.aggregation_rule.cluster_role_selectors]
    except KeyError as operator:
        raise TerminalError(f"a selector of the role has the operator {operator}, which there is not") from None


def gathering(informers: Informers, _: Change[ClusterRole]) -> Iterator[Key]:
    """The roles that may have to gather anew: there are few, and any role may be one that they gather."""
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
