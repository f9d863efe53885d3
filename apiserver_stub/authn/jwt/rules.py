"""Validation of authentication configurations (document 2): reports all errors and compiles the expressions."""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from apiserver_stub.authn.jwt.configuration import (
    AuthenticationConfiguration,
    ClaimMappings,
    ClaimOrExpression,
    ClaimValidationRule,
    ExtraMapping,
    Issuer,
    JWTAuthenticator,
    PrefixedClaimOrExpression,
    UserValidationRule,
)
from apiserver_stub.authn.jwt.expressions import (
    Expression,
    ExpressionError,
    compile_claim_rule,
    compile_mapping,
    compile_user_rule,
)
from apiserver_stub.common.error_list import ErrorList, FieldPath, render
from apiserver_stub.kinds.values.names import subdomain
from controller_manager.common.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.common.base.errors import CannotStart
from controller_manager.common.cel.library import url
from controller_manager.common.cel.values import EvaluationError
from controller_manager.common.transport.transport import Endpoint, client_context

_MOST = 64  # authenticators
_MATCH_ANY = "MatchAny"
_EGRESS = ("controlplane", "cluster")
_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")
_RESERVED = (GROUP_DOMAIN, PLATFORM_DOMAIN)
_EITHER = "claim and expression can't both be set"
_ONE = "claim or expression is required"
_UNVERIFIED = (
    "claims.email_verified must be used in claimMappings.username.expression or "
    "claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in "
    "claimMappings.username.expression"
)


@dataclass(frozen=True, slots=True)
class ClaimCondition:
    """An expression that must be true, and the message if it is not."""

    expression: Expression
    message: str = ""


class Expressions(msgspec.Struct, frozen=True):
    """The compiled expressions of one authenticator."""

    username: Expression | None = None
    groups: Expression | None = None
    uid: Expression | None = None
    extra: tuple[tuple[str, Expression], ...] = ()
    claim_rules: tuple[ClaimCondition, ...] = ()
    user_rules: tuple[ClaimCondition, ...] = ()


def check(
    configuration: AuthenticationConfiguration, disallowed: Collection[str], errors: ErrorList
) -> tuple[Expressions, ...]:
    """Compile the expressions of each authenticator; use them only if there are no errors. The `disallowed` issuers are
    those of service account tokens.
    """
    root: FieldPath = (None, "jwt")
    if len(configuration.jwt) > _MOST:
        errors.too_many(root, len(configuration.jwt), _MOST)
        return ()
    compiled = []
    issuers: set[str] = set()
    discovery: set[str] = set()
    for index, one in enumerate(configuration.jwt):
        at = (root, index)
        compiled.append(_Rules(errors).authenticator(one, disallowed, at))
        _once(issuers, one.issuer.url, ((at, "issuer"), "url"), errors)
        if one.issuer.discovery_url:
            _once(discovery, one.issuer.discovery_url, ((at, "issuer"), "discoveryURL"), errors)
    anonymous = configuration.anonymous
    if anonymous is not None and anonymous.conditions and not anonymous.enabled:
        paths = [{"path": one.path} for one in anonymous.conditions]
        why = "enabled should be set to true when conditions are defined"
        errors.invalid(((None, "anonymous"), "conditions"), paths, why)
    return tuple(compiled)


def _once(seen: set[str], value: str, at: FieldPath, errors: ErrorList) -> bool:
    """Report a duplicate value; return whether the value is new."""
    if value in seen:
        errors.duplicate(at, value)
        return False
    seen.add(value)
    return True


def _check_issuer(issuer: Issuer, disallowed: Collection[str], at: FieldPath, errors: ErrorList) -> None:
    if issuer.url:
        _check_url(issuer.url, disallowed, (at, "url"), errors)
    else:
        errors.required((at, "url"))
    if issuer.discovery_url:
        place = (at, "discoveryURL")
        if issuer.url and issuer.url.rstrip("/") == issuer.discovery_url.rstrip("/"):
            errors.invalid(place, issuer.discovery_url, "discoveryURL must be different from URL")
        _check_url(issuer.discovery_url, (), place, errors)
    _check_audiences(issuer, at, errors)
    if issuer.certificate_authority:
        try:
            client_context(Endpoint(issuer.url, issuer.certificate_authority.encode()), b"", b"")
        except CannotStart:
            errors.invalid((at, "certificateAuthority"), "<omitted>", "it holds no usable certificate in PEM")
    if issuer.egress_selector_type and issuer.egress_selector_type not in _EGRESS:
        why = "egress selector must be either controlplane or cluster"
        errors.invalid((at, "egressSelectorType"), issuer.egress_selector_type, why)


def _check_url(text: str, disallowed: Collection[str], at: FieldPath, errors: ErrorList) -> None:
    if text in disallowed:
        issuers = " ".join(sorted(disallowed))
        errors.invalid(at, text, f"URL must not overlap with disallowed issuers: [{issuers}]")
    try:
        found = url.parse_reference(text)
    except EvaluationError:
        errors.invalid(at, text, "must be a valid URL")
        return
    wrong = (
        (found.scheme != "https", "URL scheme must be https"),
        (found.user is not None, "URL must not contain a username or password"),
        (bool(found.query), "URL must not contain a query"),
        (bool(found.fragment.plain), "URL must not contain a fragment"),
    )
    for is_wrong, why in wrong:
        if is_wrong:
            errors.invalid(at, text, why)


def _check_audiences(issuer: Issuer, at: FieldPath, errors: ErrorList) -> None:
    audiences, policy = issuer.audiences, issuer.audience_match_policy
    place = (at, "audiences")
    if not audiences:
        errors.required(place, f"at least one {render(place)} is required")
        return
    seen: set[str] = set()
    for index, audience in enumerate(audiences):
        if not audience:
            errors.required((place, index))
        _once(seen, audience, (place, index), errors)
    if len(audiences) > 1 and policy != _MATCH_ANY:
        why = "audienceMatchPolicy must be MatchAny for multiple audiences"
        errors.invalid((at, "audienceMatchPolicy"), policy, why)
    if len(audiences) == 1 and policy not in ("", _MATCH_ANY):
        why = "audienceMatchPolicy must be empty or MatchAny for single audience"
        errors.invalid((at, "audienceMatchPolicy"), policy, why)


class _Rules(msgspec.Struct):
    """Validates one authenticator."""

    errors: ErrorList
    found: Expressions = msgspec.field(default_factory=Expressions)

    def authenticator(self, one: JWTAuthenticator, disallowed: Collection[str], at: FieldPath) -> Expressions:
        """Report validation errors; return the compiled expressions."""
        _check_issuer(one.issuer, disallowed, (at, "issuer"), self.errors)
        rules = self._claim_rules(one.claim_validation_rules, (at, "claimValidationRules"))
        self.found = replace(self.found, claim_rules=rules)
        self._mappings(one.claim_mappings, (at, "claimMappings"))
        rules = self._user_rules(one.user_validation_rules, (at, "userValidationRules"))
        return replace(self.found, user_rules=rules)

    def _claim_rules(self, rules: Sequence[ClaimValidationRule], at: FieldPath) -> tuple[ClaimCondition, ...]:
        errors = self.errors
        claims: set[str] = set()
        texts: set[str] = set()
        found = []
        for index, rule in enumerate(rules):
            place = (at, index)
            if rule.claim and rule.expression:
                errors.invalid(place, rule.claim, _EITHER)
            elif rule.claim:
                if rule.message:
                    errors.invalid((place, "message"), rule.message, "may not be specified when claim is set")
                _once(claims, rule.claim, (place, "claim"), errors)
            elif rule.expression:
                if rule.required_value:
                    why = "may not be specified when expression is set"
                    errors.invalid((place, "requiredValue"), rule.required_value, why)
                if _once(texts, rule.expression, (place, "expression"), errors):
                    compiled = self._compiled(compile_claim_rule, rule.expression, (place, "expression"))
                    found += [ClaimCondition(compiled, rule.message)] if compiled else []
            else:
                errors.required(place, _ONE)
        return tuple(found)

    def _user_rules(self, rules: Sequence[UserValidationRule], at: FieldPath) -> tuple[ClaimCondition, ...]:
        texts: set[str] = set()
        found = []
        for index, rule in enumerate(rules):
            place = ((at, index), "expression")
            if not rule.expression:
                self.errors.required(place)
            elif _once(texts, rule.expression, place, self.errors):
                compiled = self._compiled(compile_user_rule, rule.expression, place)
                found += [ClaimCondition(compiled, rule.message)] if compiled else []
        return tuple(found)

    def _mappings(self, mappings: ClaimMappings, at: FieldPath) -> None:
        name = mappings.username
        if not name.claim and not name.expression:
            self.errors.required((at, "username"), _ONE)
        username = self._prefixed(name, (at, "username"))
        groups = self._prefixed(mappings.groups, (at, "groups"))
        uid = self._uid(mappings.uid, (at, "uid"))
        extra = self._extra(mappings.extra, (at, "extra"))
        self.found = replace(self.found, username=username, groups=groups, uid=uid, extra=extra)
        if username is not None and username.selects("email") and not self._verifies_email():
            self.errors.invalid(((at, "username"), "expression"), name.expression, _UNVERIFIED)

    def _verifies_email(self) -> bool:
        found = self.found
        looking = [found.username, *(one for _, one in found.extra), *(rule.expression for rule in found.claim_rules)]
        return any(one is not None and one.selects("email_verified") for one in looking)

    def _prefixed(self, mapping: PrefixedClaimOrExpression, at: FieldPath) -> Expression | None:
        errors = self.errors
        if mapping.claim and mapping.expression:
            errors.invalid(at, "", _EITHER)
            return None
        if mapping.claim and mapping.prefix is None:
            why = "prefix is required when claim is set. It can be set to an empty string to disable prefixing"
            errors.required((at, "prefix"), why)
        if not mapping.expression:
            return None
        is_prefixed = mapping.prefix is not None
        if is_prefixed:
            errors.invalid((at, "prefix"), mapping.prefix, "may not be specified when expression is set")
        compiled = self._compiled(compile_mapping, mapping.expression, (at, "expression"))
        return None if is_prefixed else compiled

    def _uid(self, mapping: ClaimOrExpression, at: FieldPath) -> Expression | None:
        if mapping.claim and mapping.expression:
            self.errors.invalid(at, "", _EITHER)
            return None
        return self._compiled(compile_mapping, mapping.expression, (at, "expression")) if mapping.expression else None

    def _extra(self, mappings: Sequence[ExtraMapping], at: FieldPath) -> tuple[tuple[str, Expression], ...]:
        keys: set[str] = set()
        found = []
        for index, mapping in enumerate(mappings):
            place = (at, index)
            _check_key(mapping.key, (place, "key"), self.errors)
            if not _once(keys, mapping.key, (place, "key"), self.errors):
                continue
            if not mapping.value_expression:
                self.errors.required((place, "valueExpression"))
                continue
            compiled = self._compiled(compile_mapping, mapping.value_expression, (place, "valueExpression"))
            found += [(mapping.key, compiled)] if compiled else []
        return tuple(found)

    def _compiled(self, compiling: Callable[[str], Expression], text: str, at: FieldPath) -> Expression | None:
        try:
            return compiling(text)
        except ExpressionError as error:
            if error.internal:
                self.errors.internal(at, str(error))
            else:
                self.errors.invalid(at, text, str(error))
            return None


def _check_key(key: str, at: FieldPath, errors: ErrorList) -> None:
    """Check that an extra key is a lower-case, domain-prefixed path, not in a Kubernetes domain."""
    domain, _, path = key.partition("/")
    if not key:
        errors.required(at)
    elif not domain or not path:
        errors.invalid(at, key, 'must be a domain-prefixed path (such as "acme.io/foo")')
    else:
        if why := subdomain(domain):
            errors.invalid(at, domain, why)
        if not _PATH.fullmatch(path):
            errors.invalid(at, path, "must be characters of a URL path (RFC 3986)")
    if key != key.lower():
        errors.invalid(at, key, "must be lowercase")
    if "/" in key and any(domain == one or domain.endswith(f".{one}") for one in _RESERVED):
        errors.invalid(at, key, "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use")
