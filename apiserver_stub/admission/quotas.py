"""The usual plug-in ResourceQuota: what a write adds is noted in the quotas of its namespace before it is made.

| the quota, as its status says                             | a write it is meant for                              |
|-----------------------------------------------------------|------------------------------------------------------|
| limits nothing the object counts for                      | passes                                               |
| limits what a container of the pod does not say           | is refused (cpu and memory only)                     |
| limits what has not been counted yet                      | is refused until the controller has counted          |
| would be exceeded by what the write adds                  | is refused                                           |
| holds it                                                  | is added to what is used, before it is made          |

What a write takes away is counted by the controller. A write that fails afterwards stays counted until it counts again.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial

import orjson

from apiserver_stub.admission.chain import Attributes
from apiserver_stub.admission.quota_usage import Usage, in_scope, is_counted, is_terminating, unsaid, usage
from apiserver_stub.api_request import Tree
from apiserver_stub.kinds.trees import get_in, put_in
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.api.errors import NotFound, forbidden
from controller_manager.api.quantity import Quantity, add, parse

QUOTAS = "resourcequotas"
_NOT_COUNTED = frozenset({"events", "events.events.k8s.io"})

Update = Callable[[str, str, Callable[[Tree], Tree]], Awaitable[None]]
"""Writes what a function makes of the quota of a namespace and name, from its newest state. Raises `NotFound`, and what
the function raises.
"""


class ResourceQuotas:
    """A validating plugin of what is created and of what may grow: the last one, since it writes quotas."""

    def __init__(self, store: WatchCache, update: Update) -> None:
        self._store = store
        self._update = update

    async def validate(self, attributes: Attributes) -> None:
        """Note what a create or an update adds. Raises `Forbidden` for what does not fit."""
        if not self._store.count(QUOTAS) or not _concerns(attributes):
            return
        rows = self._store.snapshot(QUOTAS).items(prefix=f"{attributes.namespace}/")
        names = [row.name for row in rows if charged(orjson.loads(row.data), attributes) is not None]
        if attributes.dry_run:
            return
        for name in names:
            with suppress(NotFound):  # which limits nothing any more
                await self._update(attributes.namespace, name, partial(_charge, attributes))


def _concerns(attributes: Attributes) -> bool:
    """Return whether quotas have a say in a write at all."""
    kind, old = attributes.kind, attributes.old_object
    if not attributes.namespace or kind.name in _NOT_COUNTED or kind.storage in _NOT_COUNTED:
        return False
    if old is None or kind.name != "pods" or attributes.subresource:
        return True
    return is_terminating(attributes.tree) != is_terminating(old)


def _charge(attributes: Attributes, quota: Tree) -> Tree:
    used = charged(quota, attributes)
    if used is not None:
        put_in(quota, ("status", "used"), used)
    return quota


def charged(quota: Tree, attributes: Attributes) -> Mapping[str, str] | None:
    """Return what is used of a quota once the write is made; None if that does not change. Raises `Forbidden`."""
    kind, tree = attributes.kind, attributes.tree
    hard = get_in(quota, ("status", "hard")) or {}
    names = [name for name in hard if is_counted(kind, name)]
    if not names or not in_scope(kind, tree, quota.get("spec") or {}):
        return None
    quota_name, used = quota["metadata"]["name"], get_in(quota, ("status", "used")) or {}
    if missing := unsaid(kind, tree, names):
        raise _refused(attributes, f"failed quota: {quota_name}: every container must say {'; '.join(missing)}")
    if unknown := sorted(name for name in names if name not in used):
        raise _refused(attributes, f"status unknown for quota: {quota_name}, resources: {','.join(unknown)}")
    added = {name: amount for name, amount in _added(quota, attributes).items() if name in hard}
    after = {name: add(parse(used[name]), amount) for name, amount in added.items()}
    if over := sorted(name for name, amount in after.items() if amount.number > parse(hard[name]).number):
        requested = {name: str(added[name]) for name in over}
        told = ((word, _listed(over, of)) for word, of in (("requested", requested), ("used", used), ("limited", hard)))
        raise _refused(
            attributes, f"exceeded quota: {quota_name}, {', '.join(f'{word}: {what}' for word, what in told)}"
        )
    return {**used, **{name: str(amount) for name, amount in after.items()}} if after else None


def _added(quota: Tree, attributes: Attributes) -> Usage:
    """Return what the write counts for beyond what its object did before."""
    kind, old = attributes.kind, attributes.old_object
    new = usage(kind, attributes.tree)
    counted = old is not None and in_scope(kind, old, quota.get("spec") or {})
    before = usage(kind, old) if counted and old is not None else {}
    grown = {name: _less(amount, before.get(name)) for name, amount in new.items()}
    return {name: amount for name, amount in grown.items() if amount.number > 0}


def _less(amount: Quantity, before: Quantity | None) -> Quantity:
    return amount if before is None else amount._replace(number=amount.number - before.number)


def _listed(names: list[str], of: Mapping[str, str]) -> str:
    return ",".join(f"{name}={of[name]}" for name in names)


def _refused(attributes: Attributes, why: str) -> Exception:
    return forbidden(attributes.kind.group, attributes.kind.plural, attributes.name, why)
