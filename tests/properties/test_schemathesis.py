"""Requests generated from the OpenAPI documents: answers fit the schema, without internal errors.

The same requests are made in each run. `make fuzz` makes many more: EXAMPLES of each operation, drawn from SEED.
"""

import json
import os
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import schemathesis
import yaml
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from openapi_schema_validator import OAS30Validator, oas30_format_checker
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from apiserver_stub.apis.openapi.definitions import name_of
from apiserver_stub.apis.openapi.operation import root_of
from apiserver_stub.kinds.registry import built_in
from controller_manager.common.api.wire import Request
from controller_manager.common.base.plain_yaml import without_nulls
from controller_manager.common.serving.http import parse_target
from tests.apiserver_stub.api_client import ADMIN

EXAMPLES, SEED = int(os.environ.get("EXAMPLES", "0")), int(os.environ.get("SEED", "7"))
KINDS = {(kind.api_version, kind.kind): kind for kind in built_in().all()}
ROOTS = sorted({root_of(kind.group, kind.version) for kind in KINDS.values()})
MANIFESTS = Path(__file__).parent.parent / "manifests"
STATUS = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Status"
REFUSED = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")


def not_a_failure(context: Any, response: Any, case: Any) -> bool | None:
    """kube-apiserver answers some malformed requests with 500 without a reason; an internal error has one."""
    is_deserved = response.status_code == 500 and "reason" not in response.json()
    return None if is_deserved else not_a_server_error(context, response, case)


HEAD = [not_a_failure, status_code_conformance, content_type_conformance]
CHECKS = [*HEAD, response_schema_conformance]

Places = Mapping[str, list[tuple[str, str]]]


def application(api: Any) -> Callable[..., Iterable[bytes]]:
    """The server as a WSGI application for schemathesis."""

    core = api.ask("GET", "/openapi/v3/api/v1").tree["components"]["schemas"]

    def respond(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path, query = parse_target(f"{environ['REQUEST_URI']}?{environ['QUERY_STRING']}")
        headers = {name[5:].replace("_", "-").lower(): value for name, value in environ.items() if name[:5] == "HTTP_"}
        headers["content-type"] = environ.get("CONTENT_TYPE", "")
        body = environ["wsgi.input"].read()
        answer = api.send(Request(environ["REQUEST_METHOD"], path, query, headers, body, ADMIN))
        data = answer.body
        if path.startswith("/openapi/v3/"):
            data = json.dumps(with_refusals(answer.tree, core)).encode()
        start(f"{answer.status} -", list(answer.headers.items()))
        return [data]

    return respond


def with_refusals(document: Any, core: Any) -> Any:
    """Return a document in which every operation may return an error Status, which Kubernetes does not publish."""
    content = {media: {"schema": {"$ref": STATUS}} for media in REFUSED}
    for item in document["paths"].values():
        for method, operation in item.items():
            if method != "parameters":
                operation["responses"]["default"] = {"description": "a refusal", "content": content}
                operation["responses"]["401"]["content"] = content
    schemas = document["components"].setdefault("schemas", {})
    document["components"]["schemas"] = {**core, **schemas}
    return document


@pytest.fixture(scope="module")
def places(api: Any) -> Places:
    """The objects of real manifests, created: namespaces and names by resource."""
    found: dict[str, list[tuple[str, str]]] = {}
    for file in sorted(MANIFESTS.glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            for one in document["items"] if document["kind"] == "List" else [document]:
                kind, metadata = KINDS[one["apiVersion"], one["kind"]], one["metadata"]
                namespace = metadata.get("namespace", "default")
                scope = f"/namespaces/{namespace}" if kind.namespaced else ""
                made = api.ask("POST", f"/{root_of(kind.group, kind.version)}{scope}/{kind.plural}", one)
                assert made.status == 201, made.body
                found.setdefault(kind.plural, []).append((namespace, metadata["name"]))
    return found


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/api/v1/namespaces/guests/services/front", {"spec": {"internalTrafficPolicy": "Cluster"}}),
        ("PUT", "/apis/apps/v1/namespaces/guests/deployments/front/status", {"status": {"readyReplicas": -5}}),
        (
            "POST",
            "/api/v1/namespaces/default/podtemplates",
            {"template": {"spec": {"containers": [{"name": "", "volumeDevices": [{"name": "", "devicePath": "x"}]}]}}},
        ),
    ],
)
@pytest.mark.usefixtures("places")
def test_earlier_internal_errors_are_rejected_as_invalid(api: Any, method: str, path: str, body: Any) -> None:
    assert api.ask(method, path, {"metadata": {"name": "front"}, **body}).status == 422


@pytest.mark.usefixtures("places")
def test_stored_objects_fit_their_schema(api: Any) -> None:
    """Every object of the manifests and of the server fits the schema of its kind, except for unset lists that are
    null.
    """
    checked = set()
    for kind in KINDS.values():
        if "list" not in kind.verbs:
            continue
        root = root_of(kind.group, kind.version)
        description = api.ask("GET", f"/openapi/v3/{root}").tree
        for item in api.ask("GET", f"/{root}/{kind.plural}").tree["items"]:
            schema = {"$ref": f"#/components/schemas/{name_of(kind)}", "components": description["components"]}
            OAS30Validator(schema, format_checker=oas30_format_checker).validate(without_nulls(item))
            checked.add(kind.kind)
    assert len(checked) > 25


@pytest.mark.parametrize("root", ROOTS)
def test_responses_fit_their_schema(api: Any, places: Places, root: str) -> None:
    schema = schemathesis.openapi.from_wsgi(f"/openapi/v3/{root}", application(api))
    operations = [found.ok() for found in schema.get_all_operations()]
    if not EXAMPLES:
        writes = [operation for operation in operations if operation.method in ("post", "put", "patch")]
        operations = random.Random(root).sample(writes, min(1, len(writes)))
    for operation in sorted(operations, key=lambda operation: operation.method == "delete"):
        run(operation, places)


def run(operation: Any, places: Places) -> None:
    """Send generated requests for an operation, alternately arbitrary and likely ones."""

    @seed(SEED)
    @settings(
        max_examples=EXAMPLES or 4, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(), choice=st.integers(0, 3))
    def asks(case: Any, choice: int) -> None:
        case.query.pop("watch", None)
        if "/watch/" in case.path:
            case.query["timeoutSeconds"] = "2"
        elif choice > 1:
            case.query.clear()
        if choice:
            make_likely(case, places, choice)
        response = case.call()
        case.validate_response(response, checks=HEAD if is_known_mismatch(case, response) else CHECKS)

    asks()


def make_likely(case: Any, places: Places, choice: int) -> None:
    """Make a request address an existing object."""
    known = next((places[part] for part in reversed(case.path.split("/")) if part in places), [("default", "some")])
    namespace, name = known[choice % len(known)]
    case.path_parameters.update(
        {key: value for key, value in (("namespace", namespace), ("name", name)) if key in case.path_parameters}
    )
    about = case.operation.definition.raw.get("x-kubernetes-group-version-kind")
    if about and isinstance(case.body, dict) and case.method in ("POST", "PUT"):
        case.body["apiVersion"] = f"{about['group']}/{about['version']}".lstrip("/")
        case.body["kind"] = about["kind"]
        case.body["metadata"] = {"name": name if case.method == "PUT" else f"made-{choice}"}


def is_known_mismatch(case: Any, response: Any) -> bool:
    """Whether an answer is known to differ from the document: a stream; the object that a deletion leaves until its
    finalizers are gone; an event written as the core kind, which needs no `eventTime`; an unset list that is null; the
    status of a binding or an eviction.
    """
    if "/watch/" in case.path or "/events.k8s.io/" in case.path or b":null" in response.content:
        return True
    if case.path.endswith(("/binding", "/bindings", "/eviction")):
        return True
    is_gone = case.method == "DELETE" and response.status_code < 300
    return is_gone and json.loads(response.content).get("kind") != "Status"
