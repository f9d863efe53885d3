"""Valid and invalid authentication configuration files, with the results of kube-apiserver."""

import json
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.authn.jwt.claims import ClaimError, expiry, make_user, read_claims
from apiserver_stub.authn.jwt.configuration import parse
from apiserver_stub.authn.jwt.rules import check
from apiserver_stub.common.config_file import ConfigFileError
from apiserver_stub.common.error_list import ErrorList

DATA = Path(__file__).parent / "data"
NOW = 1_800_000_000.0


def rows(name: str) -> list[Any]:
    found = [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]
    return [pytest.param(row, id=row["id"]) for row in found]


@pytest.mark.parametrize("row", rows("files.jsonl"))
def test_file_is_rejected_for_the_same_fields_as_upstream(row: dict[str, Any]) -> None:
    errors = ErrorList()
    if row.get("unreadable"):
        with pytest.raises(ConfigFileError):
            parse(row["file"].encode(), Path("file"))
        return
    configuration = parse(row["file"].encode(), Path("file"))
    compiled = check(configuration, row.get("own_issuers", ()), errors)
    found = sorted([cause.reason.removeprefix("FieldValue"), cause.field] for cause in errors.causes)
    assert found == row.get("errors", [])
    assert found or len(compiled) == len(configuration.jwt)


def test_v1beta1_document_is_read() -> None:
    text = '{"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "AuthenticationConfiguration", "jwt": []}'
    assert parse(text.encode(), Path("file")).jwt == ()


@pytest.mark.parametrize("row", rows("users.jsonl"))
def test_claims_map_to_the_same_user_as_upstream(row: dict[str, Any]) -> None:
    errors = ErrorList()
    configuration = parse(row["file"].encode(), Path("file"))
    compiled = check(configuration, (), errors)
    assert sorted([c.reason.removeprefix("FieldValue"), c.field] for c in errors.causes) == row.get("errors", [])
    for token in row.get("tokens", ()):
        assert user_of(token["claims"], configuration.jwt[0], compiled[0]) == token.get("user"), token["claims"]


def user_of(claims: str, rules: Any, expressions: Any) -> dict[str, Any] | None:
    try:
        found, registered = read_claims(claims.encode())
        expiry(registered, rules.issuer.audiences, NOW)
        user = make_user(found, rules, expressions)
    except ClaimError:
        return None
    extra = {name: list(values) for name, values in user.extra.items()}
    shown = {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": extra}
    return {name: value for name, value in shown.items() if value}
