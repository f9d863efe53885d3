"""What callers of this process may see, as its flags describe it."""

from typing import ClassVar

from controller_manager.options import Duration, Options, StringList, flag


class AuthorizationOptions(Options):
    """Who may see what is served."""

    title: ClassVar[str] = "Authorization"

    authorization_clusterconfig: str = flag(
        "",
        "client configuration file with the right to create subjectaccessreviews; without it only open paths are "
        "answered",
        aliases=("authorization-kubeconfig",),
        metavar="file",
    )
    authorization_always_allow_paths: StringList = flag(
        ("/healthz", "/readyz", "/livez"), "paths anybody may see, with all that lies below them"
    )
    authorization_webhook_cache_authorized_ttl: Duration = flag(
        "10s", "how long the API server's answer that a caller may see a page is remembered", minimum=0
    )
    authorization_webhook_cache_unauthorized_ttl: Duration = flag(
        "10s", "how long the API server's answer that a caller may not see a page is remembered", minimum=0
    )
