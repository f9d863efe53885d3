"""Admission by webhooks: other servers are shown requests, may change objects and refuse them (Dynamic Admission
Control).
"""

from apiserver_stub.admission.webhooks.plugins import mutating_admission_webhook, validating_admission_webhook

__all__ = ["mutating_admission_webhook", "validating_admission_webhook"]
