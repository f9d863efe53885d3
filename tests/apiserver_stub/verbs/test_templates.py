"""Objects of one template: the answer to one of them is the same as if there had been no other."""

import itertools
import json
import re
from typing import Any

import pytest

from apiserver_stub.kinds import templates
from apiserver_stub.kinds.registry import built_in
from controller_manager.api.errors import ApiError
from tests.apiserver_stub.verbs.conftest import started_api

PODS = "/api/v1/namespaces/default/pods?dryRun=All"
TIME = re.compile(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z")
DRAWN = re.compile(r"other[.-][a-z0-9]{5}\b")
MANAGER = {
    "manager": "m",
    "operation": "Apply",
    "apiVersion": "v1",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:spec": {}},
}
numbers = itertools.count(1)


def pod(value: int, metadata: dict[str, Any], **spec: Any) -> bytes:
    """A pod that differs in the name of a variable from those of other templates."""
    container = {"name": "main", "image": "i:1", "env": [{"name": f"A_{value}_", "value": "a"}]}
    return json.dumps({"metadata": metadata, "spec": {"containers": [container], **spec}}).encode()


async def outcome(api: Any, value: int, body: bytes, agent: str = "test/1") -> Any:
    """What is answered, but for what is another each time."""
    try:
        answer = await api("POST", PODS, body, user_agent=agent)
    except ApiError as error:
        return type(error), DRAWN.sub("NAME", error.message).replace(f"A_{value}_", "VARIABLE"), error.warnings
    text = TIME.sub("NOW", answer.data.decode().replace(answer.tree["metadata"]["uid"], "UID"))
    if not json.loads(body)["metadata"].get("name"):
        text = text.replace(answer.tree["metadata"]["name"], "NAME")
    return answer.status, text.replace(f"A_{value}_", "VARIABLE"), answer.headers.get("warning")


OTHERS: dict[str, dict[str, Any]] = {
    "plain": {"name": "other"},
    "generated": {"generateName": "other-"},
    "generated, and no label": {"generateName": "other."},
    "a name that is no label": {"name": "other.pod"},
    "a bad name": {"name": "Other Pod"},
    "a long name": {"name": "x" * 64},
    "too long a name": {"name": "x" * 254},
    "no name": {},
    "a bad label": {"name": "other", "labels": {"a b": "c"}},
    "a bad owner": {"name": "other", "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "", "uid": "u"}]},
    "an annotation without effect": {
        "name": "other", "annotations": {"scheduler.alpha.kubernetes.io/critical-pod": ""},
    },
    "a manager": {"name": "other", "managedFields": [MANAGER]},
    "a bad manager": {"name": "other", "managedFields": [MANAGER | {"manager": "m" * 200}]},
    "a bad operation": {"name": "other", "managedFields": [MANAGER | {"operation": "Wish"}]},
}  # fmt: skip


@pytest.mark.parametrize("case", OTHERS)
async def test_what_is_known_of_a_template_changes_no_answer(api: Any, case: str) -> None:
    known, new = next(numbers), next(numbers)
    for metadata in (
        {"name": "one"},
        {"name": "two"},
        {"generateName": "other-"},
        {"name": "other", "managedFields": [MANAGER]},
    ):
        await outcome(api, known, pod(known, metadata))
    for agent in ("test/1", "other/2", f"{'x' * 200}/1"):
        first = await outcome(api, new, pod(new, OTHERS[case]), agent)
        assert await outcome(api, known, pod(known, OTHERS[case]), agent) == first
        assert await outcome(api, new, pod(new, OTHERS[case]), agent) == first


async def test_what_is_wrong_or_warned_of_is_told_each_time(api: Any) -> None:
    for spec, told in (
        ({"hostname": "No Name"}, "spec.hostname"),
        ({"hostAliases": [{"ip": "1.2.3.4"}] * 2}, "listed twice"),
    ):
        value = next(numbers)
        seen = [await outcome(api, value, pod(value, {"name": "same"}, **spec)) for _ in range(3)]
        assert told in str(seen[0])
        assert seen == seen[:1] * 3


SPECS: dict[str, dict[str, Any]] = {
    "plain": {"nodeSelector": {"a": "b"}},
    "gated": {"schedulingGates": [{"name": "later"}]},
    "with a field of a feature that is off": {"schedulingGroup": {"podGroupName": "g"}},
}
PROFILE = {"container.apparmor.security.beta.kubernetes.io/main": "localhost/profile"}


@pytest.mark.parametrize("annotations", [{}, PROFILE])
@pytest.mark.parametrize("case", SPECS)
async def test_pods_of_a_template_are_stored_as_the_first(case: str, annotations: dict[str, str]) -> None:
    value, seen = next(numbers), set()
    async with started_api(built_in(enabled=lambda _: False)) as api:
        for name in ("bbbbb", "ccccc", "ddddd", "fffff"):
            volumes = [{"name": f"kube-api-access-{name}", "emptyDir": {}}]
            body = pod(value, {"name": name, "annotations": annotations}, volumes=volumes, **SPECS[case])
            answer = await api("POST", PODS.partition("?")[0], body)
            stored = await api("GET", f"/api/v1/namespaces/default/pods/{name}")
            assert stored.data == answer.data
            text = TIME.sub("NOW", stored.data.decode().replace(stored.tree["metadata"]["uid"], "UID"))
            seen.add(text.replace(f'"{stored.tree["metadata"]["resourceVersion"]}"', "AT").replace(name, "NAME"))
            assert "schedulingGroup" not in stored.tree["spec"]
            assert ("appArmorProfile" in json.dumps(stored.tree["spec"])) == bool(annotations)
    assert len(seen) == 1


async def test_free_texts_are_those_of_each_pod(api: Any) -> None:
    value = next(numbers)
    body, seen = json.loads(pod(value, {"generateName": "other-"})), []
    (container,) = body["spec"]["containers"]
    for text in ("one", "two", "latest", "three"):
        container |= {"image": f"i:{text}", "command": [text], "args": [text], "env": [{"name": "A", "value": text}]}
        made = (await api("POST", PODS, json.dumps(body).encode())).tree
        (found,) = made["spec"]["containers"]
        assert {name: found[name] for name in container} == container
        seen.append((made["metadata"]["managedFields"][0]["fieldsV1"], found["imagePullPolicy"]))
    assert [policy for _, policy in seen] == ["IfNotPresent", "IfNotPresent", "Always", "IfNotPresent"]
    assert all(fields == seen[0][0] for fields, _ in seen)


async def test_a_pod_of_a_known_template_is_judged_no_more(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, value, known = api.call("POST", PODS, b"").kind, next(numbers), []
    found = templates.template_of
    monkeypatch.setattr(
        "apiserver_stub.verbs.write.template_of", lambda *told: known.append((one := found(*told))[0]) or one
    )
    seen = []
    for name in ("one", "two", "dotted.name"):
        await api("POST", PODS, pod(value, {"name": name}))
        seen.append(known[-1] is not None and known[-1].sound)
    assert seen == [True, True, False]
    assert known[0] is known[1]
    assert kind.rules.any_label
