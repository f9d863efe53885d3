"""Builds the two plugins."""

from apiserver_stub.admission.chain import ALL, AdmissionPlugin, Operation, Rule
from apiserver_stub.admission.matching import Matcher
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.admission.webhooks.calls import Calls, Phase
from apiserver_stub.admission.webhooks.conditions import Conditions
from apiserver_stub.admission.webhooks.configurations import MUTATING, VALIDATING, WebhookIndex
from apiserver_stub.admission.webhooks.credentials import credentials_of
from apiserver_stub.admission.webhooks.mutating import NAME as MUTATING_PLUGIN
from apiserver_stub.admission.webhooks.mutating import MutatingWebhooks
from apiserver_stub.admission.webhooks.validating import NAME as VALIDATING_PLUGIN
from apiserver_stub.admission.webhooks.validating import ValidatingWebhooks
from apiserver_stub.webhooks.client import WebhookClient, WebhookLimits

_EVERYTHING: tuple[Operation, ...] = ("create", "update", "delete", "connect")
_LIMITS = WebhookLimits(calls=256)


def mutating_admission_webhook(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin MutatingAdmissionWebhook."""
    index, client = (
        WebhookIndex(parts.store, Matcher(parts.store, parts.kinds), MUTATING),
        _client(parts, MUTATING_PLUGIN),
    )
    plugin = MutatingWebhooks(index, _calls(parts, client, "admit"), _conditions(parts, "admit"))
    rules = (Rule(plugin.admit, _EVERYTHING, (ALL,), (ALL,)),)
    return AdmissionPlugin(MUTATING_PLUGIN, mutating=rules, read=index.follow, close=client.close)


def validating_admission_webhook(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin ValidatingAdmissionWebhook."""
    index, client = (
        WebhookIndex(parts.store, Matcher(parts.store, parts.kinds), VALIDATING),
        _client(parts, VALIDATING_PLUGIN),
    )
    plugin = ValidatingWebhooks(index, _calls(parts, client, "validating"), _conditions(parts, "validating"))
    rules = (Rule(plugin.validate, _EVERYTHING, (ALL,), (ALL,)),)
    return AdmissionPlugin(VALIDATING_PLUGIN, validating=rules, read=index.follow, close=client.close)


def _client(parts: AdmissionParts, plugin: str) -> WebhookClient:
    return WebhookClient(parts.resolver, _LIMITS, parts.egress, credentials_of(parts, plugin))


def _calls(parts: AdmissionParts, client: WebhookClient, phase: Phase) -> Calls:
    return Calls(phase, client, parts.offload, parts.metrics.webhooks, parts.runtime.log("admission"))


def _conditions(parts: AdmissionParts, phase: Phase) -> Conditions:
    return Conditions(phase, parts.store, parts.authorizer, parts.metrics.conditions, parts.offload.run)
