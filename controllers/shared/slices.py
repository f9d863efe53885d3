"""Cuts endpoints into slices so that few slices are written, and finds what is to be written; pure (KEP-752).

The slices of one service fall into groups: one for each family of addresses and each set of ports. A slice of a group

    keeps     the endpoints that are still wanted, as they are wanted now, in their order
    is filled with new endpoints if it is written anyway, the fullest first
    takes in  all new endpoints that are left, if they fit; of several such slices the one that is full then

and new slices hold the rest. Endpoints are never moved to even things out. A slice whose group is gone becomes one that
would have to be made.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from controller_manager.common.api.discovery import ENDPOINT_SLICES, Endpoint, EndpointSlice, SlicePort
from controller_manager.common.api.model import Object, ObjectMeta
from controller_manager.common.api.resource import Resource
from controller_manager.framework.controller import controller_ref

# What tells endpoints apart: addresses, hostname, namespace and name of what is behind them.
SliceIdentity = tuple[tuple[str, ...], str, str, str]


class SliceGroup(NamedTuple):
    """Endpoints that may share a slice."""

    family: str
    ports: frozenset[SlicePort]


Wanted = Mapping[SliceGroup, Mapping[SliceIdentity, Endpoint]]


class SliceDraft(NamedTuple):
    """A slice as it should be, in the place of `current`, or to be made if that is None."""

    current: EndpointSlice | None
    group: SliceGroup
    endpoints: tuple[Endpoint, ...]


class Arrangement(NamedTuple):
    """All slices there should be, those that are not needed, and how many endpoints that adds and removes."""

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
    """Return what tells this endpoint apart from others."""
    ref = endpoint.target_ref
    behind = (ref.namespace, ref.name) if ref else ("", "")
    return (endpoint.addresses, endpoint.hostname or "", *behind)


def group_of(slice_: EndpointSlice) -> SliceGroup:
    """The group that a slice is of."""
    return SliceGroup(slice_.address_type, frozenset(slice_.ports or ()))


def arrange(
    current: Iterable[EndpointSlice],
    wanted: Wanted,
    limit: int,
    is_due: Callable[[EndpointSlice], bool],
    placeholders: Iterable[str] = (),
) -> Arrangement:
    """Place the `wanted` endpoints, at most `limit` in a slice; `is_due` says which slices are written anyway.

    Of the families in `placeholders` there is always a slice, if need be an empty one.
    """
    groups: dict[SliceGroup, list[EndpointSlice]] = defaultdict(list)
    for slice_ in sorted(current, key=lambda s: s.metadata.name):
        groups[group_of(slice_)].append(slice_)
    drafts: list[SliceDraft] = []
    spare: list[EndpointSlice] = []
    added = removed = 0
    for group, endpoints in wanted.items():
        slices = groups.pop(group, [])
        held, made, new = _pack(slices, endpoints, limit, is_due)
        spare += [slice_ for slice_, kept in zip(slices, held, strict=True) if not kept]
        drafts += [SliceDraft(slice_, group, tuple(kept)) for slice_, kept in zip(slices, held, strict=True) if kept]
        drafts += [SliceDraft(None, group, tuple(part)) for part in made]
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
    """Return what each of the slices of one group holds then, what new ones hold, and how many endpoints are new."""
    left = dict(endpoints)
    held: list[list[Endpoint]] = []
    for slice_ in slices:
        kept: list[Endpoint] = []
        for endpoint in slice_.endpoints or ():
            name = identity(endpoint)
            if name in left and len(kept) < limit:
                kept.append(left.pop(name))
        held.append(kept)
    if not left:
        return held, [], 0
    new = [left[name] for name in sorted(left)]
    count = len(new)
    is_touched = [is_due(s) or tuple(kept) != (s.endpoints or ()) for s, kept in zip(slices, held, strict=True)]
    for index in sorted(range(len(held)), key=lambda i: -len(held[i])):
        if is_touched[index]:
            room = limit - len(held[index])
            held[index] += new[:room]
            del new[:room]
    made: list[list[Endpoint]] = []
    while new:
        room = limit - len(new)
        fitting = [i for i in range(len(held)) if len(held[i]) <= room and not is_touched[i]] if room > 0 else []
        if fitting:
            held[max(fitting, key=lambda i: len(held[i]))] += new
            break
        made.append(new[:limit])
        del new[:limit]
    return held, made, count


def _reuse(
    drafts: list[SliceDraft], spare: list[EndpointSlice]
) -> tuple[tuple[SliceDraft, ...], tuple[EndpointSlice, ...]]:
    """Let slices that are not needed, those that hold least first, become those that would have to be made.

    The family of a slice never changes.
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
    """The form of the slices of one owner, beside their endpoints.

    `owner` is of the resource `kind`. `labels` are what they have; `annotations` says what their annotations are, of
    those they have now. Those that are written have the annotations that `stamp` tells as well, and no longer those
    that are None there.
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
        """Return whether labels or annotations of a slice are not as they should be."""
        meta = slice_.metadata
        now = meta.annotations or {}
        return meta.labels != self._labels or self._annotations(now) != now

    def differs(self, draft: SliceDraft) -> bool:
        """Return whether there is something to write of a slice."""
        current = draft.current
        return (
            current is None
            or draft.endpoints != (current.endpoints or ())
            or draft.group != group_of(current)
            or self.is_due(current)
        )

    def writes(self, arrangement: Arrangement, stamp: Callable[[], Mapping[str, str | None]]) -> SliceWrites:
        """Return what is to be written for an arrangement to be there."""
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
