"""What an authorizer sees of selectors, of requests and of questions, as kube-apiserver 1.36 told a webhook."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import pytest

from apiserver_stub.authz.selectors import check_selectors, field_requirements, label_requirements, read_selectors
from apiserver_stub.kinds.error_list import ErrorList
from apiserver_stub.request_info import RequestInfo
from controller_manager.api.reviews import ResourceAttributes
from controller_manager.api.selectors import FieldSelector, LabelSelector
from controller_manager.serving.authentication import User

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data/selectors.jsonl").read_text().splitlines()]


def told(fields: FieldSelector | None, labels: LabelSelector | None) -> dict[str, Any]:
    """The selectors as questions have them."""
    found = {"fieldSelector": field_requirements(fields), "labelSelector": label_requirements(labels)}
    return {name: {"requirements": requirements} for name, requirements in found.items() if requirements}


def recorded(asked: dict[str, Any]) -> dict[str, Any]:
    """The selectors of a recorded question."""
    return {name: asked[name] for name in ("fieldSelector", "labelSelector") if name in asked}


def in_order(selectors: dict[str, Any]) -> dict[str, Any]:
    """Selectors whose requirements and values come in whatever order."""
    for selector in selectors.values():
        for each in selector["requirements"]:
            each["values"] = sorted(set(each.get("values", ())))
        selector["requirements"].sort(key=str)
    return selectors


@pytest.mark.parametrize("row", [row for row in ROWS if "request" in row], ids=lambda row: row["request"][1])
def test_of_requests(row: Any) -> None:
    path, _, query = row["request"][1].partition("?")
    info = RequestInfo.of(row["request"][0], path, dict(parse_qsl(query, keep_blank_values=True)))
    attributes = info.attributes(User("joe"))
    asked = row["asked"]
    assert (attributes.verb, attributes.name) == (asked["verb"], asked.get("name", ""))
    assert told(attributes.field_selector, attributes.label_selector) == recorded(asked)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if "selectors" in row], ids=lambda row: json.dumps(row["selectors"])
)
def test_of_questions(row: Any) -> None:
    of = msgspec.convert(row["selectors"], ResourceAttributes)
    errors = ErrorList()
    check_selectors(of, errors)
    assert [[cause.reason, cause.field, cause.message] for cause in errors.causes] == row.get("causes", [])
    if "causes" in row:
        return
    fields, labels, ignored = read_selectors(of)
    assert "; ".join(ignored) == row["evaluationError"]
    if "asked" in row:
        assert in_order(told(fields, labels)) == in_order(recorded(row["asked"]))


def test_what_has_no_selector_is_as_it_was() -> None:
    info = RequestInfo.of("GET", "/api/v1/pods", {"limit": "5"})
    attributes = info.attributes(User("joe"))
    assert (attributes.field_selector, attributes.label_selector, attributes.name) == (None, None, "")
