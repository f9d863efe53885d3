"""The relations between nodes and objects, read from the watch cache on first use and then kept up to date.

An object is related to a node if a pod on the node needs it, or if it names the node. Persistent volumes and their
secrets are related to the nodes of the bound claim.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import msgspec

from apiserver_stub.authz.node.pods import PodState
from apiserver_stub.authz.node.references import POD, SECRET, VOLUME, Reference, volume_references
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import Change, Corrupt, Row
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.fair_loop import give_way
from controller_manager.common.base.metrics import Family, Histograms
from controller_manager.common.base.registry import Registry

ATTACHMENT, SLICE, POD_CERTIFICATE = "volumeattachments", "resourceslices", "podcertificaterequests"
_NAMING_A_NODE: Mapping[str, str] = {
    f"{ATTACHMENT}.storage.{GROUP_DOMAIN}": "VolumeAttachment",
    f"{SLICE}.resource.{GROUP_DOMAIN}": "ResourceSlice",
    f"{POD_CERTIFICATE}.certificates.{GROUP_DOMAIN}": "PodCertificateRequest",
}
_OPERATIONS: Mapping[str, str] = {POD: "Pod", VOLUME: "PV", **_NAMING_A_NODE}
_DURATION = Family(
    "node_authorizer_graph_actions_duration_seconds",
    "Seconds spent updating the graph of nodes and objects.",
    "histogram",
    ("operation",),
    tuple(0.0001 * 2**step for step in range(12)),
)
_NOWHERE: Mapping[str, int] = {}
_PIECE = 20  # rows read before the loop yields; a pod takes some ten microseconds


class _Edges(msgspec.Struct, gc=False, frozen=True):
    """The relations that one object creates to its node, and the signature of the data they were computed from."""

    node: str
    references: frozenset[Reference]
    signature: Any = None


class _Volume(NamedTuple):
    claim: Reference
    secrets: frozenset[Reference]


class NodeGraph:
    """The relations of objects to nodes; usable when `complete`."""

    def __init__(self, store: WatchCache, registry: Registry) -> None:
        self.complete = False
        """Whether all that there is has been taken in."""
        self._store = store
        self._unread: Iterator[Row] | None = None  # None until the first read
        self._duration = Histograms(_DURATION, registry)
        self._edges: dict[tuple[str, str], _Edges] = {}  # by resource and key of the object that creates them
        self._nodes: dict[Reference, dict[str, int]] = {}  # number of objects that link an object to a node
        self._volumes: dict[str, _Volume] = {}
        self._of_secret: dict[Reference, set[str]] = {}  # the volumes that need a secret
        self._put: Mapping[str, Callable[[Row], None]] = {
            POD: self._put_pod,
            VOLUME: self._put_volume,
            **dict.fromkeys(_NAMING_A_NODE, self._put_named),
        }

    async def read(self) -> None:
        """Read the existing objects in steps, shared by all waiting callers, and subscribe to changes."""
        if self._unread is None:
            self._store.subscribe(self._on_changes)
            self._unread = chain.from_iterable([self._store.snapshot(resource).items() for resource in self._put])
        while not self.complete:
            await give_way()
            self._grow(self._unread)

    def leads(self, kind: str, namespace: str, name: str, node: str) -> bool:
        """Return whether an object is related to a node."""
        if kind == VOLUME:
            return self._volume_leads(name, node)
        if kind == POD:
            edges = self._edges.get((POD, f"{namespace}/{name}"))
            return edges is not None and edges.node == node
        reference = Reference(kind, namespace, name)
        if node in self._nodes.get(reference, _NOWHERE):
            return True
        if kind != SECRET:
            return False
        return any(self._volume_leads(volume, node) for volume in self._of_secret.get(reference, ()))

    def _volume_leads(self, name: str, node: str) -> bool:
        volume = self._volumes.get(name)
        return volume is not None and node in self._nodes.get(volume.claim, _NOWHERE)

    def _grow(self, unread: Iterator[Row]) -> None:
        """Read the next rows, except those that changed meanwhile, because the subscription handles them."""
        rows = list(islice(unread, _PIECE))
        for row in rows:
            if self._store.get(row.resource, row.key) is row:
                self._guarded(self._put[row.resource], row)
        self.complete = len(rows) < _PIECE

    def _on_changes(self, changes: Sequence[Change]) -> None:
        for change in changes:
            row = change.row
            put = self._put.get(row.resource)
            if put is None:
                continue
            began = monotonic()
            if change.deleted:
                self._forget(row)
            else:
                self._guarded(put, row)
            operation = f"{'Delete' if change.deleted else 'Add'}{_OPERATIONS[row.resource]}"
            self._duration.observe(monotonic() - began, operation)

    def _guarded(self, put: Callable[[Row], None], row: Row) -> None:
        """Add a row; an invalid object has no relations."""
        try:
            put(row)
        except (Corrupt, msgspec.DecodeError, KeyError, AttributeError, TypeError):
            self._forget(row)

    def _put_pod(self, row: Row) -> None:
        state = PodState(row.data)
        known = self._edges.get((POD, row.key))
        if known is not None and (known.node, known.signature) == (state.node, state.signature):
            return
        if state.node:
            references = state.references(row.namespace, row.name)
            self._link(row, _Edges(sys.intern(state.node), references, state.signature))

    def _put_named(self, row: Row) -> None:
        """Add an object that names a node, or remove it if it no longer names one."""
        node = row.field("spec.nodeName")
        kind = row.resource.partition(".")[0]
        if node:
            self._link(row, _Edges(node, frozenset({Reference(kind, row.namespace, row.name)})))
        else:
            self._forget(row)

    def _put_volume(self, row: Row) -> None:
        found = volume_references(msgspec.json.decode(row.data))
        volume = None if found is None else _Volume(*found)
        if self._volumes.get(row.name) == volume:
            return
        self._forget(row)
        if volume is None:
            return
        self._volumes[row.name] = volume
        for secret in volume.secrets:
            self._of_secret.setdefault(secret, set()).add(row.name)

    def _link(self, row: Row, edges: _Edges) -> None:
        place = row.resource, row.key
        if self._edges.get(place) == edges:
            return
        self._forget(row)
        self._edges[place] = edges
        for reference in edges.references:
            nodes = self._nodes.setdefault(reference, {})
            nodes[edges.node] = nodes.get(edges.node, 0) + 1

    def _forget(self, row: Row) -> None:
        """Remove the relations of an object."""
        if row.resource == VOLUME:
            volume = self._volumes.pop(row.name, None)
            for secret in volume.secrets if volume is not None else ():
                _discard(self._of_secret, secret, row.name)
            return
        edges = self._edges.pop((row.resource, row.key), None)
        if edges is None:
            return
        for reference in edges.references:
            nodes = self._nodes[reference]
            nodes[edges.node] -= 1
            if not nodes[edges.node]:
                del nodes[edges.node]
            if not nodes:
                del self._nodes[reference]


def _discard(volumes: dict[Reference, set[str]], secret: Reference, volume: str) -> None:
    volumes[secret].discard(volume)
    if not volumes[secret]:
        del volumes[secret]
