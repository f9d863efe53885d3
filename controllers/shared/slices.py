"""Distributes endpoints over EndpointSlices with few writes, and computes the writes; pure (KEP-752).

The slices of a service form groups: one per address family and set of ports. A slice of a group

keeps           the endpoints that are still wanted, updated and in their order
is filled with  new endpoints if it is written anyway, the fullest slice first
takes           all new endpoints that are left, if they fit; the fullest such slice is used

New slices hold the rest. Endpoints are never moved to balance slices. A slice of a removed group is reused instead of
a new one.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from controller_manager.common.api.discovery import ENDPOINT_SLICES, Endpoint, EndpointSlice, SlicePort
from controller_manager.common.api.model import Object, ObjectMeta
from controller_manager.common.api.resource import Resource
from controller_manager.framework import controller_ref

# Identifies an endpoint: addresses, hostname, namespace and name of its target.
SliceIdentity = tuple[tuple[str, ...], str, str, str]


class SliceGroup(NamedTuple):
    """Endpoints that may share a slice."""

    family: str
    ports: frozenset[SlicePort]


Wanted = Mapping[SliceGroup, Mapping[SliceIdentity, Endpoint]]


class SliceDraft(NamedTuple):
    """The desired state of a slice that replaces `current`, or of a new slice if `current` is None."""

    current: EndpointSlice | None
    group: SliceGroup
    endpoints: tuple[Endpoint, ...]


class Arrangement(NamedTuple):
    """All desired slices, the unneeded ones, and how many endpoints are added and removed."""

    drafts: tuple[SliceDraft, ...]
    spare: tuple[EndpointSlice, ...]
    added: int
    removed: int


class SliceWrites(NamedTuple):
    """The writes to make."""

    create: tuple[EndpointSlice, ...] = ()
    update: tuple[EndpointSlice, ...] = ()
    delete: tuple[EndpointSlice, ...] = ()

    @property
    def size(self) -> int:
        """Return how many slices are changed."""
        return len(self.create) + len(self.update) + len(self.delete)


def identity(endpoint: Endpoint) -> SliceIdentity:
    """Return the identity of an endpoint within its service."""
    ref = endpoint.target_ref
    behind = (ref.namespace, ref.name) if ref else ("", "")
    return (endpoint.addresses, endpoint.hostname or "", *behind)


def group_of(slice_: EndpointSlice) -> SliceGroup:
    """Return the group of a slice."""
    return SliceGroup(slice_.address_type, frozenset(slice_.ports or ()))


def arrange(
    current: Iterable[EndpointSlice],
    wanted: Wanted,
    limit: int,
    is_due: Callable[[EndpointSlice], bool],
    placeholders: Iterable[str] = (),
) -> Arrangement:
    """Distribute the `wanted` endpoints, at most `limit` per slice. `is_due` marks slices that are written anyway.

    Each family in `placeholders` has at least one slice, which may be empty.
    """
    groups: dict[SliceGroup, list[EndpointSlice]] = defaultdict(list)
    for slice_ in sorted(current, key=lambda s: s.metadata.name):
        groups[group_of(slice_)].append(slice_)
    drafts: list[SliceDraft] = []
    spare: list[EndpointSlice] = []
    added = removed = 0
    for group, endpoints in wanted.items():
        slices = groups.pop(group, [])
        held, fresh, new = _pack(slices, endpoints, limit, is_due)
        spare += [slice_ for slice_, kept in zip(slices, held, strict=True) if not kept]
        drafts += [SliceDraft(slice_, group, tuple(kept)) for slice_, kept in zip(slices, held, strict=True) if kept]
        drafts += [SliceDraft(None, group, tuple(part)) for part in fresh]
        added += new
        removed += sum(len(s.endpoints or ()) for s in slices) + new - len(endpoints)
    for slices in groups.values():
        spare += slices
        removed += sum(len(s.endpoints or ()) for s in slices)
    served = {draft.group.family for draft in drafts}
    drafts += [SliceDraft(None, SliceGroup(family, frozenset()), ()) for family in placeholders if family not in served]
    return Arrangement(*_reuse(drafts, spare), added, removed)


def _pack(
    slices: Sequence[EndpointSlice],
    endpoints: Mapping[SliceIdentity, Endpoint],
    limit: int,
    is_due: Callable[[EndpointSlice], bool],
) -> tuple[list[list[Endpoint]], list[list[Endpoint]], int]:
    """Return the endpoints of each present slice, those of new slices, and the number of new endpoints of one group."""
    held, new = _keep(slices, endpoints, limit)
    if not new:
        return held, [], 0
    count = len(new)
    is_touched = [is_due(s) or tuple(kept) != (s.endpoints or ()) for s, kept in zip(slices, held, strict=True)]
    for index in sorted(range(len(held)), key=lambda i: -len(held[i])):
        if is_touched[index]:
            room = limit - len(held[index])
            held[index] += new[:room]
            del new[:room]
    return held, _place(new, [one for one, touched in zip(held, is_touched, strict=True) if not touched], limit), count


def _keep(
    slices: Iterable[EndpointSlice], endpoints: Mapping[SliceIdentity, Endpoint], limit: int
) -> tuple[list[list[Endpoint]], list[Endpoint]]:
    """Return the endpoints that stay in each slice, updated, and those that are in no slice, in order."""
    left = dict(endpoints)
    held: list[list[Endpoint]] = []
    for slice_ in slices:
        kept: list[Endpoint] = []
        for endpoint in slice_.endpoints or ():
            name = identity(endpoint)
            if name in left and len(kept) < limit:
                kept.append(left.pop(name))
        held.append(kept)
    return held, [left[name] for name in sorted(left)]


def _place(new: list[Endpoint], untouched: Sequence[list[Endpoint]], limit: int) -> list[list[Endpoint]]:
    """Return the endpoints of new slices. The last ones go to the fullest untouched slice in which they all fit."""
    fresh: list[list[Endpoint]] = []
    while new:
        room = limit - len(new)
        fitting = [held for held in untouched if len(held) <= room] if room > 0 else []
        if fitting:
            max(fitting, key=len).extend(new)
            break
        fresh.append(new[:limit])
        del new[:limit]
    return fresh


def _reuse(
    drafts: list[SliceDraft], spare: list[EndpointSlice]
) -> tuple[tuple[SliceDraft, ...], tuple[EndpointSlice, ...]]:
    """Reuse unneeded slices, those with the fewest endpoints first, instead of creating new ones.

    The address family of a slice is immutable.
    """
    pools: dict[str, deque[EndpointSlice]] = defaultdict(deque)
    for slice_ in sorted(spare, key=lambda s: (len(s.endpoints or ()), s.metadata.name)):
        pools[slice_.address_type].append(slice_)
    reused = []
    for draft in drafts:
        if draft.current is None and (pool := pools[draft.group.family]):
            draft = draft._replace(current=pool.popleft())
        reused.append(draft)
    return tuple(reused), tuple(slice_ for pool in pools.values() for slice_ in pool)


class Style:
    """Labels, annotations and owner of the slices of one owner.

    `owner` is of the resource `kind`. `labels` are the exact labels. `annotations` maps the present annotations to the
    desired ones. Slices that are written also get the annotations of `stamp`. A value of None removes an annotation.
    """

    def __init__(
        self,
        owner: Object,
        kind: Resource[Any],
        labels: Mapping[str, str],
        annotations: Callable[[Mapping[str, str]], Mapping[str, str]] = dict,
    ) -> None:
        self._owner = owner
        self._kind = kind
        self._labels = labels
        self._annotations = annotations

    def is_due(self, slice_: EndpointSlice) -> bool:
        """Return whether labels or annotations of a slice have to be updated."""
        meta = slice_.metadata
        now = meta.annotations or {}
        return meta.labels != self._labels or self._annotations(now) != now

    def differs(self, draft: SliceDraft) -> bool:
        """Return whether a slice has to be written."""
        current = draft.current
        return (
            current is None
            or draft.endpoints != (current.endpoints or ())
            or draft.group != group_of(current)
            or self.is_due(current)
        )

    def writes(self, arrangement: Arrangement, stamp: Callable[[], Mapping[str, str | None]]) -> SliceWrites:
        """Return the writes that produce an arrangement."""
        changed = [draft for draft in arrangement.drafts if self.differs(draft)]
        marks = stamp() if changed else {}
        return SliceWrites(
            create=tuple(self._new(draft, marks) for draft in changed if draft.current is None),
            update=tuple(self._changed(draft, draft.current, marks) for draft in changed if draft.current is not None),
            delete=arrangement.spare,
        )

    def _changed(self, draft: SliceDraft, current: EndpointSlice, stamp: Mapping[str, str | None]) -> EndpointSlice:
        annotations = _stamped(self._annotations(current.metadata.annotations or {}), stamp)
        metadata = replace(current.metadata, labels=self._labels, annotations=annotations or None)
        ports = current.ports if draft.group == group_of(current) else _in_order(draft.group.ports)
        return replace(current, metadata=metadata, endpoints=draft.endpoints, ports=ports)

    def _new(self, draft: SliceDraft, stamp: Mapping[str, str | None]) -> EndpointSlice:
        owner = self._owner.metadata
        metadata = ObjectMeta(
            generate_name=f"{owner.name}-",
            namespace=owner.namespace,
            labels=self._labels,
            annotations=_stamped(self._annotations({}), stamp) or None,
            owner_references=(controller_ref(self._kind, self._owner),),
        )
        return EndpointSlice(
            api_version=ENDPOINT_SLICES.api_version,
            kind=ENDPOINT_SLICES.kind,
            metadata=metadata,
            address_type=draft.group.family,
            endpoints=draft.endpoints,
            ports=_in_order(draft.group.ports),
        )


def _stamped(annotations: Mapping[str, str], stamp: Mapping[str, str | None]) -> dict[str, str]:
    kept = {name: value for name, value in annotations.items() if name not in stamp}
    return kept | {name: value for name, value in stamp.items() if value is not None}


def _in_order(ports: Iterable[SlicePort]) -> tuple[SlicePort, ...]:
    return tuple(sorted(ports, key=lambda p: (p.name or "", p.port or 0, p.protocol or "")))
