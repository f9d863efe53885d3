"""Audit policies: which rule applies to a request, and errors in a file."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from apiserver_stub.common.config_file import ConfigFileError
from apiserver_stub.request.audit.events import AuditStage, Level
from apiserver_stub.request.audit.policy import Coverage, PolicyEvaluator, read_policy
from apiserver_stub.request.request_info import RequestInfo
from controller_manager.common.serving.authentication import User

ADA = User("ada", groups=("dev", "system:authenticated"))


def policy_file(folder: Path, rules: list[dict[str, Any]], **more: Any) -> Path:
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules, **more}))
    return path


def coverage(folder: Path, rule: dict[str, Any], method: str, path: str, user: User | None = ADA) -> Level:
    evaluator = PolicyEvaluator(read_policy(policy_file(folder, [{"level": "Request", **rule}])))
    return evaluator.evaluate(RequestInfo.of(method, path, {}), user).level


POD, LOG = "/api/v1/namespaces/a/pods/p", "/api/v1/namespaces/a/pods/p/log"
SCALE, NODE = "/apis/apps/v1/namespaces/a/deployments/d/scale", "/api/v1/nodes/n"


def resources(*resources: str, group: str = "", names: tuple[str, ...] = ()) -> dict[str, Any]:
    more = {"resourceNames": list(names)} if names else {}
    return {"resources": [{"group": group, "resources": list(resources), **more}]}


@pytest.mark.parametrize(
    ("rule", "method", "path", "matches"),
    [
        ({}, "GET", POD, True),
        ({}, "GET", "/version", True),
        ({"users": ["ada"]}, "GET", POD, True),
        ({"users": ["bob"]}, "GET", POD, False),
        ({"userGroups": ["ops", "dev"]}, "GET", POD, True),
        ({"userGroups": ["ops"]}, "GET", POD, False),
        ({"users": ["ada"], "userGroups": ["ops"]}, "GET", POD, False),
        ({"verbs": ["get", "list"]}, "GET", POD, True),
        ({"verbs": ["update"]}, "GET", POD, False),
        ({"verbs": ["get"]}, "GET", "/version", True),
        (resources("pods"), "GET", POD, True),
        (resources("pods"), "GET", LOG, False),
        (resources("pods/log"), "GET", LOG, True),
        (resources("pods/log"), "GET", POD, False),
        (resources("pods/*"), "GET", LOG, True),
        (resources("pods/*"), "GET", POD, True),
        (resources("*/log"), "GET", LOG, True),
        (resources("*/log"), "GET", POD, False),
        (resources("*/scale", group="apps"), "GET", SCALE, True),
        (resources("*"), "GET", LOG, True),
        (resources("*"), "GET", SCALE, False),
        (resources("*", group="*"), "GET", SCALE, True),
        (resources(group="apps"), "GET", SCALE, True),
        (resources(), "GET", SCALE, False),
        (resources("pods"), "GET", "/version", False),
        (resources("pods", names=("p", "q")), "GET", POD, True),
        (resources("pods", names=("q",)), "GET", POD, False),
        (resources("pods", names=("q",)), "GET", "/api/v1/namespaces/a/pods", False),
        ({"resources": [*resources("pods", names=("q",))["resources"], *resources("pods")["resources"]]}, "GET", POD,
         True),
        ({"resources": [*resources("pods", names=("q",))["resources"], *resources("nodes")["resources"]]}, "GET", POD,
         False),
        ({"namespaces": ["a"]}, "GET", POD, True),
        ({"namespaces": ["b"]}, "GET", POD, False),
        ({"namespaces": [""]}, "GET", NODE, True),
        ({"namespaces": [""]}, "GET", POD, False),
        ({"namespaces": [""]}, "GET", "/version", False),
        ({"nonResourceURLs": ["/version"]}, "GET", "/version", True),
        ({"nonResourceURLs": ["/version"]}, "GET", "/version/x", False),
        ({"nonResourceURLs": ["/healthz*"]}, "GET", "/healthz/ping", True),
        ({"nonResourceURLs": ["*"]}, "GET", "/version", True),
        ({"nonResourceURLs": ["*"]}, "GET", POD, False),
        ({"nonResourceURLs": ["/version"], "verbs": ["post"]}, "GET", "/version", False),
    ],
)  # fmt: skip
def test_rule_matches_requests_with_all_its_fields(
    tmp_path: Path, rule: dict[str, Any], method: str, path: str, matches: bool
) -> None:
    assert coverage(tmp_path, rule, method, path) is (Level.REQUEST if matches else Level.NONE)


def test_unknown_caller_matches_no_user_or_group(tmp_path: Path) -> None:
    assert coverage(tmp_path, {"users": ["ada"]}, "GET", POD, None) is Level.NONE
    assert coverage(tmp_path, {"userGroups": ["dev"]}, "GET", POD, None) is Level.NONE
    assert coverage(tmp_path, {}, "GET", POD, None) is Level.REQUEST


def test_first_matching_rule_decides(tmp_path: Path) -> None:
    rules = [
        {"level": "Metadata", **resources("secrets"), "omitStages": ["Panic"], "omitManagedFields": False},
        {"level": "RequestResponse", "namespaces": ["a"]},
    ]
    path = policy_file(tmp_path, rules, omitStages=["RequestReceived"], omitManagedFields=True)
    evaluator = PolicyEvaluator(read_policy(path))
    secret = evaluator.evaluate(RequestInfo.of("GET", "/api/v1/namespaces/a/secrets/s", {}), ADA)
    assert (secret.level, set(secret.omitted), secret.omit_managed_fields) == (
        Level.METADATA, {AuditStage.REQUEST_RECEIVED, AuditStage.PANIC}, False,
    )  # fmt: skip
    pod = evaluator.evaluate(RequestInfo.of("GET", POD, {}), ADA)
    assert pod == Coverage(Level.REQUEST_RESPONSE, (AuditStage.REQUEST_RECEIVED,), True)
    assert evaluator.evaluate(RequestInfo.of("GET", NODE, {}), ADA) == Coverage()


@pytest.mark.parametrize(
    ("rules", "more", "said"),
    [
        ([], {}, "rules: there must be at least one"),
        ([{}], {}, "rules[0].level: Required value"),
        ([{"level": "All"}], {}, 'rules[0].level: Unsupported value: "All": supported values: "None", "Metadata"'),
        ([{"level": "None", "nonResourceURLs": ["version"]}], {}, "rules[0].nonResourceURLs[0]: Invalid value"),
        ([{"level": "None", "nonResourceURLs": ["/a*b"]}], {}, "rules[0].nonResourceURLs[0]: Invalid value"),
        ([{"level": "None", **resources("pods", group="v1/x")}], {}, "rules[0].resources.group: Invalid value"),
        ([{"level": "None", **resources(names=("x",))}], {}, "rules[0].resources.resourceNames: Invalid value"),
        ([{"level": "None", "omitStages": ["End"]}], {}, "rules[0].omitStages[0]: Invalid value"),
        ([{"level": "None"}], {"omitStages": ["End"]}, "omitStages[0]: Invalid value"),
        ([{"level": "None", "namespaces": ["a"], "nonResourceURLs": ["/a"]}], {}, "rules[0].nonResourceURLs: Invalid"),
        ([{"level": "None", "resource": []}], {}, "rules[0]: Object contains unknown field `resource`"),
    ],
)
def test_invalid_field_is_reported(
    tmp_path: Path, rules: list[dict[str, Any]], more: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigFileError) as refused:
        read_policy(policy_file(tmp_path, rules, **more))
    assert said in str(refused.value)
    assert str(tmp_path / "policy.yaml") in str(refused.value)


def test_all_problems_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigFileError, match=r"omitStages\[0\].*rules\[0\].level.*rules\[1\].nonResourceURLs\[0\]"):
        read_policy(policy_file(tmp_path, [{}, {"level": "None", "nonResourceURLs": ["x"]}], omitStages=["End"]))
