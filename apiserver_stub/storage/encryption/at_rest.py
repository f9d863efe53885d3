"""The encryption of a server's storage, built from a configuration file and rebuilt when the file changes."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from apiserver_stub.common.config_file import ConfigFileError, FileWatcher, ReloadMetrics, read_bytes, server_id_hash
from apiserver_stub.common.flags import EncryptionOptions
from apiserver_stub.storage.encryption.config import EncryptionConfiguration, Provider, parse_encryption, split_resource
from apiserver_stub.storage.encryption.kms import KMSMetrics, KMSProvider
from apiserver_stub.storage.encryption.storage import EncryptedStorage, Encryption
from apiserver_stub.storage.encryption.transformers import (
    AESCBC,
    AESGCM,
    IdentityTransformer,
    Secretbox,
    Transformer,
    Transformers,
    keyed,
)
from apiserver_stub.storage.interface import Inspect, Storage
from controller_manager.common.base.errors import CannotStart
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks, all_of

_LOOK_EVERY = 60.0  # seconds between two checks of the file


class _Made(Struct, frozen=True):
    """The transformers of a configuration, and the KMS providers among them."""

    encryption: Encryption
    services: tuple[KMSProvider, ...]

    @property
    def patience(self) -> float:
        """Return the timeout of calls to the KMS providers in seconds."""
        return 2 * sum(each.timeout for each in self.services)


class EncryptionAtRest:
    """Encrypts the data of `storage` with the configuration of a file (--encryption-provider-config), and reloads that
    file if configured.

    `inspect` returns why an object's bytes cannot be read. Raises `ConfigFileError` for an invalid file, and
    `CannotStart` or `ConfigError` if a package is missing.
    """

    def __init__(self, options: EncryptionOptions, storage: Storage, inspect: Inspect, runtime: Runtime) -> None:
        self._path = Path(options.encryption_provider_config)
        self._follows = options.encryption_provider_config_automatic_reload
        self._log = runtime.log("encryption")
        self._kms = KMSMetrics(runtime.registry, server_id_hash())
        self._reloads = ReloadMetrics("encryption", runtime.registry)
        data = read_bytes(self._path)
        self._made = self._make(data)
        self._reloads.in_use(data)
        self._watcher = FileWatcher(self._path, data, self._apply, self._refuse, _LOOK_EVERY)
        self._tasks: Tasks | None = None
        self._running: dict[KMSProvider, asyncio.Task[None]] = {}
        self.storage = EncryptedStorage(storage, self._made.encryption, inspect, runtime.registry, self._log)

    @property
    def has_services(self) -> bool:
        """Return whether a KMS provider is configured, or may be after a reload."""
        return self._follows or bool(self._made.services)

    def check(self) -> str:
        """Return why a KMS provider cannot be used; empty if all can."""
        return "; ".join(f"{each.name}: {each.problem}" for each in self._made.services if each.problem)

    async def open(self) -> None:
        """Get the keys of the KMS providers before anything is read."""
        await all_of(*(each.probe() for each in self._made.services))

    async def run(self) -> None:
        """Probe the KMS providers, and watch the file if configured, until cancelled."""
        async with Tasks() as tasks:
            self._tasks = tasks
            self._start(self._made.services)
            await (self._watcher.run() if self._follows else asyncio.Event().wait())

    async def close(self) -> None:
        """Close the connections to the KMS providers."""
        for each in self._made.services:
            await each.close()

    def _make(self, data: bytes) -> _Made:
        config = parse_encryption(data, self._path)
        services: list[KMSProvider] = []
        return _Made(Encryption(self._transformers(config, services)), tuple(services))

    def _transformers(
        self, config: EncryptionConfiguration, services: list[KMSProvider]
    ) -> Mapping[tuple[str, str], Transformer]:
        """Return the transformers by group and resource. Several rules for a resource combine their providers in
        order.
        """
        found: dict[tuple[str, str], list[Transformer]] = {}
        for rule in config.resources:
            providers = [self._transformer(provider, services) for provider in rule.providers]
            for resource in rule.resources:
                found.setdefault(split_resource(resource), []).extend(providers)
        return {resource: Transformers(transformers) for resource, transformers in found.items()}

    def _transformer(self, provider: Provider, services: list[KMSProvider]) -> Transformer:
        if provider.aesgcm is not None:
            return keyed(AESGCM, provider.aesgcm.keys, b"k8s:enc:aesgcm:v1:")
        if provider.aescbc is not None:
            return keyed(AESCBC, provider.aescbc.keys, b"k8s:enc:aescbc:v1:")
        if provider.secretbox is not None:
            return keyed(Secretbox, provider.secretbox.keys, b"k8s:enc:secretbox:v1:")
        if provider.kms is not None:
            services.append(KMSProvider(provider.kms, self._kms, self._log))
            return services[-1]
        return IdentityTransformer()

    async def _apply(self, data: bytes) -> None:
        """Apply a changed file if all its KMS providers are healthy. Raises `ConfigFileError`."""
        try:
            made = self._make(data)
        except CannotStart as error:
            raise ConfigFileError(f"{self._path}: {error}") from None
        await all_of(*(each.probe() for each in made.services))
        if ill := [f"{each.name}: {each.problem}" for each in made.services if each.problem]:
            await _close(made.services)
            raise ConfigFileError(f"{self._path}: {'; '.join(ill)}")
        before, self._made = self._made, made
        self.storage.encryption = made.encryption
        self._start(made.services)
        self._retire(before)
        self._reloads.succeeded(data)
        self._log.info("encryption configuration reloaded", file=str(self._path))

    def _refuse(self, error: ConfigFileError) -> None:
        self._reloads.failed()
        self._log.error("invalid encryption configuration; keeping the previous one", error=str(error))

    def _start(self, services: Sequence[KMSProvider]) -> None:
        assert self._tasks is not None
        for each in services:
            self._running[each] = self._tasks.start(each.run(), name=f"KMS provider {each.name}")

    def _retire(self, made: _Made) -> None:
        """Close KMS providers that are no longer used, after their calls have timed out."""

        async def close() -> None:
            await asyncio.sleep(made.patience)
            await _close(made.services)

        for each in made.services:
            self._running.pop(each).cancel()
        if made.services:
            assert self._tasks is not None
            self._tasks.start(close(), name="end of KMS providers")


async def _close(services: Sequence[KMSProvider]) -> None:
    for each in services:
        await each.close()
