"""The configured authorization: the authorizers of flags or a file in order, after the one for administrators."""

from collections.abc import Container
from pathlib import Path

import msgspec

from apiserver_stub.authz.abac import ABACAuthorizer, read_policies
from apiserver_stub.authz.always import PUBLIC, AlwaysAllow, AlwaysDeny
from apiserver_stub.authz.configuration import AuthorizationConfiguration, AuthorizerConfiguration, from_flags
from apiserver_stub.authz.configured import ConfigurationFile, ConfiguredAuthorizer, RequestAuthorizer
from apiserver_stub.authz.metrics import AuthorizationMetrics
from apiserver_stub.authz.node import NodeAuthorizer
from apiserver_stub.authz.node.graph import NodeGraph
from apiserver_stub.authz.rbac import RBACAuthorizer
from apiserver_stub.common.config_file import ConfigFileError, ReloadMetrics
from apiserver_stub.common.flags import AuthorizationOptions
from apiserver_stub.common.offload import StepRunner, at_once
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.options.parse import Parsed
from controller_manager.common.serving.access_metrics import AuthorizationMetrics as RequestMetrics
from controller_manager.common.serving.authorization import Authorizer
from controller_manager.common.transport.dialer import Dialer


class AuthorizationParts(msgspec.Struct, frozen=True):
    """The parts of a server needed for authorizers. Without `dialer`, webhooks are called directly. Long work is done
    by `run`.
    """

    store: WatchCache
    runtime: Runtime
    dialer: Dialer | None = None
    run: StepRunner = at_once


class Authorization:
    """The authorization of a server: `of_requests` is for requests and counts them, `authorizer` for other checks.
    `anonymous_paths` are the paths at which anonymous requests reach the authorizer, None for all. `rbac` reads the
    roles even if RBAC is not enabled.

    Raises `ValueError` for unusable flags and files.
    """

    def __init__(self, options: AuthorizationOptions, parts: AuthorizationParts) -> None:
        self._options = options
        self._parts = parts
        self._log = parts.runtime.log("authorization")
        self._metrics = AuthorizationMetrics(parts.runtime.registry)
        self._file = _file(options.authorization_config)
        begun = from_flags(options) if self._file is None else self._file.configuration
        self.rbac = RBACAuthorizer(parts.store)
        self._node = NodeAuthorizer(NodeGraph(parts.store, parts.runtime.registry)) if "Node" in begun.types else None
        self._lasting = self._made_once(begun)
        self.authorizer = ConfiguredAuthorizer(begun, self._make, self._metrics)
        self.of_requests = RequestAuthorizer(self.authorizer, RequestMetrics(parts.runtime.registry))
        # AlwaysAllow does not apply to anonymous users; kube-apiserver disables anonymous requests with that mode.
        self.anonymous_paths: Container[str] | None = PUBLIC if "AlwaysAllow" in begun.types else None

    def read(self) -> None:
        """Read the watch cache after it is open."""
        self.rbac.read()

    async def run(self) -> None:
        """Log a warning about AlwaysAllow, and reload the configuration file, if any, until canceled."""
        if self.anonymous_paths is not None:
            self._log.warning(
                "AlwaysAllow: authenticated users may do everything, and anonymous users may read health and version"
            )
        if self._file is not None:
            metrics = ReloadMetrics("authorization", self._parts.runtime.registry)
            await self._file.follow(self.authorizer, metrics, self._log)

    async def close(self) -> None:
        """End the connections to webhooks."""
        await self.authorizer.close()

    def _made_once(self, begun: AuthorizationConfiguration) -> dict[str, Authorizer]:
        """Return, by type, the authorizers that are kept when the file changes."""
        found: dict[str, Authorizer] = {}
        if "RBAC" in begun.types:
            found["RBAC"] = self.rbac
        if self._node is not None:
            found["Node"] = self._node
        if "ABAC" in begun.types:
            file = self._options.authorization_policy_file
            if not file:
                raise ValueError("--authorization-policy-file must be given for an authorizer of the type ABAC")
            try:
                found["ABAC"] = ABACAuthorizer(read_policies(Path(file)))
            except ValueError as error:
                raise ValueError(f"--authorization-policy-file: {error}") from None
        return found

    def _make(self, configuration: AuthorizationConfiguration) -> list[Authorizer]:
        return [self._made(index, each) for index, each in enumerate(configuration.authorizers)]

    def _made(self, index: int, of: AuthorizerConfiguration) -> Authorizer:
        if of.type == "AlwaysAllow":
            return AlwaysAllow()
        if of.type == "AlwaysDeny":
            return AlwaysDeny()
        if of.type != "Webhook":
            lasting = self._lasting.get(of.type)
            if lasting is None:
                raise ValueError(f"authorizers[{index}].type: {of.type} cannot be added while the server runs")
            return lasting
        from apiserver_stub.authz.webhook import webhook_authorizer  # loads CEL, which many servers do not need

        named = "--authorization-webhook-config-file"
        if self._file is not None:
            named = f"--authorization-config: authorizers[{index}].connectionInfo.kubeConfigFile"
        return webhook_authorizer(of, named, self._metrics, self._log, self._parts.dialer, self._parts.run)


def _file(path: str) -> ConfigurationFile | None:
    try:
        return ConfigurationFile(Path(path)) if path else None
    except ConfigFileError as error:
        raise ConfigFileError(f"--authorization-config: {error}") from None


def build_authorization(options: Parsed, parts: AuthorizationParts) -> Authorization:
    """Return the authorization described by flags. Raises `ValueError` if it is invalid."""
    return Authorization(options[AuthorizationOptions], parts)
