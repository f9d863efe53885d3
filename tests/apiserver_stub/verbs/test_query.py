"""Parameters of writes are validated the same, however often and in whichever combination they come."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver_stub.kinds.built_in import resources
from apiserver_stub.request.api_request import APIRequest
from apiserver_stub.request.request_info import last_values
from apiserver_stub.verbs.query import check_write
from controller_manager.common.api.errors import Invalid
from controller_manager.common.api.wire import Request
from controller_manager.common.serving.authentication import User

PODS = next(kind for kind in resources() if kind.name == "pods")
MEDIA = ("application/apply-patch+yaml", "application/merge-patch+json")
VALUES = st.sampled_from(["", "All", "none", "Strict", "me\n"])
PARAMETERS = st.tuples(st.sampled_from(["dryRun", "fieldManager", "fieldValidation", "force"]), VALUES)
VERBS = ("create", "update", "patch")


def invalid_parameters(verb: str, media: str, query: list[tuple[str, str]]) -> list[str]:
    http = Request("PATCH", "/", tuple(query), {"content-type": media})
    try:
        check_write(APIRequest(http, User("tester"), verb, PODS, "ns", "a", None, last_values(query)))
    except Invalid as refusal:
        return sorted(cause.field for cause in refusal.details.causes)
    return []


def expected(verb: str, media: str, query: list[tuple[str, str]]) -> list[str]:
    values, applies = dict(query), verb == "patch" and media == MEDIA[0]
    manager = values.get("fieldManager", "")
    found = ["fieldManager"] * ((applies and not manager) + (not manager.isprintable()))
    found += ["force"] * (verb == "patch" and not applies and "force" in values)
    found += ["dryRun"] * any(name == "dryRun" and value not in ("", "All") for name, value in query)
    return sorted([*found, *["fieldValidation"] * (values.get("fieldValidation", "") not in ("", "Strict"))])


@given(st.lists(st.lists(PARAMETERS, max_size=3), max_size=2))
def test_repeated_parameters_are_rejected_consistently(queries: list[list[tuple[str, str]]]) -> None:
    for verb, media, query in [*product(VERBS, MEDIA, queries)] * 2:
        assert invalid_parameters(verb, media, query) == expected(verb, media, query)


@pytest.mark.parametrize("given", [[("dryRun", "none"), ("dryRun", "All")], [("dryRun", "All")]])
def test_each_value_of_repeated_parameter_is_validated(given: list[tuple[str, str]]) -> None:
    assert invalid_parameters("create", MEDIA[1], given) == ["dryRun"] * (len(given) - 1)
