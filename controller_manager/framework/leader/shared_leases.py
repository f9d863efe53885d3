"""The leases of replicas with shared locks: one main lease, one lease per lock, and one session per replica."""

from collections.abc import Mapping
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from controller_manager.common.api import errors
from controller_manager.common.api.coordination import LEASES, Lease
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.base import clock
from controller_manager.framework.client.client import Client
from controller_manager.framework.leader.lease import held, released

# Labels: the name of the main lease (on all leases), and the digest of the locks (on sessions that share them).
_GROUP_LABEL, _LOCKS_LABEL = "cluster-controller-manager/replicas-of", "cluster-controller-manager/locks"


class SharedLocks(msgspec.Struct, frozen=True):
    """The locks that replicas share. `main` is their main lease, `families` has the family of each lock."""

    main: Key
    families: Mapping[str, str]

    @property
    def digest(self) -> str:
        """A digest of the locks and their families."""
        named = sorted(f"{lock} {family}" for lock, family in self.families.items())
        return blake2b("\n".join(named).encode(), digest_size=8).hexdigest()

    @property
    def holder(self) -> str:
        """The identity with which all replicas together hold the main lease."""
        return f"replicas_{self.digest}"

    def key(self, lock: str) -> Key:
        """Return the lease of a lock."""
        return Key(self.main.namespace, f"{self.main.name}-{lock}")

    @property
    def session_prefix(self) -> str:
        """The prefix of the names of all sessions."""
        return f"{self.main.name}-replica-"

    def session(self, number: int) -> str:
        """Return the name of a session."""
        return f"{self.session_prefix}{number}"


class SharedLeases:
    """Reads and writes these leases; `seconds` is the lease duration."""

    def __init__(self, client: Client, shared: SharedLocks, seconds: float) -> None:
        self._client = client
        self._main = shared.main
        self._digest = shared.digest
        self._seconds = seconds

    async def list(self) -> dict[str, Lease]:
        """Return all leases, by name. Raises `ApiError`."""
        listing = await self._client.list(LEASES, self._main.namespace, labels=f"{_GROUP_LABEL}={self._main.name}")
        return {lease.metadata.name: lease for lease in listing.items}

    async def get(self, name: str) -> Lease | None:
        """Return a lease; None if it does not exist. Raises `ApiError`."""
        try:
            return await self._client.get(LEASES, Key(self._main.namespace, name))
        except errors.NotFound:
            return None

    async def hold(self, lease: Lease | None, name: str, holder: str, *, shares: bool = False) -> Lease:
        """Take or renew a lease and return the result. `lease` is the existing one, None to create it.

        `shares` labels a session whose replica shares the locks. Raises `ApiError`.
        """
        meta = lease.metadata if lease is not None else ObjectMeta(namespace=self._main.namespace, name=name)
        labels = {**(meta.labels or {}), _GROUP_LABEL: self._main.name, _LOCKS_LABEL: self._digest}
        if not shares:
            del labels[_LOCKS_LABEL]
        wanted = replace(lease or Lease(), metadata=replace(meta, labels=labels))
        wanted = held(wanted, holder, self._seconds, clock.utc_now())
        return await (self._client.create if lease is None else self._client.update)(LEASES, wanted)

    async def release(self, lease: Lease) -> None:
        """Remove the holder of a lease. Raises `ApiError`."""
        await self._client.update(LEASES, released(lease, clock.utc_now()))

    def shares(self, session: Lease) -> bool:
        """Return whether the replica of a session shares the same locks."""
        return (session.metadata.labels or {}).get(_LOCKS_LABEL) == self._digest
