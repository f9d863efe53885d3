"""Pods that are there when the level of their namespace changes, and that it forbids."""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec
import orjson

from apiserver_stub.admission.plugins.pod_security.checks import violations
from apiserver_stub.admission.plugins.pod_security.pods import CheckedPod
from apiserver_stub.admission.plugins.pod_security.policy import LevelVersion
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import CorruptRow, Row
from controller_manager.common.base.clock import monotonic

_PODS = "pods"
_MOST_PODS = 3000
_LONGEST = 1.0  # seconds
_AT_ONCE = 50  # pods per step, before the loop yields


class ExistingPods:
    """Checks the existing pods of a namespace, except those of exempt runtime classes."""

    def __init__(self, store: WatchCache, exempt: Collection[str]) -> None:
        self._store = store
        self._exempt = exempt

    async def warnings(self, namespace: str, asked: LevelVersion) -> Sequence[str]:
        """Return warnings for the pods of a namespace that violate a level: one pod per owner first, limited in number
        of pods and to one second.
        """
        deadline = monotonic() + _LONGEST
        rows = await self._by_owner(namespace)
        names: dict[str, list[str]] = {}
        checked = 0
        for checked, row in enumerate(rows[:_MOST_PODS], 1):
            if found := violations(asked, CheckedPod.of(orjson.loads(row.data))):
                names.setdefault(", ".join(one.reason for one in found), []).append(row.name)
            if checked % _AT_ONCE == 0:
                await asyncio.sleep(0)
            if monotonic() > deadline:
                break
        return [*_warnings(namespace, asked, names, checked, len(rows))]

    async def _by_owner(self, namespace: str) -> Sequence[Row]:
        """Return the pods of a namespace that are not exempt, first one of each controller."""
        firsts: list[Row] = []
        others: list[Row] = []
        seen: set[str] = set()
        for count, row in enumerate(self._store.snapshot(_PODS).items(prefix=f"{namespace}/"), 1):
            if count % _AT_ONCE == 0:
                await asyncio.sleep(0)
            if isinstance(row, CorruptRow):
                continue
            pod = _OWNED.decode(row.data)
            if pod.spec.runtime_class in self._exempt:
                continue
            owner = next((one.uid for one in pod.metadata.owners if one.controller), "")
            (others if owner in seen else firsts).append(row)
            if owner:
                seen.add(owner)
        return firsts + others


def _warnings(
    namespace: str, asked: LevelVersion, names: Mapping[str, Sequence[str]], checked: int, total: int
) -> Iterator[str]:
    if checked < total:
        yield f"new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
    if names:
        yield f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{asked}"'
    yield from sorted(f"{_first_of(pods)}: {reasons}" for reasons, pods in names.items())


def _first_of(pods: Sequence[str]) -> str:
    """Return the first of some pod names and the number of others."""
    more = len(pods) - 1
    return f"{min(pods)} (and {more} other {'pod' if more == 1 else 'pods'})" if more else pods[0]


class _Owner(msgspec.Struct, gc=False, frozen=True):
    uid: str = ""
    controller: bool = False


class _OwnedMetadata(msgspec.Struct, gc=False, frozen=True):
    owners: tuple[_Owner, ...] = msgspec.field(default=(), name="ownerReferences")


class _OwnedSpec(msgspec.Struct, gc=False, frozen=True):
    runtime_class: str = msgspec.field(default="", name="runtimeClassName")


class _OwnedPod(msgspec.Struct, gc=False, frozen=True):
    metadata: _OwnedMetadata = _OwnedMetadata()
    spec: _OwnedSpec = _OwnedSpec()


_OWNED = msgspec.json.Decoder(_OwnedPod)
