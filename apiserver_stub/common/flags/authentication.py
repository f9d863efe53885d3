"""Flags of authentication: how callers are recognized."""

from typing import Self

from pydantic import model_validator

from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.types import StringList, StringPairs

SIGNING_ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512")
"""The allowed signing algorithms of OIDC tokens."""


class AuthenticationOptions(Options):
    """Authentication of callers."""

    title = "Authentication"

    client_ca_file: str = flag(
        "",
        "File with certificate authorities for client certificates, in addition to the server's own; reloaded "
        "when it changes.",
    )
    token_auth_file: str = flag("", 'File of bearer tokens; lines of token,user,uid and optionally "group1,group2".')
    authentication_config: str = flag(
        "",
        "File with an AuthenticationConfiguration: the OpenID providers whose tokens are accepted, and which requests "
        "may be anonymous. Changes of the providers are reloaded. Mutually exclusive with --oidc-* flags, and with "
        "--anonymous-auth if the file configures anonymous requests.",
    )
    anonymous_auth: bool = flag(
        True,
        "Whether requests without credentials are those of system:anonymous, in the group system:unauthenticated. With "
        "--authorization-mode=AlwaysAllow they are so only on paths that anybody may read.",
    )
    oidc_issuer_url: str = flag(
        "", "The https URL of an OpenID provider whose tokens are accepted; needs --oidc-client-id."
    )
    oidc_client_id: str = flag("", "The audience that its tokens must be for.")
    oidc_ca_file: str = flag(
        "", "File of the authorities of its certificate; those of the system when empty. Read at the start."
    )
    oidc_username_claim: str = flag("sub", "The claim that names the user.")
    oidc_username_prefix: str = flag(
        "",
        "Put before the names of users; - puts nothing. When empty, the URL of the provider and # are put before those "
        "of claims other than email.",
    )
    oidc_groups_claim: str = flag("", "The claim of the groups, a string or a list of strings; no groups when empty.")
    oidc_groups_prefix: str = flag("", "Prefix added to group names.")
    oidc_signing_algs: StringList = flag(
        ("RS256",), f"Algorithms that its tokens may be signed with, of {', '.join(SIGNING_ALGORITHMS)}."
    )
    oidc_required_claim: StringPairs = flag({}, "A claim=value pair that tokens must have; repeatable.")

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        given = any(name.startswith("oidc_") for name in self.model_fields_set)
        if given and self.authentication_config:
            raise ValueError("--authentication-config and the --oidc-* flags exclude one another")
        if given and not (self.oidc_issuer_url and self.oidc_client_id):
            raise ValueError(
                "--oidc-issuer-url and --oidc-client-id must be given together, and with any --oidc-* flag"
            )
        unknown = [name for name in self.oidc_signing_algs if name not in SIGNING_ALGORITHMS]
        if unknown:
            known = ", ".join(SIGNING_ALGORITHMS)
            raise ValueError(f"--oidc-signing-algs: unknown algorithm {unknown[0]!r}; use one of {known}")
        return self

    @property
    def names_issuers(self) -> bool:
        """Whether OIDC tokens are accepted, now or after a change of the file."""
        return bool(self.authentication_config or self.oidc_issuer_url)
