"""Authorization put together: the authorizers that the flags name, in their order, behind that of administrators."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from apiserver_stub.authz.always import PUBLIC, AlwaysAllow, AlwaysDeny
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


_MODES: Mapping[str, Callable[[Parts], Authorizer]] = MappingProxyType(
    {
        "AlwaysAllow": lambda _: AlwaysAllow(),
        "AlwaysDeny": lambda _: AlwaysDeny(),
    }
)


@dataclass(frozen=True, slots=True)
class Authorization:
    """How a server decides what callers may do: `anonymous_paths` are those at which the unknown are let through to
    the authorizer, None for all.
    """

    authorizer: Authorizer
    anonymous_paths: Container[str] | None


def build_authorization(parts: Parts) -> Authorization:
    """Return the authorization that the flags describe. Raises `ValueError` for one that cannot be had."""
    modes = parts.options[AuthorizationOptions].modes
    # Who is unknown is no user that "always allow" means; upstream turns anonymous requests off with that mode.
    anonymous_paths = PUBLIC if "AlwaysAllow" in modes else None
    return Authorization(AuthorizerChain([PrivilegedGroups([ADMIN_GROUP]), *_chosen(parts, modes)]), anonymous_paths)


def _chosen(parts: Parts, modes: Sequence[str]) -> list[Authorizer]:
    for mode in modes:
        if mode not in _MODES:
            raise ValueError(f"--authorization-mode: {mode} is not served")
    return [_MODES[mode](parts) for mode in modes]
