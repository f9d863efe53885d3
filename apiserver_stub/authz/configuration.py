"""AuthorizationConfiguration: the authorizers and their order (KEP-3221), from a file or from flags."""

import os
import stat
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

import msgspec

from apiserver_stub.common.config_file import ConfigDocument, ConfigModel, Seconds
from apiserver_stub.common.error_list import ErrorList, FieldPath
from apiserver_stub.common.flags.authorization import MODES, AuthorizationOptions
from apiserver_stub.kinds.values import names

KIND = "AuthorizationConfiguration"
WEBHOOK = "Webhook"
MOST_CONDITIONS = 64
_AUTHORIZED, _UNAUTHORIZED = 300.0, 30.0
_LONGEST_TIMEOUT = 30.0
_VERSIONS = ("v1", "v1beta1")
_CONDITION_VERSIONS = ("v1",)
_POLICIES = ("NoOpinion", "Deny")
_FILE_TYPES = ("KubeConfigFile", "ClusterConfigFile")
_IN_CLUSTER = "InClusterConfig"
_NONE = Seconds(0)


class MatchCondition(ConfigModel):
    """A CEL expression that must be true for the webhook to be called."""

    expression: str = ""


class ConnectionInfo(ConfigModel):
    """The server of a webhook: a kubeconfig file, which has two field names."""

    type: str = ""
    kube_config_file: str | None = None
    cluster_config_file: str | None = None

    @property
    def file(self) -> str:
        """Return the path of the file, or an empty string."""
        return self.kube_config_file or self.cluster_config_file or ""


class WebhookConfiguration(ConfigModel):
    """The settings of a webhook."""

    authorized_ttl: Seconds = msgspec.field(default=_NONE, name="authorizedTTL")
    cache_authorized_requests: bool = True
    unauthorized_ttl: Seconds = msgspec.field(default=_NONE, name="unauthorizedTTL")
    cache_unauthorized_requests: bool = True
    timeout: Seconds = _NONE
    subject_access_review_version: str = ""
    match_condition_subject_access_review_version: str = ""
    failure_policy: str = ""
    connection_info: ConnectionInfo = ConnectionInfo()
    match_conditions: tuple[MatchCondition, ...] = ()

    @property
    def remembered(self) -> tuple[float, float]:
        """Return the seconds to cache allowed and other responses; 0 disables caching."""
        return (
            (self.authorized_ttl or _AUTHORIZED) if self.cache_authorized_requests else 0.0,
            (self.unauthorized_ttl or _UNAUTHORIZED) if self.cache_unauthorized_requests else 0.0,
        )


class AuthorizerConfiguration(ConfigModel):
    """One authorizer; `name` is its label value in metrics."""

    type: str = ""
    name: str = ""
    webhook: WebhookConfiguration | None = None


class AuthorizationConfiguration(ConfigDocument):
    """The authorizers in order."""

    authorizers: tuple[AuthorizerConfiguration, ...] = ()

    @property
    def types(self) -> frozenset[str]:
        """Return the types of authorizers that there are."""
        return frozenset(each.type for each in self.authorizers)


TYPES: Mapping[str, type[AuthorizationConfiguration]] = MappingProxyType(
    dict.fromkeys(
        (
            "apiserver.config.k8s.io/v1",
            "apiserver.config.k8s.io/v1beta1",
            "apiserver.config.k8s.io/v1alpha1",
            "apiserver.k8s.io/v1beta1",
        ),
        AuthorizationConfiguration,
    )
)


def name_of(mode: str) -> str:
    """Return the name of authorizers of a mode that can occur only once."""
    return mode.lower()


def from_flags(options: AuthorizationOptions) -> AuthorizationConfiguration:
    """Return the configuration of the flags other than `--authorization-config`."""
    ttls = options.authorization_webhook_cache_authorized_ttl, options.authorization_webhook_cache_unauthorized_ttl
    webhook = WebhookConfiguration(
        authorized_ttl=Seconds(ttls[0]),
        cache_authorized_requests=ttls[0] > 0,
        unauthorized_ttl=Seconds(ttls[1]),
        cache_unauthorized_requests=ttls[1] > 0,
        timeout=Seconds(_LONGEST_TIMEOUT),
        subject_access_review_version=options.authorization_webhook_version,
        failure_policy="NoOpinion",
        connection_info=ConnectionInfo(
            type="KubeConfigFile", kube_config_file=options.authorization_webhook_config_file
        ),
    )
    authorizers = (
        AuthorizerConfiguration(type=mode, name="default", webhook=webhook)
        if mode == WEBHOOK
        else AuthorizerConfiguration(type=mode, name=name_of(mode))
        for mode in options.modes
    )
    return AuthorizationConfiguration(api_version=next(iter(TYPES)), kind=KIND, authorizers=tuple(authorizers))


Judge = Callable[[str], str]
"""Returns the error of a match condition expression, or an empty string."""


def check(configuration: AuthorizationConfiguration, judge: Judge, required: Collection[str] = ()) -> ErrorList:
    """Return all validation errors of a configuration; authorizers of `required` types must be included."""
    errors = ErrorList()
    at: FieldPath = (None, "authorizers")
    if not configuration.authorizers:
        errors.required(at, "at least one authorization mode must be defined")
    types: set[str] = set()
    taken: set[str] = set()
    for index, each in enumerate(configuration.authorizers):
        _check_authorizer(each, (at, index), judge, types, taken, errors)
    missing = sorted({*required} - types - {WEBHOOK})
    if missing:
        errors.required(at, f"authorizers of these types must stay: {', '.join(missing)}")
    return errors


def _check_authorizer(
    one: AuthorizerConfiguration, at: FieldPath, judge: Judge, types: set[str], taken: set[str], errors: ErrorList
) -> None:
    """Collect the validation errors of one authorizer, and record its type and name."""
    if not one.type:
        errors.required((at, "type"))
        return
    if one.type not in MODES:
        errors.unsupported((at, "type"), one.type, sorted(MODES))
        return
    if one.type in types and one.type != WEBHOOK:
        errors.duplicate((at, "type"), one.type)
        return
    types.add(one.type)
    _check_name(one, (at, "name"), taken, errors)
    taken.add(one.name)
    if one.type != WEBHOOK:
        if one.webhook is not None:
            errors.invalid((at, "webhook"), "non-null", "may only be specified when type=Webhook")
    elif one.webhook is None:
        errors.required((at, "webhook"), "required when type=Webhook")
    else:
        # Errors of the webhook omit the field `webhook`, as in kube-apiserver.
        _check_webhook(one.webhook, at, judge, errors)


def _check_name(one: AuthorizerConfiguration, at: FieldPath, taken: set[str], errors: ErrorList) -> None:
    if not one.name:
        errors.required(at)
    elif one.name in taken:
        errors.duplicate(at, one.name)
    elif why := names.subdomain(one.name):
        errors.invalid(at, one.name, f"authorizer name is invalid: {why}")
    elif one.type != WEBHOOK and one.name != name_of(one.type):
        errors.invalid(at, one.name, f"must be {name_of(one.type)} where the type is {one.type}")


def _check_webhook(webhook: WebhookConfiguration, at: FieldPath, judge: Judge, errors: ErrorList) -> None:
    if not webhook.timeout:
        errors.required((at, "timeout"))
    elif not 0 < webhook.timeout <= _LONGEST_TIMEOUT:
        errors.invalid((at, "timeout"), f"{webhook.timeout:g}s", "must be > 0s and <= 30s")
    for name, seconds in (("authorizedTTL", webhook.authorized_ttl), ("unauthorizedTTL", webhook.unauthorized_ttl)):
        if seconds < 0:
            errors.invalid((at, name), f"{seconds:g}s", "must be > 0s")
    _check_choice(webhook.subject_access_review_version, (at, "subjectAccessReviewVersion"), _VERSIONS, errors)
    version = webhook.match_condition_subject_access_review_version
    place: FieldPath = (at, "matchConditionSubjectAccessReviewVersion")
    if version:
        _check_choice(version, place, _CONDITION_VERSIONS, errors)
    elif webhook.match_conditions:
        errors.required(place, "required if match conditions are specified")
    _check_choice(webhook.failure_policy, (at, "failurePolicy"), _POLICIES, errors)
    _check_connection(webhook.connection_info, (at, "connectionInfo"), errors)
    _check_conditions(webhook, (at, "matchConditions"), judge, errors)


def _check_choice(value: str, at: FieldPath, choices: tuple[str, ...], errors: ErrorList) -> None:
    if not value:
        errors.required(at)
    elif value not in choices:
        errors.unsupported(at, value, choices)


def _check_connection(info: ConnectionInfo, at: FieldPath, errors: ErrorList) -> None:
    name = "clusterConfigFile" if info.cluster_config_file is not None else "kubeConfigFile"
    place: FieldPath = (at, name)
    if not info.type:
        errors.required((at, "type"))
    elif info.type == _IN_CLUSTER:
        errors.invalid((at, "type"), info.type, "this server cannot be its own authorization webhook")
        if info.kube_config_file is not None or info.cluster_config_file is not None:
            errors.invalid(place, info.file, "can only be set when type=KubeConfigFile")
    elif info.type not in _FILE_TYPES:
        errors.unsupported((at, "type"), info.type, (_IN_CLUSTER, _FILE_TYPES[0]))
    elif not info.file:
        errors.required(place)
    elif not os.path.isabs(info.file):
        errors.invalid(place, info.file, "must be an absolute path")
    elif why := _unusable(info.file):
        errors.invalid(place, info.file, why)


def _unusable(path: str) -> str:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return f"error loading file: {error.strerror}"
    return "" if stat.S_ISREG(mode) else "must be a regular file"


def _check_conditions(webhook: WebhookConfiguration, at: FieldPath, judge: Judge, errors: ErrorList) -> None:
    if len(webhook.match_conditions) > MOST_CONDITIONS:
        errors.too_many(at, len(webhook.match_conditions), MOST_CONDITIONS)
        return
    seen: set[str] = set()
    for index, condition in enumerate(webhook.match_conditions):
        place: FieldPath = ((at, index), "expression")
        if not condition.expression.strip():
            errors.required(place)
        elif condition.expression in seen:
            errors.duplicate(place, condition.expression)
        elif why := judge(condition.expression):
            errors.invalid(place, condition.expression, why)
        seen.add(condition.expression)
