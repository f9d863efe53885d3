"""Selectors of requests and reviews, as kube-apiserver 1.36 sends them to a webhook."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import pytest

from apiserver_stub.authz.selectors import check_selectors, field_requirements, label_requirements, read_selectors
from apiserver_stub.common.error_list import ErrorList
from apiserver_stub.request.request_info import RequestInfo
from controller_manager.common.api.reviews import ResourceAttributes
from controller_manager.common.api.selectors import MOST_CONDITIONS, FieldSelector, LabelSelector
from controller_manager.common.api.wire import Request
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import NO_SELECTORS
from tests.apiserver_stub.running_server import Started

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data/selectors.jsonl").read_text().splitlines()]


def requirements_of(fields: FieldSelector | None, labels: LabelSelector | None) -> dict[str, Any]:
    """The selectors in the form of reviews."""
    found = {"fieldSelector": field_requirements(fields), "labelSelector": label_requirements(labels)}
    return {name: {"requirements": requirements} for name, requirements in found.items() if requirements}


def recorded(asked: dict[str, Any]) -> dict[str, Any]:
    """The selectors of a recorded review."""
    return {name: asked[name] for name in ("fieldSelector", "labelSelector") if name in asked}


def in_order(selectors: dict[str, Any]) -> dict[str, Any]:
    """Selectors with sorted requirements and values."""
    for selector in selectors.values():
        for each in selector["requirements"]:
            each["values"] = sorted(set(each.get("values", ())))
        selector["requirements"].sort(key=str)
    return selectors


@pytest.mark.parametrize("row", [row for row in ROWS if "request" in row], ids=lambda row: row["request"][1])
def test_selectors_of_requests_match_kube_apiserver(row: Any) -> None:
    path, _, query = row["request"][1].partition("?")
    info = RequestInfo.of(row["request"][0], path, dict(parse_qsl(query, keep_blank_values=True)))
    attributes = info.attributes(User("joe"))
    asked = row["asked"]
    assert (attributes.verb, attributes.name) == (asked["verb"], asked.get("name", ""))
    assert requirements_of(attributes.selectors.fields, attributes.selectors.labels) == recorded(asked)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if "selectors" in row], ids=lambda row: json.dumps(row["selectors"])
)
def test_selectors_of_reviews_match_kube_apiserver(row: Any) -> None:
    of = msgspec.convert(row["selectors"], ResourceAttributes)
    errors = ErrorList()
    check_selectors(of, errors)
    assert [[cause.reason, cause.field, cause.message] for cause in errors.causes] == row.get("causes", [])
    if "causes" in row:
        return
    fields, labels, ignored = read_selectors(of)
    assert "; ".join(ignored) == row["evaluationError"]
    if "asked" in row:
        assert in_order(requirements_of(fields, labels)) == in_order(recorded(row["asked"]))


def test_request_without_selector_has_no_requirements() -> None:
    info = RequestInfo.of("GET", "/api/v1/pods", {"limit": "5"})
    attributes = info.attributes(User("joe"))
    assert (attributes.selectors, attributes.name) == (NO_SELECTORS, "")


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The selector texts that were parsed."""
    found: list[str] = []

    def recording(original: Callable[..., Any]) -> Any:
        def parse(_class: Any, text: str) -> Any:
            found.append(text)
            return original(text)

        return classmethod(parse)

    for each in (FieldSelector, LabelSelector):
        monkeypatch.setattr(each, "parse", recording(each.parse))
    return found


@pytest.mark.parametrize("of", ["fieldSelector", "labelSelector"])
def test_selectors_are_parsed_lazily(parsed: list[str], of: str) -> None:
    info = RequestInfo.of("GET", "/api/v1/pods", {of: "a=b"})
    attributes = info.attributes(User("joe"))
    assert parsed == []
    fields, labels = attributes.selectors.fields, attributes.selectors.labels
    assert parsed == ["a=b"]
    assert (fields is None, labels is None) == (of == "labelSelector", of == "fieldSelector")


LONG = "a=b," * MOST_CONDITIONS


@pytest.mark.parametrize("query", [{"fieldSelector": f"{LONG}metadata.name=x"}, {"labelSelector": f"{LONG}a=b"}])
def test_selectors_with_too_many_conditions_are_not_parsed(parsed: list[str], query: dict[str, str]) -> None:
    attributes = RequestInfo.of("GET", "/api/v1/pods", query).attributes(User("joe"))
    assert (attributes.name, attributes.selectors.fields, attributes.selectors.labels) == ("", None, None)
    assert parsed == []


def test_values_of_one_label_count_as_one_condition() -> None:
    text = f"a in ({','.join('b' * 2 * MOST_CONDITIONS)})"
    assert LabelSelector.count_conditions(f"{text},c") == 2
    assert FieldSelector.count_conditions("a=(b,c=d)") == 2


async def test_request_of_unknown_caller_parses_no_selectors(started: Started, parsed: list[str]) -> None:
    """Long work on a request may start only after its caller is known."""
    query = (("labelSelector", "a," * 30_000 + "a"), ("fieldSelector", "metadata.name=x," * 4_000 + "a=b"))
    async with started("--authorization-mode=RBAC") as api:
        for path in ("/api/v1/pods", "/api/v1/nodes"):
            assert (await api.server.handle(Request("GET", path, query))).status == 403
    assert parsed == []
