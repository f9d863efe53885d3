"""Coordinated compaction of etcd: of all API servers, the first one compacts in each interval."""

from apiserver_stub.storage.etcd.client import EtcdClient
from apiserver_stub.storage.etcd.failures import COMPACTED
from apiserver_stub.storage.etcd.layout import COMPACT_KEY
from controller_manager.common.api.errors import ServiceUnavailable
from controller_manager.common.base.clock import monotonic
from controller_manager.common.transport.grpc import GrpcError

_EQUAL, _VERSION = 0, 0
_LONGEST = 300.0  # timeout of a compaction in seconds


class Compaction:
    """Compacts at most every `interval` seconds (0: never), and not if another server has done so meanwhile. The
    servers coordinate by the version of a key that every compaction writes.
    """

    def __init__(self, client: EtcdClient, interval: float) -> None:
        self._client = client
        self._interval = interval
        self._version = -1  # unknown
        self._revision = 0
        self._since = monotonic()  # when the version was read

    async def compact(self, revision: int) -> None:
        """Compact up to a revision. Raises `ServiceUnavailable` if it is too early, and `GrpcError`."""
        if not self._interval or revision <= self._revision:
            return
        if monotonic() - self._since < self._interval:
            raise ServiceUnavailable("etcd was compacted recently")
        if self._version < 0:
            await self._learn()
        if revision > self._revision and await self._announce(revision):
            await self._compact(revision)

    async def _learn(self) -> None:
        answer = await self._client.read("Range", {"key": COMPACT_KEY})
        self._note(next(iter(answer.get("kvs", ())), {}))

    def _note(self, kv: dict[str, object]) -> None:
        self._version = int(str(kv.get("version", 0)))
        value = kv.get("value", b"")
        assert isinstance(value, bytes)
        self._revision = max(self._revision, int(value) if value.isdigit() else 0)

    async def _announce(self, revision: int) -> bool:
        """Claim the compaction. Return False if another server was first."""
        compare = {"result": _EQUAL, "target": _VERSION, "key": COMPACT_KEY, "version": self._version}
        put = {"request_put": {"key": COMPACT_KEY, "value": b"%d" % revision}}
        read = {"request_range": {"key": COMPACT_KEY}}
        answer = await self._client.write({"compare": [compare], "success": [put], "failure": [read]})
        self._since = monotonic()
        if answer.get("succeeded"):
            self._version += 1
            return True
        found = answer["responses"][0]["response_range"].get("kvs") or [{}]
        self._note(found[0])
        raise ServiceUnavailable("another server has compacted etcd")

    async def _compact(self, revision: int) -> None:
        try:
            await self._client.read("Compact", {"revision": revision}, _LONGEST)
        except GrpcError as failure:
            if not failure.message.endswith(COMPACTED):
                raise
        self._revision = max(self._revision, revision)
