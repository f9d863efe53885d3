"""Flags of the tokens of service accounts."""

import re
from typing import Self
from urllib.parse import urlsplit

from pydantic import model_validator

from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.types import Duration, StringList

_ABSTRACT = re.compile(r"@([a-zA-Z0-9_-]+\.)*[a-zA-Z0-9_-]+")


class TokenOptions(Options):
    """Service account tokens: issuer, keys and lifetime."""

    title = "Service account tokens"

    service_account_issuer: StringList = flag(
        ("https://kubernetes.default.svc.cluster.local",),
        "Issuer of tokens, a URL or a name; of several, the first one issues tokens, and tokens of all are accepted.",
    )
    service_account_signing_key_file: str = flag(
        "", "File with the private key for signing tokens, RSA or ECDSA; created in --cert-dir as sa.key when empty."
    )
    service_account_signing_endpoint: str = flag(
        "",
        "Unix socket of an external signer that signs tokens and provides the public keys; @name is an abstract "
        "socket. Not together with key files.",
    )
    service_account_key_file: StringList = flag(
        (),
        "File with additional keys for verifying tokens, public or private, RSA or ECDSA; repeatable. Requires "
        "--service-account-signing-key-file.",
    )
    service_account_jwks_uri: str = flag(
        "", "URL of the public keys for verifying tokens; that of this server when empty."
    )
    api_audiences: StringList = flag((), "Audiences of this server in tokens; the issuers when empty.")
    service_account_max_token_expiration: Duration = flag(
        "0s",
        "Maximum lifetime of a token, between 1h and 2^32 seconds; longer requests are shortened. 0 sets no limit.",
    )
    service_account_extend_token_expiration: bool = flag(
        True,
        "Whether tokens requested by nodes for pods are valid for a year, so that programs that read their token "
        "only once keep working.",
    )
    service_account_lookup: bool = flag(
        True, "Whether the service account and the bound object of a token must exist when it is used."
    )

    @model_validator(mode="after")
    def _make_sense(self) -> Self:
        issuers = self.service_account_issuer
        if not issuers or not all(issuers) or len(set(issuers)) < len(issuers):
            raise ValueError("--service-account-issuer must name at least one issuer, and each of them once")
        if any(":" in issuer and not urlsplit(issuer).scheme for issuer in issuers):
            raise ValueError("--service-account-issuer has a colon, and so must be a URL")
        endpoint = self.service_account_signing_endpoint
        if endpoint and (self.service_account_signing_key_file or self.service_account_key_file):
            files = "--service-account-signing-key-file and --service-account-key-file"
            raise ValueError(f"--service-account-signing-endpoint and {files} exclude one another")
        if endpoint.startswith("@") and not _ABSTRACT.fullmatch(endpoint):
            raise ValueError("--service-account-signing-endpoint begins with @ but is not a valid abstract socket name")
        if self.service_account_key_file and not self.service_account_signing_key_file:
            raise ValueError("--service-account-key-file needs --service-account-signing-key-file")
        if self.service_account_jwks_uri and not self.service_account_jwks_uri.startswith("https://"):
            raise ValueError("--service-account-jwks-uri must be an https URL")
        longest = self.service_account_max_token_expiration
        if longest and not 3600 <= longest <= 1 << 32:
            raise ValueError("--service-account-max-token-expiration must be between 1h and 2^32 seconds, or 0")
        return self
