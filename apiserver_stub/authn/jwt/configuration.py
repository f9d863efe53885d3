"""The types of the `--authentication-config` file, and the `--oidc-*` flags converted to them."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from apiserver_stub.common.config_file import ConfigDocument, ConfigFileError, ConfigModel, parse_config
from apiserver_stub.common.flags import AuthenticationOptions
from controller_manager.common.api.platform import GROUP_DOMAIN

KIND = "AuthenticationConfiguration"


class Issuer(ConfigModel):
    """An OpenID provider: its issuer URL, its discovery URL, and the required audiences of its tokens."""

    url: str = ""
    discovery_url: str = msgspec.field(name="discoveryURL", default="")
    certificate_authority: str = ""
    audiences: tuple[str, ...] = ()
    audience_match_policy: str = ""
    egress_selector_type: str = ""


class ClaimValidationRule(ConfigModel):
    """A claim with a required value, or an expression over claims that must be true."""

    claim: str = ""
    required_value: str = ""
    expression: str = ""
    message: str = ""


class PrefixedClaimOrExpression(ConfigModel):
    """A claim with a prefix before its value, or an expression."""

    claim: str = ""
    prefix: str | None = None
    expression: str = ""


class ClaimOrExpression(ConfigModel):
    """A claim, or an expression."""

    claim: str = ""
    expression: str = ""


class ExtraMapping(ConfigModel):
    """A key of the extra of a user, and the expression of its values."""

    key: str = ""
    value_expression: str = ""


class ClaimMappings(ConfigModel):
    """The mapping of claims to user attributes."""

    username: PrefixedClaimOrExpression = PrefixedClaimOrExpression()
    groups: PrefixedClaimOrExpression = PrefixedClaimOrExpression()
    uid: ClaimOrExpression = ClaimOrExpression()
    extra: tuple[ExtraMapping, ...] = ()


class UserValidationRule(ConfigModel):
    """An expression over the user that must be true."""

    expression: str = ""
    message: str = ""


class JWTAuthenticator(ConfigModel):
    """One issuer, and the users that its tokens make."""

    issuer: Issuer = Issuer()
    claim_validation_rules: tuple[ClaimValidationRule, ...] = ()
    claim_mappings: ClaimMappings = ClaimMappings()
    user_validation_rules: tuple[UserValidationRule, ...] = ()


class AnonymousAuthCondition(ConfigModel):
    """A path that allows anonymous requests."""

    path: str = ""


class AnonymousAuthConfig(ConfigModel):
    """Whether anonymous requests are allowed: on all paths, or on those of the conditions."""

    enabled: bool = False
    conditions: tuple[AnonymousAuthCondition, ...] = ()


class AuthenticationConfiguration(ConfigDocument):
    """The whole file; all versions have the same fields."""

    jwt: tuple[JWTAuthenticator, ...] = ()
    anonymous: AnonymousAuthConfig | None = None


VERSIONS: Mapping[str, type[AuthenticationConfiguration]] = MappingProxyType(
    {
        f"apiserver.config.{GROUP_DOMAIN}/v1": AuthenticationConfiguration,
        f"apiserver.config.{GROUP_DOMAIN}/v1beta1": AuthenticationConfiguration,
        f"apiserver.config.{GROUP_DOMAIN}/v1alpha1": AuthenticationConfiguration,
        f"apiserver.{GROUP_DOMAIN}/v1beta1": AuthenticationConfiguration,  # documented; servers accept the first three
    }
)


def parse(data: bytes, path: Path) -> AuthenticationConfiguration:
    """Parse the bytes of a configuration file. Raises `ConfigFileError`."""
    return parse_config(data, path, KIND, VERSIONS)


def from_flags(options: AuthenticationOptions) -> AuthenticationConfiguration:
    """Return the configuration of the `--oidc-*` flags: one authenticator, or none without an issuer. Raises
    `ConfigFileError` if the CA file cannot be read.

    | --oidc-username-prefix | --oidc-username-claim | username prefix     |
    |------------------------|-----------------------|---------------------|
    | `-`                    | any                   | none                |
    | other text             | any                   | that                |
    | empty                  | `email`               | none                |
    | empty                  | other                 | the issuer and `#`  |
    """
    version = next(iter(VERSIONS))
    if not options.oidc_issuer_url:
        return AuthenticationConfiguration(api_version=version, kind=KIND)
    issuer = Issuer(
        url=options.oidc_issuer_url,
        audiences=(options.oidc_client_id,),
        certificate_authority=_authorities(options.oidc_ca_file),
    )
    groups = PrefixedClaimOrExpression()
    if options.oidc_groups_claim:
        groups = PrefixedClaimOrExpression(claim=options.oidc_groups_claim, prefix=options.oidc_groups_prefix)
    username = PrefixedClaimOrExpression(claim=options.oidc_username_claim, prefix=_username_prefix(options))
    required = options.oidc_required_claim.items()
    one = JWTAuthenticator(
        issuer=issuer,
        claim_validation_rules=tuple(ClaimValidationRule(claim=name, required_value=value) for name, value in required),
        claim_mappings=ClaimMappings(username=username, groups=groups),
    )
    return AuthenticationConfiguration(api_version=version, kind=KIND, jwt=(one,))


def _username_prefix(options: AuthenticationOptions) -> str:
    prefix = options.oidc_username_prefix
    if prefix == "-":
        return ""
    return prefix or ("" if options.oidc_username_claim == "email" else f"{options.oidc_issuer_url}#")


def _authorities(file: str) -> str:
    if not file:
        return ""
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigFileError(f"--oidc-ca-file: {file} can't be read: {error.strerror}") from None
