"""The plugin ImagePolicyWebhook (off by default): a server decides about the images of pods by ImageReview
(`imagepolicy.k8s.io/v1alpha1`).

| the server                              | the pod                                                          |
|-----------------------------------------|------------------------------------------------------------------|
| allows the images                       | is admitted                                                      |
| does not allow them                     | is rejected                                                      |
| fails, or its response is invalid       | is admitted with `defaultAllow`, with an audit annotation, and   |
|                                         | rejected otherwise                                               |

Creates and updates of pods are reviewed: the images of containers, and for updates of ephemeral containers theirs.
Responses are cached, and concurrent requests for the same review share one call.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from apiserver_stub.admission.chain import AdmissionPlugin, Attributes, Rule
from apiserver_stub.admission.configuration import ANY_VERSION
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.common.config_file import ConfigModel
from apiserver_stub.common.error_list import ErrorList
from apiserver_stub.encode import json
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.trees import get_in
from apiserver_stub.webhooks.client import WebhookError
from apiserver_stub.webhooks.review_client import RetryBackoff, ReviewError, ReviewWebhook
from controller_manager.common.api.errors import Forbidden, ServiceUnavailable
from controller_manager.common.api.model import Model
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.log import Logger
from controller_manager.common.serving.answers import Answers, keyed_digest

NAME = "ImagePolicyWebhook"
_KIND, _VERSION = "ImageReview", f"imagepolicy.{GROUP_DOMAIN}/v1alpha1"
_OWN = f".image-policy.{GROUP_DOMAIN}/"  # part of the names of pod annotations that are sent to the webhook
_AUDIT = f"{NAME.lower()}{_OWN}"
_REMEMBERED = 1024
_LONGEST = 10_000  # characters of a response that is cached


class ImagePolicy(ConfigModel, forbid_unknown_fields=False):
    """The server, the TTL of its responses in seconds, the retry backoff in milliseconds (each: 0 for the default, -1
    for none), and whether pods are admitted if the server fails.
    """

    kube_config_file: str = ""
    allow_ttl: int = msgspec.field(default=0, name="allowTTL")
    deny_ttl: int = msgspec.field(default=0, name="denyTTL")
    retry_backoff: int = 0
    default_allow: bool = False


class ImagePolicyConfiguration(ConfigModel, forbid_unknown_fields=False):
    """The document that configures the plugin."""

    image_policy: ImagePolicy = ImagePolicy()


_BOUNDS = (("allowTTL", 1, 1800), ("denyTTL", 1, 1800), ("retryBackoff", 1, 300_000))


def check(configuration: ImagePolicyConfiguration) -> ErrorList:
    """Return the validation errors of a configuration."""
    errors, at, policy = ErrorList(), (None, "imagePolicy"), configuration.image_policy
    if not policy.kube_config_file:
        errors.required((at, "kubeConfigFile"))
    for (field, low, high), value in zip(
        _BOUNDS, (policy.allow_ttl, policy.deny_ttl, policy.retry_backoff), strict=True
    ):
        if value not in (0, -1) and not low <= value <= high:
            errors.invalid((at, field), value, f"must be between {low} and {high}, or 0 or -1")
    return errors


class ImageReviewStatus(Model):
    """The result of a review and its audit annotations."""

    allowed: bool = False
    reason: str = ""
    audit_annotations: Mapping[str, str] = {}


class ImagePolicyWebhook:
    """The plugin. Failures of the server are logged."""

    def __init__(self, webhook: ReviewWebhook, policy: ImagePolicy, log: Logger) -> None:
        self._webhook = webhook
        self._lifetimes = {True: _usual(policy.allow_ttl, 300), False: _usual(policy.deny_ttl, 30)}
        self._opens = policy.default_allow
        self._log = log
        self._answers: Answers[ImageReviewStatus] = Answers(_REMEMBERED)
        self._digest = keyed_digest()

    async def check_pod(self, attributes: Attributes) -> None:
        """Raises `Forbidden` for a pod with images that are not allowed."""
        spec = attributes.tree.get("spec") or {}
        await self._check(attributes, [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())])

    async def check_ephemeral(self, attributes: Attributes) -> None:
        """Raises the same for ephemeral containers."""
        await self._check(attributes, get_in(attributes.tree, ("spec", "ephemeralContainers")) or [])

    async def _check(self, attributes: Attributes, containers: list[Tree]) -> None:
        annotations = get_in(attributes.tree, ("metadata", "annotations")) or {}
        spec: Tree = {"containers": [{"image": one.get("image", "")} for one in containers]}
        if shown := {name: value for name, value in annotations.items() if _OWN in name}:
            spec["annotations"] = shown
        spec["namespace"] = attributes.namespace
        try:
            status = await self._answers.get(self._digest(json.encode(spec)), lambda: self._ask(spec))
        except ServiceUnavailable as error:
            self._failed(attributes, error)
            return
        for name, value in status.audit_annotations.items():
            if not names.qualified(key := f"{_AUDIT}{name}"):
                attributes.notes.annotate(key, value)
        if not status.allowed:
            why = f": {status.reason}" if status.reason else ""
            raise attributes.refused(f"image policy webhook backend denied one or more images{why}")

    def _failed(self, attributes: Attributes, error: ServiceUnavailable) -> None:
        self._log.warning("image policy webhook failed", pod=attributes.known_name, why=error.message)
        if self._opens:
            attributes.notes.annotate(f"{_AUDIT}failed-open", "true")
        elif isinstance(error, ReviewError) and error.answered == Forbidden.code:
            raise Forbidden(error.message)
        else:
            raise attributes.refused(f"image policy webhook failed: {error.message}")

    async def _ask(self, spec: Tree) -> tuple[ImageReviewStatus, float]:
        """Return the response and its TTL in seconds."""
        review = {"kind": _KIND, "apiVersion": _VERSION, "metadata": {}, "spec": spec, "status": {"allowed": False}}
        status = await self._webhook.ask(review, _status)
        size = len(status.reason) + sum(len(name) + len(value) for name, value in status.audit_annotations.items())
        return status, self._lifetimes[status.allowed] if size <= _LONGEST else 0.0


def _usual(value: int, usual: float) -> float:
    return usual if value == 0 else max(0.0, value)


def _status(review: dict[str, Any]) -> ImageReviewStatus:
    """Return the status of a review; a missing status allows nothing. Raises `WebhookError`."""
    status = review.get("status") or {}
    try:
        return msgspec.convert({name: value for name, value in status.items() if value is not None}, ImageReviewStatus)
    except (msgspec.ValidationError, AttributeError) as error:
        raise WebhookError(f"the response is not a valid {_KIND}: status: {error}") from None


def image_policy_webhook(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin ImagePolicyWebhook. Raises `ValueError` without a configuration."""
    found = parts.configuration.document(NAME, {ANY_VERSION: ImagePolicyConfiguration}, check)
    if found is None:
        raise ValueError(f"--admission-control-config-file: the plugin {NAME} needs a configuration with imagePolicy")
    policy = found.image_policy
    backoff, dialer = RetryBackoff(_usual(policy.retry_backoff, 500) / 1000), parts.egress.control_plane
    file, field = policy.kube_config_file, parts.configuration.place(NAME, "imagePolicy.kubeConfigFile")
    plugin = ImagePolicyWebhook(
        webhook := ReviewWebhook(file, field, backoff=backoff, dialer=dialer), policy, parts.runtime.log("admission")
    )
    rules = (
        Rule(plugin.check_pod, ("create", "update"), ("pods",)),
        Rule(plugin.check_ephemeral, ("update",), ("pods",), ("ephemeralcontainers",)),
    )
    return AdmissionPlugin(NAME, validating=rules, close=webhook.close)
