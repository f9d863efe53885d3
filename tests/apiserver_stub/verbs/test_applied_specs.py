"""Specs that came before in applied configurations: the answer is the same as if each came for the first time."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apiserver_stub.kinds.findings import Findings
from apiserver_stub.patch.apply import AppliedSpec
from apiserver_stub.verbs import apply, field_management
from apiserver_stub.verbs.unchanged_objects import UnchangedObjects
from controller_manager.api.errors import BadRequest
from tests.apiserver_stub.verbs.test_repeated_specs import (
    CASES,
    DEPLOYMENT,
    DEPLOYMENTS,
    POD,
    PODS,
    numbers,
    outcome,
    spaced,
)

APPLY = "application/apply-patch+yaml"


@contextmanager
def nothing_known() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Findings, "of", lambda self, _data, _beside=None: self._make())
        patched.setattr(UnchangedObjects, "find", lambda _self, _request: None)
        yield


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("level", ["Strict", "Warn", "Ignore"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("url", "spec", "api_version", "kind"),
    [(PODS, POD, b"v1", b"Pod"), (DEPLOYMENTS, DEPLOYMENT, b"apps/v1", b"Deployment")],
)
async def test_a_known_spec_changes_no_answer(
    api: Any, case: str, level: str, is_there: bool, url: str, spec: bytes, api_version: bytes, kind: bytes
) -> None:
    def body(case: str, spec: bytes) -> bytes:
        return CASES[case].replace(b"API", api_version).replace(b"KIND", kind).replace(b"%b", spec)

    asked = f"{url}/a?fieldManager=m&fieldValidation={level}"
    known, new = spaced(spec, 0), spaced(spec, next(numbers))  # which has never come
    if is_there:
        await api("PATCH", asked, body("typed", new), content_type=APPLY)
    for _ in range(3):
        await api("PATCH", f"{asked}&dryRun=All", body("typed", known), content_type=APPLY)
    seen = [await applied(api, f"{asked}&dryRun=All", body(case, one)) for one in (known, new)]
    assert seen[0] == seen[1]


async def test_what_repeats_a_key_is_told_each_time(api: Any) -> None:
    spec = POD[:-1] + b',"nodeName":"n%d","nodeName":"n"}' % next(numbers)
    body = CASES["typed"].replace(b"API", b"v1").replace(b"KIND", b"Pod").replace(b"%b", spec)
    seen = [await applied(api, f"{PODS}/a?fieldManager=m&dryRun=All", body) for _ in range(4)]
    assert all("duplicate field" in warning for _, _, warning in seen)
    with pytest.raises(BadRequest, match="strict decoding error"):
        await api("PATCH", f"{PODS}/a?fieldManager=m&fieldValidation=Strict", body, content_type=APPLY)


async def applied(api: Any, url: str, body: bytes) -> Any:
    return await outcome(api, url, body, method="PATCH", content_type=APPLY)


@pytest.mark.parametrize("case", ["typed", "spec first"])
async def test_a_spec_that_came_twice_is_not_read_again(api: Any, case: str) -> None:
    spec = POD.replace(b"x:y", b"value %d" % next(numbers))
    body = CASES[case].replace(b"API", b"v1").replace(b"KIND", b"Pod").replace(b"%b", spec)
    seen = []
    for _ in range(4):
        config, _, found = apply._read(api.call("PATCH", f"{PODS}/a", body, {"content-type": APPLY}))
        seen.append(found is not None and config["spec"] is found.tree)
    assert seen == [False, True, True, True]


async def test_what_is_kept_of_a_spec_stays_as_it_is(api: Any) -> None:
    body = CASES["typed"].replace(b"API", b"apps/v1").replace(b"KIND", b"Deployment").replace(b"%b", DEPLOYMENT)
    url = f"{DEPLOYMENTS}/a?fieldManager=m"
    for _ in range(3):
        await api("PATCH", url, body, content_type=APPLY)
    _, _, found = apply._read(api.call("PATCH", url, body, {"content-type": APPLY}))
    assert found is not None
    before = json.dumps(found.tree)
    await api("PATCH", f"{DEPLOYMENTS}/a/scale", {"spec": {"replicas": 7}}, content_type="application/merge-patch+json")
    for _ in range(2):
        await api("PATCH", url, body, content_type=APPLY)
    await api("PATCH", url.replace("/a?", "/b?"), body.replace(b'"name":"a"', b'"name":"b"'), content_type=APPLY)
    assert json.dumps(found.tree) == before == json.dumps(json.loads(DEPLOYMENT))


SPECS = st.fixed_dictionaries(
    {"image": st.sampled_from(["i", "j"])},
    optional={
        "replicas": st.sampled_from([None, 1, 2]),
        "cpu": st.sampled_from(["1", "1000m", 1]),
        "env": st.sampled_from([[], [{"name": "A", "value": "1"}], [{"name": "B"}, {"name": "A", "value": "2"}]]),
        "strategy": st.sampled_from([None, {}, {"type": "Recreate"}]),
        "label": st.sampled_from(["x", "y"]),
    },
)


def configuration(name: str, drawn: dict[str, Any]) -> bytes:
    container = {"name": "c", "image": drawn["image"]}
    if "cpu" in drawn:
        container["resources"] = {"limits": {"cpu": drawn["cpu"]}}
    if "env" in drawn:
        container["env"] = drawn["env"]
    own = {"app": "a"}
    template = {"metadata": {"labels": own}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": own}, "template": template}
    spec |= {name: drawn[name] for name in ("replicas", "strategy") if name in drawn}
    metadata = {"name": name, "labels": {"l": drawn["label"]} if "label" in drawn else None}
    return json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}).encode()


STEPS = st.lists(st.tuples(SPECS, st.sampled_from(["one", "two"]), st.booleans()), min_size=1, max_size=6)


@given(steps=STEPS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_what_is_known_changes_nothing(api: Any, steps: list[tuple[dict[str, Any], str, bool]]) -> None:
    async def play() -> list[Any]:
        name, seen = f"d{next(numbers)}", []
        for drawn, manager, force in [*steps, *(step for step in steps for _ in range(3))]:
            url = f"{DEPLOYMENTS}/{name}?fieldManager={manager}&force={str(force).lower()}"
            seen.append(plain(await applied(api, url, configuration(name, drawn)), name))
        return seen

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(field_management, "wall_seconds", lambda: 0.0)  # by which entries are in order
        with nothing_known():
            wanted = await play()
        for _ in range(2):
            assert await play() == wanted


def plain(found: Any, name: str) -> str:
    """Return an answer without what is another for each object."""
    text = str(found).replace(name, "NAME")
    return json.dumps([part for part in text.split(",") if "resourceVersion" not in part])


def test_few_specs_are_kept(api: Any) -> None:
    kind = api.call("GET", DEPLOYMENTS).kind
    first = apply.patch.applied_spec(kind.schema, b"{}")
    for number in range(100):
        assert isinstance(apply.patch.applied_spec(kind.schema, b'{"replicas":%d}' % number), AppliedSpec)
    assert apply.patch.applied_spec(kind.schema, b"{}") is not first
