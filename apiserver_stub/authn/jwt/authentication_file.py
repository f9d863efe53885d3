"""The configuration of JWT and anonymous authentication, from flags or `--authentication-config`, and its reloading."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path

from apiserver_stub.authn.jwt.authenticator import ProviderConnection
from apiserver_stub.authn.jwt.authenticators import Compiled, JWTAuthenticators, Terms
from apiserver_stub.authn.jwt.configuration import (
    AnonymousAuthConfig,
    AuthenticationConfiguration,
    from_flags,
    parse,
)
from apiserver_stub.authn.jwt.rules import check
from apiserver_stub.common.config_file import (
    ConfigFileError,
    FileWatcher,
    NotYetUsable,
    ReloadMetrics,
    read_bytes,
    refuse_causes,
)
from apiserver_stub.common.error_list import ErrorList
from apiserver_stub.common.flags import AuthenticationOptions
from apiserver_stub.common.offload import Offload
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks, all_of, keep_running

_PATIENCE = 60.0  # seconds for the discovery of new issuers
_GRACE = 60.0  # seconds after which removed issuers are dropped, for requests in flight


class JWTAuthentication:
    """The configured JWT authenticators. `run` refreshes the keys of their issuers and reloads the file.

    | a new file                                    | result                                                    |
    |-----------------------------------------------|-----------------------------------------------------------|
    | is unreadable or invalid                      | the current configuration is kept; counted, logged once   |
    | changes `anonymous`                           | the same: it is read only at the start                    |
    | has an issuer not discovered within 1m        | the current configuration is kept; the file is retried    |
    | has issuers of the current configuration      | their keys are kept, even if discovery fails              |
    """

    def __init__(self, options: AuthenticationOptions, terms: Terms, runtime: Runtime, offload: Offload) -> None:
        self._terms = terms
        self._log = runtime.log("jwt")
        self._path = Path(options.authentication_config) if options.authentication_config else None
        self._data = read_bytes(self._path) if self._path else b""
        configuration = parse(self._data, self._path) if self._path else from_flags(options)
        compiled = self._compiled(configuration)
        self.anonymous: AnonymousAuthConfig | None = configuration.anonymous
        """The configuration of anonymous requests; None if the file does not set it."""
        self.authenticators = JWTAuthenticators(terms, offload, self._log, runtime.registry)
        self.authenticators.use(compiled, self.authenticators.connections_for(compiled))
        self._metrics = ReloadMetrics("authentication", runtime.registry) if self._path else None
        if self._metrics is not None:
            self._metrics.in_use(self._data)
        self._running: dict[ProviderConnection, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Refresh the keys of all issuers and reload the file until canceled."""
        self._running.clear()
        async with Tasks() as tasks:
            self._start(self.authenticators.connections.values(), tasks)
            if self._path is None:
                await asyncio.Event().wait()
            else:
                apply = partial(self._apply, tasks)
                await FileWatcher(self._path, self._data, apply, self._failed).run()

    def _compiled(self, configuration: AuthenticationConfiguration) -> Compiled:
        errors = ErrorList()
        expressions = check(configuration, self._terms.own_issuers, errors)
        for index, one in enumerate(configuration.jwt):
            egress = one.issuer.egress_selector_type
            if egress and not errors.causes and egress not in self._terms.dialers:
                place = ((((None, "jwt"), index), "issuer"), "egressSelectorType")
                errors.invalid(place, egress, "not configured in --egress-selector-config-file")
        if self._path is None:
            _refuse_flags(errors)
        else:
            refuse_causes(self._path, errors.causes)
        return tuple(zip(configuration.jwt, expressions, strict=True))

    def _start(self, connections: Iterable[ProviderConnection], tasks: Tasks) -> None:
        for one in connections:
            if one not in self._running:
                name = f"issuer {one.provider.issuer.url}"
                self._running[one] = tasks.start(keep_running(one.run, self._log, name=name), name=name)

    def _stop(self, connections: Iterable[ProviderConnection]) -> None:
        for one in connections:
            self._running.pop(one).cancel()

    async def _apply(self, tasks: Tasks, data: bytes) -> None:
        """Apply the new content of the file. Raises `ConfigFileError`."""
        assert self._path is not None
        assert self._metrics is not None
        configuration = parse(data, self._path)
        compiled = self._compiled(configuration)
        if configuration.anonymous != self.anonymous:
            raise ConfigFileError(f"{self._path}: anonymous: changed from initial configuration file")
        before = set(self.authenticators.connections.values())
        connections = self.authenticators.connections_for(compiled)
        self._start(connections.values(), tasks)
        added = [one for one in connections.values() if one not in before]
        missing = await _not_found(added)
        if missing:
            self._stop(added)
            raise NotYetUsable(f"{self._path}: {missing}")
        self.authenticators.use(compiled, connections)
        self._data = data
        self._metrics.succeeded(data)
        self._log.info("reloaded the authentication configuration", file=str(self._path))
        tasks.start(self._retire(before - set(connections.values())), name="retire removed issuers")

    async def _retire(self, connections: Collection[ProviderConnection]) -> None:
        await asyncio.sleep(_GRACE)
        self._stop(connections)

    def _failed(self, error: ConfigFileError) -> None:
        assert self._metrics is not None
        self._metrics.failed()
        self._log.error("failed to reload the authentication configuration; keeping the current one", error=str(error))


async def _not_found(added: Sequence[ProviderConnection]) -> str:
    """Return the issuers whose discovery failed, with reasons; empty if all succeeded."""
    found = await all_of(*(one.provider.discovered(_PATIENCE) for one in added)) if added else []
    missing = [one.provider for one, is_there in zip(added, found, strict=True) if not is_there]
    return "; ".join(f"failed to discover the issuer {one.issuer.url}: {one.problem}" for one in missing)


def _refuse_flags(errors: ErrorList) -> None:
    if errors.causes:
        problems = "; ".join(f"{cause.field}: {cause.message}" for cause in errors.causes)
        raise ConfigFileError(f"the --oidc-* flags are invalid: {problems}")
