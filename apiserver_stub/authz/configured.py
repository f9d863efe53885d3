"""The authorizers of an AuthorizationConfiguration, which can be replaced at any time."""

from collections.abc import Callable, Collection, Coroutine
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from apiserver_stub.authz.configuration import KIND, TYPES, WEBHOOK, AuthorizationConfiguration, check
from apiserver_stub.authz.metrics import AuthorizationMetrics
from apiserver_stub.common.config_file import (
    ConfigFileError,
    FileWatcher,
    ReloadMetrics,
    parse_config,
    read_bytes,
    refuse_causes,
)
from controller_manager.common.api.platform import ADMIN_GROUP
from controller_manager.common.base.clock import precise_clock
from controller_manager.common.base.log import Logger
from controller_manager.common.serving.access_metrics import AuthorizationMetrics as RequestMetrics
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import (
    Authorization,
    Authorizer,
    AuthorizerAttributes,
    AuthorizerChain,
    Decision,
    PrivilegedGroups,
    Rules,
)

Make = Callable[[AuthorizationConfiguration], list[Authorizer]]
"""Makes the authorizers of a configuration, in its order. Raises `ValueError`."""


class ConfiguredAuthorizer:
    """Decides with the current configuration, after the authorizer for administrators."""

    def __init__(self, configuration: AuthorizationConfiguration, make: Make, metrics: AuthorizationMetrics) -> None:
        self._make = make
        self._metrics = metrics
        self._authorizers: list[Authorizer] = []
        self._chain = AuthorizerChain([])
        self.use(configuration)

    def authorize(self, attributes: AuthorizerAttributes) -> Coroutine[Any, Any, Authorization]:
        """Return the first opinion, or NO_OPINION with the reasons of all."""
        return self._chain.authorize(attributes)

    def rules_for(self, user: User, namespace: str) -> Coroutine[Any, Any, Rules]:
        """Return the rules of all authorizers together."""
        return self._chain.rules_for(user, namespace)

    def use(self, configuration: AuthorizationConfiguration) -> list[Authorizer]:
        """Switch to a configuration; return the authorizers no longer in use. Raises `ValueError`, without any change,
        for an unusable configuration.
        """
        made = self._make(configuration)
        names = {one: (each.type, each.name) for one, each in zip(made, configuration.authorizers, strict=True)}

        def decided(authorizer: Authorizer, decision: Decision) -> None:
            name = names.get(authorizer)
            if name is not None:
                self._metrics.decided(*name, decision)

        unused = [one for one in self._authorizers if one not in names]
        self._authorizers = made
        self._chain = AuthorizerChain([PrivilegedGroups([ADMIN_GROUP]), *made], decided)
        return unused

    async def close(self) -> None:
        """End the connections of all authorizers."""
        await retire(self._authorizers)


class RequestAuthorizer:
    """Decides about requests as another authorizer does, and counts that."""

    def __init__(self, authorizer: Authorizer, metrics: RequestMetrics) -> None:
        self._authorizer = authorizer
        self._metrics = metrics
        self._now = precise_clock()

    async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        """Return the decision of the wrapped authorizer."""
        began = self._now()
        authorization = await self._authorizer.authorize(attributes)
        decision = authorization.decision
        failed = decision is not Decision.ALLOW and authorization.error
        self._metrics.authorized(None if failed else decision, self._now() - began)
        return authorization

    def rules_for(self, user: User, namespace: str) -> Coroutine[Any, Any, Rules]:
        """Return the rules of the other."""
        return self._authorizer.rules_for(user, namespace)


@runtime_checkable
class _Retiring(Protocol):
    async def retire(self) -> None:
        """Close connections after the running reviews."""


async def retire(authorizers: Collection[Authorizer]) -> None:
    """Release authorizers that are no longer in use."""
    for authorizer in authorizers:
        if isinstance(authorizer, _Retiring):
            await authorizer.retire()


class ConfigurationFile:
    """The file of `--authorization-config`. Raises `ConfigFileError` if it is unusable."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data = read_bytes(path)
        self._in_use = self._parsed(self._data, ())

    @property
    def configuration(self) -> AuthorizationConfiguration:
        """Return the configuration in use."""
        return self._in_use

    async def follow(self, authorizer: ConfiguredAuthorizer, metrics: ReloadMetrics, log: Logger) -> None:
        """Apply each change of the file to an authorizer, until canceled. An unusable file changes nothing; authorizer
        types other than webhooks must stay the same.
        """
        required = self._in_use.types - {WEBHOOK}
        metrics.in_use(self._data)

        async def apply(data: bytes) -> None:
            found = self._parsed(data, required)
            if found == self._in_use:
                return
            try:
                unused = authorizer.use(found)
            except ValueError as error:
                raise ConfigFileError(f"{self._path}: {error}") from None
            self._in_use = found
            metrics.succeeded(data)
            log.info("reloaded the authorization configuration", file=str(self._path))
            await retire(unused)

        def failed(error: ConfigFileError) -> None:
            metrics.failed()
            log.error("failed to reload the authorization configuration; keeping the current one", why=str(error))

        await FileWatcher(self._path, self._data, apply, failed).run()

    def _parsed(self, data: bytes, required: Collection[str]) -> AuthorizationConfiguration:
        found = parse_config(data, self._path, KIND, TYPES)
        refuse_causes(self._path, check(found, _judged, required).causes)
        return found


def _judged(expression: str) -> str:
    """Return the error of a match condition expression."""
    from apiserver_stub.authz.review_spec import condition_environment  # loads CEL, which is needed only for conditions
    from apiserver_stub.webhooks.match_conditions import ConditionError, compile_condition

    try:
        compile_condition(expression, condition_environment())
    except ConditionError as error:
        return str(error)
    return ""
