"""Flags of the authentication and authorization of callers."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from pydantic import field_validator

from controller_manager.common.base.log import Logger
from controller_manager.common.component.request_headers import RequestHeaderOptions
from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.types import Duration, StringList
from controller_manager.common.serving.trust import CLIENTS, PROXIES, Trust, UnusableAuthorities, read_authorities

# Flags of the authentication of callers: by client certificates, proxies and tokens.

_LOOK_AGAIN = 60.0  # seconds between checks of files that may change


class AuthenticationOptions(RequestHeaderOptions):
    """Flags of authentication."""

    title: ClassVar[str] = "Authentication"

    authentication_clusterconfig: str = flag(
        "",
        "client configuration file with permission to create tokenreviews; without it callers with a token are "
        "anonymous, and no authorities are looked up",
        aliases=("authentication-kubeconfig",),
        metavar="file",
    )
    use_client_config_for_access_checks: bool = flag(
        False,
        "where --authentication-kubeconfig or --authorization-kubeconfig is not given, ask the API server of the "
        "client configuration, with its credentials; if no published authorities can be looked up, start without them",
    )
    authentication_skip_lookup: bool = flag(
        False,
        "do not look up what the flags leave open in the ConfigMap kube-system/extension-apiserver-authentication",
    )
    authentication_tolerate_lookup_failure: bool = flag(
        False,
        "start even if that lookup fails; until it succeeds, only client certificates of authorities set by flags are "
        "accepted",
    )
    authentication_token_webhook_cache_ttl: Duration = flag(
        "10s", "how long the API server's answer about a bearer token is remembered; 0 not at all", minimum=0
    )
    client_ca_file: str = flag(
        "",
        "file of the authorities whose client certificates are believed; the common name is the user and the "
        "organizations are the groups; looked up if empty",
        metavar="file",
    )
    requestheader_client_ca_file: str = flag(
        "",
        "file of the authorities of proxies, which say in headers for whom they speak; if empty, it and what of the "
        "following flags is not given is looked up",
        metavar="file",
    )


def believe_files(options: AuthenticationOptions, trust: Trust) -> None:
    """Trust the authorities in the files of the flags. Raises UnusableAuthorities."""
    for name, purpose, path in _files(options):
        trust.set(purpose, read_authorities(Path(path), f"--{name}"))


async def follow_files(options: AuthenticationOptions, trust: Trust, log: Logger) -> None:
    """Reload those files when they change, until cancelled. Each problem is logged once."""
    reported: dict[str, str] = {}
    while files := list(_files(options)):
        await asyncio.sleep(_LOOK_AGAIN)
        for name, purpose, path in files:
            problem = ""
            try:
                trust.set(purpose, read_authorities(Path(path), f"--{name}"))
            except UnusableAuthorities as error:
                problem = str(error)
            if problem and reported.get(name) != problem:
                log.warning("authorities are kept as they were", error=problem)
            reported[name] = problem


def _files(options: AuthenticationOptions) -> Iterator[tuple[str, str, str]]:
    """Yield flag, purpose and path of each given file."""
    if options.client_ca_file:
        yield "client-ca-file", CLIENTS, options.client_ca_file
    if options.requestheader_client_ca_file:
        yield "requestheader-client-ca-file", PROXIES, options.requestheader_client_ca_file


# Flags of the authorization of callers.


class AuthorizationOptions(Options):
    """Flags of authorization."""

    title: ClassVar[str] = "Authorization"

    authorization_clusterconfig: str = flag(
        "",
        "client configuration file with the right to create subjectaccessreviews; without it only open paths are "
        "answered, and members of system:masters",
        aliases=("authorization-kubeconfig",),
        metavar="file",
    )
    authorization_always_allow_paths: StringList = flag(
        ("/healthz", "/readyz", "/livez"),
        "paths anybody may see without the API server being asked; one that ends in * stands for all that begin so",
    )
    authorization_webhook_cache_authorized_ttl: Duration = flag(
        "10s",
        "how long the API server's answer that a caller may see a page is remembered; 0 not at all",
        minimum=0,
    )
    authorization_webhook_cache_unauthorized_ttl: Duration = flag(
        "10s",
        "how long the API server's answer that a caller may not see a page is remembered; 0 not at all",
        minimum=0,
    )

    @field_validator("authorization_always_allow_paths")
    @classmethod
    def _end_in_star(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [path for path in value if "*" in path[:-1]]
        if wrong:
            raise ValueError(f"only the end of a path may be *, got {wrong[0]!r}")
        return value
