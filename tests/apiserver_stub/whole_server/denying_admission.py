"""Admission configurations that deny requests, for tests of whole servers."""

from typing import Any

ADMISSION = "/apis/admissionregistration.k8s.io/v1"


async def add_unreachable_webhook(api: Any, kind: str, operation: str, resource: str) -> None:
    """Configure an unreachable webhook of that kind."""
    hook = {
        "name": "hook.example.org",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": [operation], "resources": [resource]}],
    }
    body = {"kind": kind, "metadata": {"name": "w"}, "webhooks": [hook]}
    answer = await api.post(f"{ADMISSION}/{kind.lower()}s", body)
    assert answer.status == 201, answer.tree


async def add_denying_policy(api: Any, operation: str, **rule: Any) -> None:
    """Bind a policy that denies such requests."""
    rules = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": [operation], "resources": ["*"], **rule}
    spec = {"matchConstraints": {"resourceRules": [rules]}, "validations": [{"expression": "false"}]}
    bound = {"policyName": "p", "validationActions": ["Deny"]}
    for path, name, made in (
        ("validatingadmissionpolicies", "p", spec),
        ("validatingadmissionpolicybindings", "b", bound),
    ):
        answer = await api.post(f"{ADMISSION}/{path}", {"metadata": {"name": name}, "spec": made})
        assert answer.status == 201, answer.tree
