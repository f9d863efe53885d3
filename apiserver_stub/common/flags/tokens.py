"""Flags of the tokens of service accounts."""

import re
from typing import Self
from urllib.parse import urlsplit

from pydantic import model_validator

from controller_manager.common.options import Duration, Options, StringList, flag

_ABSTRACT = re.compile(r"@([a-zA-Z0-9_-]+\.)*[a-zA-Z0-9_-]+")


class TokenOptions(Options):
    """Service account tokens: issuer, keys and lifetime."""

    title = "Service account tokens"

    service_account_issuer: StringList = flag(
        ("https://kubernetes.default.svc.cluster.local",),
        "Issuer of tokens, a URL or a name; of several the first issues, and tokens of all are accepted.",
    )
    service_account_signing_key_file: str = flag(
        "", "File of the private key tokens are signed with, RSA or ECDSA; made in --cert-dir as sa.key when empty."
    )
    service_account_signing_endpoint: str = flag(
        "",
        "Unix socket of a program that signs tokens and tells the keys to verify them with; @name is an abstract one. "
        "Not together with files of keys.",
    )
    service_account_key_file: StringList = flag(
        (),
        "File of keys that tokens are also verified with, public or private, RSA or ECDSA; repeatable. Needs "
        "--service-account-signing-key-file.",
    )
    service_account_jwks_uri: str = flag(
        "", "URL at which others find the keys to verify tokens with; that of this server when empty."
    )
    api_audiences: StringList = flag(
        (), "What this server is called by tokens that are meant for it; the issuers when empty."
    )
    service_account_max_token_expiration: Duration = flag(
        "0s", "Longest lifetime of a token, between 1h and 2^32 seconds; what asks for more gets this. 0 sets no bound."
    )
    service_account_extend_token_expiration: bool = flag(
        True,
        "Whether tokens that nodes ask for on behalf of pods last a year, so that programs which read theirs only once "
        "go on working.",
    )
    service_account_lookup: bool = flag(
        True, "Whether the service account of a token, and what the token is bound to, must exist when it is used."
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
            raise ValueError("--service-account-signing-endpoint begins with @, and is no name of an abstract socket")
        if self.service_account_key_file and not self.service_account_signing_key_file:
            raise ValueError("--service-account-key-file needs --service-account-signing-key-file")
        if self.service_account_jwks_uri and not self.service_account_jwks_uri.startswith("https://"):
            raise ValueError("--service-account-jwks-uri must be an https URL")
        longest = self.service_account_max_token_expiration
        if longest and not 3600 <= longest <= 1 << 32:
            raise ValueError("--service-account-max-token-expiration must be between 1h and 2^32 seconds, or 0")
        return self
