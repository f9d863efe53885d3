"""Who calls this process: client certificates and bearer tokens, as its flags describe it."""

from pathlib import Path
from typing import ClassVar

from controller_manager.client import ConfigError
from controller_manager.options import Duration, Options, flag
from controller_manager.serving.trust import CLIENTS, Trust


class AuthenticationOptions(Options):
    """Whose callers are believed to be who they say."""

    title: ClassVar[str] = "Authentication"

    authentication_clusterconfig: str = flag(
        "",
        "client configuration file with the right to create tokenreviews; without it no token is believed, and no "
        "client authorities are looked up",
        aliases=("authentication-kubeconfig",),
        metavar="file",
    )
    client_ca_file: str = flag(
        "",
        "file of the authorities whose client certificates are believed; the common name is the user and the "
        "organizations are the groups",
        metavar="file",
    )
    authentication_token_webhook_cache_ttl: Duration = flag(
        "10s", "how long the API server's answer about a bearer token is remembered", minimum=0
    )


def believe_files(options: AuthenticationOptions, trust: Trust) -> None:
    """Believe the authorities that the flags name files of. Raises ConfigError."""
    if options.client_ca_file:
        try:
            trust.set(CLIENTS, Path(options.client_ca_file).read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"--client-ca-file: {options.client_ca_file} holds no certificates that can be read: {error}"
            ) from error
