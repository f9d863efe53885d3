"""The authorizer of the mode Webhook: calls a server with SubjectAccessReview, and caches the responses."""

from collections.abc import Mapping
from typing import Any

import msgspec

from apiserver_stub.authz.configuration import AuthorizerConfiguration
from apiserver_stub.authz.metrics import AuthorizationMetrics
from apiserver_stub.authz.review_spec import condition_environment, condition_variables, in_version, review_spec
from apiserver_stub.common.offload import StepRunner, at_once
from apiserver_stub.encode import json
from apiserver_stub.webhooks.client import WebhookError
from apiserver_stub.webhooks.match_conditions import MatchConditions, MatchError, compile_condition
from apiserver_stub.webhooks.review_client import ReviewError, ReviewLimits, ReviewWebhook
from controller_manager.common.api.errors import ServiceUnavailable, TooManyRequests
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.reviews import SubjectAccessReviewStatus
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.log import Logger
from controller_manager.common.serving.answers import Answers, keyed_digest
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import (
    NO_OPINION,
    Authorization,
    AuthorizerAttributes,
    Decision,
    Rules,
)
from controller_manager.common.transport.dialer import Dialer

TYPE = "Webhook"
_KIND = "SubjectAccessReview"
_REMEMBERED = 8192
# Characters; larger reviews and reasons are not cached.
_LONGEST_QUESTION = 10_000
_LONGEST_REASON = 10_000
_UNLISTED = Rules(incomplete=True, error="webhook authorizer does not support user rule resolution")
_BOTH = "the webhook both allowed and denied the request"


class WebhookRules(msgspec.Struct, frozen=True):
    """The settings of a webhook: version, TTLs in seconds, the decision on failure, and match conditions."""

    version: str
    authorized_ttl: float
    unauthorized_ttl: float
    on_error: Decision
    conditions: MatchConditions | None = None


class WebhookAuthorizer:
    """Decides as a webhook does."""

    def __init__(
        self,
        name: str,
        webhook: ReviewWebhook,
        rules: WebhookRules,
        metrics: AuthorizationMetrics,
        log: Logger,
        run: StepRunner,
    ) -> None:
        self._name = name
        self._webhook = webhook
        self._rules = rules
        self._metrics = metrics
        self._log = log
        self._run = run
        self._answers: Answers[SubjectAccessReviewStatus] = Answers(_REMEMBERED)
        self._digest = keyed_digest()

    async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        """Return the decision of the webhook, possibly cached; on failure, the configured decision."""
        rules = self._rules
        try:
            if rules.conditions is not None and not await self._matches(rules.conditions, attributes):
                return NO_OPINION
        except MatchError as error:
            return Authorization(rules.on_error, "", str(error))
        spec = in_version(review_spec(attributes), rules.version)
        try:
            status = await self._answers.get(self._digest(json.encode(spec)), lambda: self._ask(attributes, spec))
        except ServiceUnavailable as error:
            return self._failed(error)
        if status.denied:
            return Authorization(Decision.DENY, status.reason, _BOTH if status.allowed else "")
        return Authorization(Decision.ALLOW if status.allowed else Decision.NO_OPINION, status.reason)

    async def rules_for(self, user: User, namespace: str) -> Rules:
        """Return that the permissions are unknown, because a webhook decides single requests only."""
        return _UNLISTED

    async def retire(self) -> None:
        """Close the connections after the running reviews."""
        await self._webhook.retire()

    async def _matches(self, conditions: MatchConditions, attributes: AuthorizerAttributes) -> bool:
        began, matches, failed = monotonic(), True, True
        try:
            matches, errors = await conditions.match(condition_variables(attributes), self._run)
            failed = bool(errors)
        except TooManyRequests as error:
            raise MatchError(error.message) from None
        finally:
            seconds = monotonic() - began
            self._metrics.matched(TYPE, self._name, seconds, excluded=not matches, failed=failed)
        return matches

    async def _ask(
        self, attributes: AuthorizerAttributes, spec: Mapping[str, Any]
    ) -> tuple[SubjectAccessReviewStatus, float]:
        """Return the response and its TTL in seconds."""
        version = f"authorization.{GROUP_DOMAIN}/{self._rules.version}"
        review = {"kind": _KIND, "apiVersion": version, "metadata": {}, "spec": spec, "status": {"allowed": False}}
        status = await self._webhook.ask(review, _status)
        if _size(attributes) >= _LONGEST_QUESTION or len(status.reason) > _LONGEST_REASON:
            return status, 0.0
        return status, self._rules.authorized_ttl if status.allowed else self._rules.unauthorized_ttl

    def _failed(self, error: ServiceUnavailable) -> Authorization:
        self._log.warning("authorization webhook call failed", webhook=self._name, why=error.message)
        if self._rules.on_error is Decision.NO_OPINION:
            timed_out = isinstance(error, ReviewError) and error.timed_out
            self._metrics.failed_open(self._name, timed_out=timed_out)
        return Authorization(self._rules.on_error, "", error.message)


def webhook_authorizer(
    of: AuthorizerConfiguration,
    named: str,
    metrics: AuthorizationMetrics,
    log: Logger,
    dialer: Dialer | None = None,
    run: StepRunner = at_once,
) -> WebhookAuthorizer:
    """Return the authorizer of a valid configuration; `named` is the flag or field of its kubeconfig file, and `run`
    evaluates expensive conditions. Raises `ConfigError` for an unusable file, and `ConditionError`.
    """
    webhook = of.webhook
    assert webhook is not None
    conditions = [compile_condition(each.expression, condition_environment()) for each in webhook.match_conditions]
    rules = WebhookRules(
        webhook.subject_access_review_version,
        *webhook.remembered,
        on_error=Decision.DENY if webhook.failure_policy == "Deny" else Decision.NO_OPINION,
        conditions=MatchConditions(conditions) if conditions else None,
    )
    asked = ReviewWebhook(
        webhook.connection_info.file,
        named,
        ReviewLimits(attempt=webhook.timeout),
        observe=lambda result, _, seconds: metrics.asked(of.name, result, seconds),
        dialer=dialer,
    )
    return WebhookAuthorizer(of.name, asked, rules, metrics, log, run)


def _status(review: dict[str, Any]) -> SubjectAccessReviewStatus:
    """Return the status of a review; a missing one means no opinion. Raises `WebhookError`."""
    try:
        return msgspec.convert(_without_nulls(review.get("status") or {}), SubjectAccessReviewStatus)
    except (msgspec.ValidationError, AttributeError) as error:
        raise WebhookError(f"the response is not a valid {_KIND}: status: {error}") from None


def _without_nulls(status: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in status.items() if value is not None}


def _size(attributes: AuthorizerAttributes) -> int:
    """Return the number of characters in a review that the caller chose."""
    of = attributes
    texts = (of.namespace, of.verb, of.group, of.version, of.resource, of.subresource, of.name, of.path)
    return sum(map(len, texts))
