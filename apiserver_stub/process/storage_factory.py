"""The storage configured by flags: in memory, in a file or in etcd, encrypted or not; and the watch cache above it."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from apiserver_stub.common.flags import DATABASE, ETCD, EncryptionOptions, EtcdOptions, StorageOptions
from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.process.lifecycle import Component
from apiserver_stub.request.telemetry import StorageMetrics, StoredObjects
from apiserver_stub.storage.backend import Backend
from apiserver_stub.storage.embedded import EmbeddedStorage, StorageRules
from apiserver_stub.storage.interface import Storage
from apiserver_stub.storage.memory import MemoryStorage
from apiserver_stub.storage.sqlite import SqliteBackend
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.collection import Retention
from apiserver_stub.watch_cache.row import decode_error_of, plain_error_of
from controller_manager.common.base.log import Logger
from controller_manager.common.base.registry import Registry
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.options.parse import Parsed
from controller_manager.common.serving.health import Health
from controller_manager.common.transport.dialer import Dialer

if TYPE_CHECKING:
    from apiserver_stub.storage.encryption.at_rest import EncryptionAtRest
    from apiserver_stub.storage.etcd import EtcdStorage


class StorageFactory:
    """Creates the storage of one server, unless one is `given`, and related parts, each on first use.

    `to_etcd` connects to an etcd in another network.
    """

    def __init__(
        self,
        options: Parsed,
        given: Storage | None,
        kinds: ResourceRegistry,
        to_etcd: Dialer | None,
        runtime: Runtime,
    ) -> None:
        self._options = options[StorageOptions]
        self._etcd_options, self._encryption_options = options[EtcdOptions], options[EncryptionOptions]
        self._given = given
        self._kinds = kinds
        self._dialer = to_etcd
        self._runtime = runtime

    def watch_cache(self) -> WatchCache:
        """Return a cache above the storage, both measured."""
        options, storage = self._options, self.encryption.storage if self.encryption else self._storage
        retention = Retention(options.watch_cache_window, total=options.watch_cache_size)
        store = WatchCache(storage, retention, log=self._log, ttls=self._ttls)
        StorageMetrics(storage, self._runtime.registry)
        if self.etcd is None or self._etcd_options.etcd_count_metric_poll_period:
            _measure_store(store, self._kinds, self._runtime.registry)
        return store

    def parts(self) -> Iterator[Component]:
        """Yield the parts below the cache that flags enable."""
        if (encryption := self.encryption) is not None:
            yield Component(encryption.open, run=encryption.run, close=encryption.close)

    def add_checks(self, health: Health) -> None:
        """Add health checks of the KMS providers, if there are any."""
        if self.encryption is not None and self.encryption.has_services:
            health.add("kms-providers", self.encryption.check, ("healthz", "readyz"))

    @cached_property
    def encryption(self) -> "EncryptionAtRest | None":
        """Encryption at rest, if configured; the module is loaded only then."""
        if not self._encrypts:
            return None
        from apiserver_stub.storage.encryption.at_rest import EncryptionAtRest

        return EncryptionAtRest(self._encryption_options, self._storage, decode_error_of, self._runtime)

    @cached_property
    def etcd(self) -> "EtcdStorage | None":
        """The etcd storage, if configured; the module is loaded only then."""
        if self._given is not None or self._options.storage_backend not in ETCD:
            return None
        from apiserver_stub.storage.etcd import EtcdRules, EtcdServers, EtcdStorage

        options = self._etcd_options
        files = options.etcd_cafile, options.etcd_certfile, options.etcd_keyfile
        servers = EtcdServers(options.etcd_servers, *files, self._dialer)
        rules = EtcdRules(
            options.etcd_prefix,
            options.etcd_compaction_interval,
            options.etcd_healthcheck_timeout,
            options.etcd_readycheck_timeout,
            options.etcd_db_metric_poll_interval,
            options.lease_reuse_duration_seconds,
            plain_error_of if self._encrypts else decode_error_of,
        )
        return EtcdStorage(servers, rules, self._runtime.registry, self._log)

    @cached_property
    def _storage(self) -> Storage:
        """The storage below the encryption."""
        if (found := self._given or self.etcd) is not None:
            return found
        options = self._options
        if options.storage_backend == "memory":
            return MemoryStorage()
        backend = SqliteBackend(options.folder / DATABASE, options.accept_data_loss, self._log)
        return embedded_storage(backend, self._ttls, self._log, encrypts=self._encrypts)

    @property
    def _encrypts(self) -> bool:
        return bool(self._encryption_options.encryption_provider_config)

    @property
    def _ttls(self) -> Mapping[str, float]:
        lifetime = self._options.event_ttl
        return {kind.storage: lifetime for kind in self._kinds.all() if kind.strategy.has_ttl}

    @cached_property
    def _log(self) -> Logger:
        return self._runtime.log("store")


def embedded_storage(
    backend: Backend,
    ttls: Mapping[str, float] = MappingProxyType({}),
    log: Logger | None = None,
    *,
    encrypts: bool = False,
) -> EmbeddedStorage:
    """Return a storage of API objects over a log. Rows without a TTL expire after `ttls` (seconds, by resource). With
    `encrypts`, objects are not decoded for validation here but after decryption.
    """
    return EmbeddedStorage(backend, StorageRules(plain_error_of if encrypts else decode_error_of, ttls), log=log)


def _measure_store(store: WatchCache, kinds: ResourceRegistry, registry: Registry) -> None:
    def counts() -> Mapping[str, int]:
        return {kind.storage: store.count(kind.storage) for kind in kinds.all() if kind.persisted}

    StoredObjects(counts, registry)
