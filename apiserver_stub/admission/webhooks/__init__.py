"""Admission webhooks: external servers that may change or reject requests (Dynamic Admission Control)."""

from apiserver_stub.admission.webhooks.plugins import mutating_admission_webhook, validating_admission_webhook

__all__ = ["mutating_admission_webhook", "validating_admission_webhook"]
