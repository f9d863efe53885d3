"""Computes the usage of resource quotas and writes their status."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from controller_manager.common.api.core import PODS, RESOURCE_QUOTAS, SERVICES, ResourceQuota, ResourceQuotaStatus
from controller_manager.common.api.errors import ApiError, NotFound
from controller_manager.common.api.pod_resources import Amounts, parsed, plus
from controller_manager.common.api.quantity import Quantity, parse
from controller_manager.common.api.quota import QuotaScope
from controller_manager.common.base.clock import monotonic, sleep_for_housekeeping, utc_now
from controller_manager.common.base.fair_loop import give_way
from controller_manager.common.base.tasks import all_of
from controller_manager.framework import (
    Add,
    Change,
    Context,
    ControllerSpec,
    Duration,
    Informers,
    Int32,
    Key,
    Mapped,
    Options,
    PolicyRule,
    Priority,
    Requeue,
    TransportError,
    flag,
    key_of,
    update_status,
)

from .monitors import CLAIMS, Amount, Monitor, Monitors

# Seconds between two discoveries, and for how long a result is shared with other controllers.
REDISCOVERY, SHARED = 10.0, 5.0
# Seconds in which changes are batched. Deletions free quota and come first. Creations are counted by the API server
# already, except those before the first count of the quota.
AFTER_LESS, AFTER_MORE = 0.1, 1.0
# Seconds until resources are counted again that could not be read.
UNREAD = 1.0
_ZERO = parse("0")


class ResourceQuotaOptions(Options):
    """Resource quota controller"""

    concurrent_resource_quota_syncs: Int32 = flag(5, "Resource quotas counted at the same time.", minimum=1)
    resource_quota_sync_period: Duration = flag("5m", "How often everything is counted again.", minimum=0.001)


# Observed: the quota; all objects of its namespace that count for a limited resource, of the kinds in discovery:
# metadata only, except pods, services and claims.
#   observed                                           counted after
#   quota is new, or has other limits                  at once
#   an object was deleted, or counts differently       0.1 s
#   an object was created                              1 s
#   a kind was added that counts for the quota         at once
#   a pod should be gone by now                        at once
#   the resync period has passed                       at once
#   result                                             done
#   equal to the status                                nothing
#   more, or first count of a resource                 write the status
#   less than the status, or first count, and the      count again from lists of the server; otherwise objects could
#   watch may lag behind the quota                     be created beyond the limit
#   some objects cannot be read                        write the rest; limits with unknown usage are not shown;
#                                                      count again after 1 s
#   no kind counts for the resource                    keep it; zero, if the kind existed before


class Count(NamedTuple):
    """The usage, except unread resources.

    `until` is when it may decrease by itself. `is_complete` is true if discovery returned all kinds.
    """

    used: Amounts
    unread: frozenset[str] = frozenset()
    until: datetime | None = None
    is_complete: bool = True


class ResourceQuotaController:
    """Reconciles quotas."""

    def __init__(self, context: Context, options: ResourceQuotaOptions) -> None:
        self._client = context.client
        self._log = context.log
        self._period = float(options.resource_quota_sync_period)
        self._quotas = context.informers.get(RESOURCE_QUOTAS)
        self._monitors = Monitors(context.informers, context.log, self._changed)
        self._add: Add | None = None

    async def run(self, add: Add) -> None:
        """Watch all counted kinds and enqueue quotas, until cancelled."""
        self._add = add
        try:
            await all_of(self._rediscover(add), self._count_again(add))
        finally:
            self._add = None
            self._monitors.stop()

    async def reconcile(self, key: Key) -> Requeue | None:
        """Update the usage in the status of quota `key`."""
        quota = self._quotas.get(key)
        if quota is None or self._add is None:
            return None
        now = utc_now()
        count = await self._count(quota, now)
        status = await self._client.worker.run_if_large(len(quota.raw), partial(decide, quota, count))
        if status != quota.status:
            with suppress(NotFound):
                await update_status(self._client, RESOURCE_QUOTAS, quota, replace(quota, status=status))
        if count.unread:
            return Requeue(UNREAD)
        return None if count.until is None else Requeue((count.until - now).total_seconds() + 1.0)

    async def _count(self, quota: ResourceQuota, now: datetime) -> Count:
        """Return the usage of a quota."""
        hard, before = quota.spec.hard or {}, parsed(quota.status.used)
        used: Amounts = {}
        unread: set[str] = set()
        until: datetime | None = None
        for monitor, names in self._monitors.counting(hard):
            await give_way()
            if not names:
                continue
            amount = await self._amount(monitor, quota, names, before, now)
            if amount is None:
                unread.update(names)
                continue
            used = plus(used, {name: amount.used.get(name, _ZERO) for name in names})
            until = min(filter(None, (until, amount.until)), default=None)
        return Count(used, frozenset(unread), until, self._monitors.is_complete)

    async def _amount(
        self, monitor: Monitor, quota: ResourceQuota, names: Sequence[str], before: Amounts, now: datetime
    ) -> Amount | None:
        """Return the usage by the objects of a resource, or None if they cannot be read."""
        informer, namespace, scopes = monitor.informer, quota.metadata.namespace, _scopes(quota)
        if not informer.is_synced:
            return None
        amount = self._monitors.amount(monitor, informer.list(namespace), names, scopes, now)
        if informer.has_reached(quota.metadata.resource_version) or not _is_less(amount.used, before, names):
            return amount
        try:
            objects = (await self._client.list(monitor.resource, namespace)).items
        except (ApiError, TransportError) as error:
            self._log.warning("can't count objects", resource=monitor.resource.name, error=str(error))
            return None
        return self._monitors.amount(monitor, objects, names, scopes, now)

    def _changed(self, monitor: Monitor, change: Change[Any]) -> None:
        """Enqueue quotas after an object was created, deleted, or counts differently."""
        quotas = self._quotas.list(change.object.metadata.namespace)
        if quotas:
            after = AFTER_MORE if change.before is None else AFTER_LESS
            self._order(quotas, monitor, f"{monitor.resource.name} {change.key} changed", after=after)

    def _order(self, quotas: Iterable[ResourceQuota], monitor: Monitor, cause: str, *, after: float = 0.0) -> None:
        """Enqueue the quotas that objects of a resource count for."""
        for quota in quotas:
            if self._add is not None and any(map(monitor.evaluator.counts, quota.spec.hard or ())):
                self._add(key_of(quota), cause, after=after)

    async def _rediscover(self, add: Add) -> None:
        await self._monitors.refresh(monotonic() - SHARED)
        for quota in self._quotas.list():
            add(key_of(quota), "found at the start", Priority.LOW)
        while True:
            await sleep_for_housekeeping(REDISCOVERY)
            was_complete = self._monitors.is_complete
            for monitor in await self._monitors.refresh(monotonic() - SHARED):
                self._order(self._quotas.list(), monitor, f"{monitor.resource.name} can be counted")
            if self._monitors.is_complete and not was_complete:
                for quota in self._quotas.list():
                    add(key_of(quota), "all resources are known", Priority.LOW)

    async def _count_again(self, add: Add) -> None:
        while True:
            await asyncio.sleep(self._period)
            for quota in self._quotas.list():
                add(key_of(quota), "counted again", Priority.LOW)


def decide(quota: ResourceQuota, count: Count) -> ResourceQuotaStatus:
    """Return the new status of a quota, or the present one if nothing changes.

    A limit is shown only together with its usage, since the API server rejects requests for a limit without one. A
    limit without any kind to count is shown without usage.
    """
    limits, before, shown = parsed(quota.spec.hard), parsed(quota.status.used), parsed(quota.status.hard)
    hard: dict[str, Quantity] = {}
    used: dict[str, Quantity] = {}
    for name, limit in limits.items():
        may_be_counted = name in count.unread or not count.is_complete
        if name in count.used and name not in count.unread:
            used[name] = count.used[name]
        elif name in before:
            used[name] = before[name] if may_be_counted else _ZERO
        if name in used or name in shown or not may_be_counted:
            hard[name] = limit
    status = quota.status
    is_written = status.used is not None or not hard
    if is_written and _numbers(used) == _numbers(before) and _numbers(hard) == _numbers(shown):
        return status
    return ResourceQuotaStatus(hard=_texts(hard), used=_texts(used))


def _is_less(used: Amounts, before: Amounts, names: Iterable[str]) -> bool:
    """Return whether less is used than the status says, or a resource is counted for the first time."""
    return any(name not in before or used.get(name, _ZERO).number < before[name].number for name in names)


def _scopes(quota: ResourceQuota) -> list[QuotaScope]:
    selector = quota.spec.scope_selector
    selected = selector.match_expressions if selector is not None else ()
    return [
        *map(QuotaScope, quota.spec.scopes),
        *(QuotaScope(one.scope_name, one.operator, one.values) for one in selected),
    ]


def _numbers(amounts: Amounts) -> Mapping[str, Decimal]:
    return {name: amount.number for name, amount in amounts.items()}


def _texts(amounts: Amounts) -> Mapping[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def _of_quota(_: Informers, change: Change[ResourceQuota]) -> Iterator[Key]:
    """Yield a quota with new limits, or with limits that were not counted. Changes of usage alone are ignored."""
    before, after = change.before, change.after
    if after is None:
        return
    is_unsaid = after.spec.hard != after.status.hard
    is_other = before is not None and before.spec.hard != after.spec.hard
    is_lost = before is not None and bool(set(before.status.used or ()) - set(after.status.used or ()))
    if before is None or change.initial or is_unsaid or is_other or is_lost:
        yield change.key


SPECS = (
    ControllerSpec(
        name="resourcequota-controller",
        queue="resourcequota_primary",
        aliases=("resourcequota",),
        reconciler=ResourceQuotaController,
        options=ResourceQuotaOptions,
        workers=lambda options: options.concurrent_resource_quota_syncs,
        watches=(Mapped(RESOURCE_QUOTAS, _of_quota), Mapped(PODS), Mapped(SERVICES), Mapped(CLAIMS)),
        rbac=(
            PolicyRule(groups=("*",), resources=("*",), verbs=("list", "watch")),
            PolicyRule(groups=("",), resources=("resourcequotas/status",), verbs=("update",)),
        ),
    ),
)
