"""Flags of the authorization of callers."""

from typing import ClassVar

from pydantic import field_validator

from controller_manager.options import Duration, Options, StringList, flag


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
