"""The ranges services' addresses come from: those of the flags, and those of ServiceCIDR objects that are ready."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network, ip_network

import msgspec

from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import Change, Corrupt, Row
from controller_manager.api.model import Model
from controller_manager.api.platform import GROUP_DOMAIN

Network = IPv4Network | IPv6Network
_RANGES = f"servicecidrs.networking.{GROUP_DOMAIN}"


class _Metadata(Model):
    deletion_timestamp: str | None = None


class _Spec(Model):
    cidrs: tuple[str, ...] | None = None


class _Condition(Model):
    type: str = ""
    status: str = ""


class _Status(Model):
    conditions: tuple[_Condition, ...] | None = None


class _ServiceCidr(Model):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_STORED = msgspec.json.Decoder(_ServiceCidr)


class ServiceRanges:
    """Follows the store. `by_family` are the networks of each family the flags name, those of the flags first, then
    by the name of their object; it is the same mapping all the time.
    """

    def __init__(self, store: WatchCache, first: Sequence[Network]) -> None:
        self._store = store
        self._first = tuple(first)
        self._further: dict[str, tuple[Network, ...]] = {}
        self._by_family: dict[str, tuple[Network, ...]] = {f"IPv{network.version}": () for network in first}
        self._rank()

    @property
    def by_family(self) -> Mapping[str, Sequence[Network]]:
        """Networks by `IPv4` and `IPv6`."""
        return self._by_family

    def follow(self) -> None:
        """Read what is stored, and follow it from there on."""
        for row in self._store.snapshot(_RANGES).items():
            with suppress(Corrupt):
                self._note(row)
        self._rank()
        self._store.subscribe(self._changed)

    def _changed(self, changes: Sequence[Change]) -> None:
        concerned = [change for change in changes if change.row.resource == _RANGES]
        for change in concerned:
            if change.deleted:
                self._further.pop(change.row.key, None)
            else:
                self._note(change.row)
        if concerned:
            self._rank()

    def _note(self, row: Row) -> None:
        self._further[row.key] = networks_of(row.data)

    def _rank(self) -> None:
        every = [*self._first, *(network for _, networks in sorted(self._further.items()) for network in networks)]
        for family in self._by_family:
            self._by_family[family] = tuple(dict.fromkeys(n for n in every if f"IPv{n.version}" == family))


def networks_of(data: bytes) -> tuple[Network, ...]:
    """Return the networks of a ServiceCIDR (JSON); none while it is not ready, or on its way out."""
    found = _STORED.decode(data)
    ready = [condition.status for condition in found.status.conditions or () if condition.type == "Ready"]
    if found.metadata.deletion_timestamp or ready not in ([], ["True"]):
        return ()
    return tuple(ip_network(text, strict=False) for text in found.spec.cidrs or ())
