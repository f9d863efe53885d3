"""Validation of how objects of a custom resource are converted between versions (`spec.conversion`)."""

from apiserver_stub.common.error_list import ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.definition_ratchets import Ratchets
from apiserver_stub.kinds.rules.webhook_client_config import bundle_problem, check_place, check_review_versions
from controller_manager.common.api.tree import Tree

_SPEC = place("spec")
_NOT_WEBHOOK = "should not be set when strategy is not set to Webhook"


def check_conversion(spec: Tree, ratchets: Ratchets, errors: ErrorList) -> None:
    """Report errors in `spec.conversion`."""
    at, conversion = (_SPEC, "conversion"), spec.get("conversion", {})
    strategy, webhook = conversion.get("strategy", ""), conversion.get("webhook", {})
    config, versions = webhook.get("clientConfig"), webhook.get("conversionReviewVersions", [])
    if strategy != "None" and spec.get("preserveUnknownFields"):
        errors.invalid((at, "strategy"), strategy, "must be None if spec.preserveUnknownFields is true")
    if not strategy:
        errors.required((at, "strategy"))
    elif strategy not in ("None", "Webhook"):
        errors.unsupported((at, "strategy"), strategy, ("None", "Webhook"))
    if strategy != "Webhook":
        if config is not None:
            errors.forbidden((at, "webhookClientConfig"), _NOT_WEBHOOK)
        if versions:
            errors.forbidden((at, "conversionReviewVersions"), _NOT_WEBHOOK)
        return
    if config is None:
        errors.required((at, "webhookClientConfig"), "required when strategy is set to Webhook")
    else:
        _config(config, (at, "webhookClientConfig"), ratchets, errors)
    here = (at, "conversionReviewVersions")
    if not versions:
        errors.required(here)
    else:
        check_review_versions(versions, here, errors, any_known=ratchets.known_review)


def _config(config: Tree, at: FieldPath, ratchets: Ratchets, errors: ErrorList) -> None:
    check_place(config, at, errors)
    if not ratchets.any_bundle and (why := bundle_problem(config)):
        errors.invalid((at, "caBundle"), config["caBundle"], why)
