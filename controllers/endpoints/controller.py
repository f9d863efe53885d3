"""Keeps, for every service with a selector, the Endpoints object that lists the addresses of its pods."""

import contextlib
from collections.abc import Iterator

from controller_manager.api.core import (
    ENDPOINTS,
    PODS,
    SERVICES,
    Endpoints,
)
from controller_manager.api.errors import ApiError, NotFound
from controller_manager.controller import (
    Change,
    Context,
    ControllerSpec,
    For,
    Informers,
    Key,
    Mapped,
    PolicyRule,
    key_of,
    try_write,
)
from controller_manager.options import Duration, Int32, Options, flag

from .._pods import LEADER, PODS_BY_LABEL, SERVICES_BY_SELECTOR, is_gone, pods_of, services_served_by
from .desired import MANAGED_BY, MANAGER, desired


class EndpointsOptions(Options):
    """Endpoints controller"""

    concurrent_endpoint_syncs: Int32 = flag(5, "Services whose endpoints are computed at the same time.", minimum=1)
    endpoint_updates_batch_period: Duration = flag(
        "0s", "How long pod changes are gathered before the endpoints are updated; 0 updates at once.", minimum=0
    )


# Observed: the service, the pods its selector matches, the Endpoints of the same name.
# Decided, by the service:                              Done:
#   absent                                              delete the Endpoints
#   of type ExternalName, or without a selector         nothing: somebody else's
#   else, the wanted Endpoints equal those there        nothing
#   else                                                create or update


class EndpointsController:
    """Reconciles one service, named by the key."""

    def __init__(self, context: Context, options: EndpointsOptions) -> None:
        self._client = context.client
        self._events = context.events
        self._services = context.informers.get(SERVICES)
        self._pods = context.informers.get(PODS)
        self._endpoints = context.informers.get(ENDPOINTS)

    async def reconcile(self, key: Key) -> None:
        """Bring the Endpoints of service `key` up to date."""
        service = self._services.get(key)
        current = self._endpoints.get(key)
        if service is None:
            await self._delete(current)
        elif service.spec.type != "ExternalName" and service.spec.selector:
            pods = pods_of(self._pods, service)
            wanted = desired(service, pods, current)
            if wanted is not None:
                await self._write(wanted, new=current is None)

    async def _delete(self, current: Endpoints | None) -> None:
        if current is not None and await is_gone(self._client, SERVICES, key_of(current)):
            with contextlib.suppress(NotFound):
                await self._client.delete(ENDPOINTS, key_of(current), uid=current.metadata.uid)

    async def _write(self, wanted: Endpoints, *, new: bool) -> None:
        verb = "create" if new else "update"
        write = self._client.create if new else self._client.update

        def report(error: ApiError) -> None:
            message = f"Failed to {verb} the endpoints of {key_of(wanted)}: {error}"
            self._events.warning(wanted, f"FailedTo{verb.capitalize()}Endpoint", message)

        await try_write(write(ENDPOINTS, wanted), report)


def service_of_endpoints(informers: Informers, change: Change[Endpoints]) -> Iterator[Key]:
    """The service of Endpoints that somebody changed: if it was a leader, what it decided may rest on an older state.

    Where there is no such service, they are looked at when they go, when they are ours (a write whose answer was lost
    may arrive late), and at the start, when those of others are taken for leftovers too.
    """
    found_at_start = change.initial and change.before is None and not _is_election(change.object)
    looked_at = change.after is None or found_at_start or _is_ours(change.after)
    if looked_at or informers.get(SERVICES).get(change.key) is not None:
        yield change.key


SPECS = (
    ControllerSpec(
        name="endpoints-controller",
        queue="endpoint",
        aliases=("endpoint",),
        service_account="endpoint-controller",
        reporter="endpoint-controller",
        reconciler=EndpointsController,
        options=EndpointsOptions,
        workers=lambda options: options.concurrent_endpoint_syncs,
        watches=(
            For(SERVICES, indexes=SERVICES_BY_SELECTOR),
            Mapped(
                PODS,
                services_served_by,
                indexes=PODS_BY_LABEL,
                delay=lambda options: options.endpoint_updates_batch_period,
            ),
            Mapped(ENDPOINTS, service_of_endpoints, echoes=False),
        ),
        rbac=(
            PolicyRule(groups=("",), resources=("services", "pods"), verbs=("get", "list", "watch")),
            PolicyRule(
                groups=("",), resources=("endpoints",), verbs=("get", "list", "watch", "create", "update", "delete")
            ),
            PolicyRule(groups=("",), resources=("endpoints/restricted",), verbs=("create",)),
        ),
    ),
)


def _is_election(endpoints: Endpoints) -> bool:
    """Return whether these are the lock of an older kind of leader election, which has no service."""
    return LEADER in (endpoints.metadata.annotations or {})


def _is_ours(endpoints: Endpoints) -> bool:
    return (endpoints.metadata.labels or {}).get(MANAGED_BY) == MANAGER
