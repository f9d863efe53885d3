"""Authorization put together: the authorizers that the flags name, in their order, behind that of administrators."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from apiserver_stub.authz.always import PUBLIC, AlwaysAllow, AlwaysDeny
from apiserver_stub.authz.rbac import RBACAuthorizer
from apiserver_stub.flags import AuthorizationOptions
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.api.platform import ADMIN_GROUP
from controller_manager.options import Parsed
from controller_manager.serving.authorization import Authorizer, AuthorizerChain, PrivilegedGroups


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a server that authorizers are made of."""

    options: Parsed
    store: WatchCache
    rbac: RBACAuthorizer


_MODES: Mapping[str, Callable[[Parts], Authorizer]] = MappingProxyType(
    {
        "AlwaysAllow": lambda _: AlwaysAllow(),
        "AlwaysDeny": lambda _: AlwaysDeny(),
        "RBAC": lambda parts: parts.rbac,
    }
)


@dataclass(frozen=True, slots=True)
class Authorization:
    """How a server decides what callers may do: `anonymous_paths` are those at which the unknown are let through to
    the authorizer, None for all. `rbac` knows the roles, whether or not it is asked for decisions.
    """

    authorizer: Authorizer
    rbac: RBACAuthorizer
    anonymous_paths: Container[str] | None

    def read(self) -> None:
        """Take in what the watch cache has, once that is open."""
        self.rbac.read()


def build_authorization(options: Parsed, store: WatchCache) -> Authorization:
    """Return the authorization that the flags describe. Raises `ValueError` for one that cannot be had."""
    modes, rbac = options[AuthorizationOptions].modes, RBACAuthorizer(store)
    chosen = _chosen(Parts(options, store, rbac), modes)
    # Who is unknown is no user that "always allow" means; upstream turns anonymous requests off with that mode.
    anonymous_paths = PUBLIC if "AlwaysAllow" in modes else None
    return Authorization(AuthorizerChain([PrivilegedGroups([ADMIN_GROUP]), *chosen]), rbac, anonymous_paths)


def _chosen(parts: Parts, modes: Sequence[str]) -> list[Authorizer]:
    for mode in modes:
        if mode not in _MODES:
            raise ValueError(f"--authorization-mode: {mode} is not served")
    return [_MODES[mode](parts) for mode in modes]
