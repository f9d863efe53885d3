"""Objects whose labels and annotations are changed again and again: each change is as if it were the first."""

import asyncio
import json
import random
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from apiserver_stub.admission import Admission, Attributes
from apiserver_stub.api_request import APIRequest
from apiserver_stub.verbs.admitted_objects import Admitted, AdmittedObjects
from tests.apiserver_stub.whole_server.obstacles import add_webhook, deny

MERGE = {"content_type": "application/merge-patch+json"}
APPLY = {"content_type": "application/apply-patch+yaml"}
STRATEGIC = {"content_type": "application/strategic-merge-patch+json"}
NAMESPACE = "/api/v1/namespaces/default"
POD = f"{NAMESPACE}/pods/web"
DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments/web"
MAP = f"{NAMESPACE}/configmaps/web"
LABELS = {"app": "web"}
CONTAINERS = {"containers": [{"name": "c", "image": "i"}]}
OBJECTS: dict[str, dict[str, Any]] = {
    POD: {"apiVersion": "v1", "kind": "Pod", "spec": CONTAINERS},
    DEPLOYMENT: {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {"selector": {"matchLabels": LABELS}, "template": {"metadata": {"labels": LABELS}, "spec": CONTAINERS}},
    },
    MAP: {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}},
}
TIMES = 8  # after which admission is not asked any more, whichever of several servers is
Change = Callable[[Any], Awaitable[object]]


def named(url: str, **metadata: Any) -> dict[str, Any]:
    return {**OBJECTS[url], "metadata": {"name": "web", "labels": LABELS, "annotations": {"note": "0"}, **metadata}}


async def create(api: Any, url: str, **metadata: Any) -> None:
    assert (await api("POST", url.rpartition("/")[0], named(url, **metadata)))[0] == 201


async def patched(api: Any, url: str, number: object, member: str = "labels", **headers: str) -> Any:
    """The status, the texts and the warning of a patch that sets one of them."""
    answer = await api.send("PATCH", url, {"metadata": {member: {"round": str(number)}}}, **MERGE, **headers)
    found = json.loads(answer.body)
    return answer.status, found.get("metadata", {}).get(member, found.get("reason")), answer.headers.get("warning")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The updates that admission was asked to change."""
    seen: list[str] = []
    mutate = Admission.mutate

    async def noted(self: Admission, attributes: Attributes) -> None:
        if attributes.operation == "update":
            seen.append(attributes.kind.plural)
        await mutate(self, attributes)

    monkeypatch.setattr(Admission, "mutate", noted)
    return seen


async def replaced(api: Any, url: str, number: int) -> int:
    _, found = await api("GET", url)
    found["metadata"]["labels"]["round"] = str(number)
    code: int = (await api("PUT", url, found))[0]
    return code


async def applied(api: Any, url: str, number: int) -> int:
    body = named(url, labels={**LABELS, "round": str(number)})
    code: int = (
        await api.send("PATCH", f"{url}?fieldManager=ci&force=true", json.dumps(body).encode(), **APPLY)
    ).status
    return code


async def merged(api: Any, url: str, number: int) -> int:
    code: int = (await patched(api, url, number))[0]
    return code


@pytest.mark.parametrize("url", OBJECTS)
@pytest.mark.parametrize("change", [merged, applied, replaced])
async def test_admission_is_asked_a_few_times(
    started: Any, asked: list[str], storage: str, url: str, change: Callable[[Any, str, int], Awaitable[int]]
) -> None:
    async with started() as api:
        await create(api, url)
        for number in range(TIMES + 10):
            assert await change(api, url, number) == 200
            assert (await api("GET", url))[1]["metadata"]["labels"] == {**LABELS, "round": str(number)}
        if storage == "memory":
            assert 0 < asked.count(url.split("/")[-2]) < TIMES


async def test_admission_is_asked_once_more_when_others_have_written(started: Any, asked: list[str]) -> None:
    async with started() as api:
        await create(api, MAP)
        for number in range(TIMES):
            await patched(api, MAP, number)
        assert (await api("PATCH", MAP, {"data": {"a": "2"}}, **MERGE))[0] == 200
        before = asked.count("configmaps")
        assert (await patched(api, MAP, "then"))[0] == 200
        assert asked.count("configmaps") == before + 1


@pytest.mark.parametrize("url", OBJECTS)
async def test_what_follows_from_a_change_follows_each_time(started: Any, url: str) -> None:
    async with started() as api:
        await create(api, url)
        generations = []
        for number in range(TIMES):
            await patched(api, url, number)
            await patched(api, url, number, "annotations")
            generations.append((await api("GET", url))[1]["metadata"].get("generation"))
        rise = 1 if url == DEPLOYMENT else 0
        assert generations == [generations[0] and generations[0] + rise * number for number in range(TIMES)]


@pytest.mark.parametrize("url", OBJECTS)
async def test_bad_texts_are_refused_and_nothing_is_changed(started: Any, url: str) -> None:
    async with started() as api:
        await create(api, url)
        for number in range(TIMES):
            await patched(api, url, number)
        assert (await patched(api, url, "x" * 128 * 1024, "annotations"))[0] == 200
        before = await api("GET", url)
        for labels, annotations in (
            ({"round": "a b"}, {}),
            ({"a b": "c"}, {}),
            ({}, {"a b": "c"}),
            ({}, {"note": "x" * 128 * 1024}),
        ):
            code, answer = await api(
                "PATCH", url, {"metadata": {"labels": labels, "annotations": annotations}}, **MERGE
            )
            (cause,) = answer["details"]["causes"]
            assert (code, answer["reason"], cause["field"]) == (
                422,
                "Invalid",
                "metadata.labels" if labels else "metadata.annotations",
            )
        long = f"{url}?fieldManager={'m' * 129}"
        assert (await api("PATCH", long, {"metadata": {"labels": {"round": "x"}}}, **MERGE))[0] == 422
        assert await api("GET", url) == before
        assert (await patched(api, url, "last"))[0] == 200


@pytest.mark.parametrize("way", [MERGE, APPLY])
async def test_texts_of_the_platform_are_held_to_the_rules_of_their_kind(started: Any, way: dict[str, str]) -> None:
    query = "?fieldManager=ci&force=true" if way is APPLY else ""
    async with started() as api:
        await create(api, POD)
        for cost, code in (*((str(number), 200) for number in range(TIMES)), ("a lot", 422), ("7", 200)):
            body = named(POD, annotations={"controller.kubernetes.io/pod-deletion-cost": cost})
            if way is MERGE:
                del body["spec"]
            for label in ("no", cost.replace(" ", "-")):
                body["metadata"]["labels"] = {**LABELS, "round": label}
                answer = await api.send("PATCH", f"{POD}{query}", json.dumps(body).encode(), **way)
                assert answer.status == code


OBSTACLES: dict[str, tuple[Change, tuple[int, ...]]] = {
    "mutating webhook": (lambda api: add_webhook(api, "MutatingWebhookConfiguration", "UPDATE", "*"), (500, 500, 500)),
    "validating webhook": (
        lambda api: add_webhook(api, "ValidatingWebhookConfiguration", "UPDATE", "*"),
        (500, 500, 500),
    ),
    "webhook of pods": (
        lambda api: add_webhook(api, "ValidatingWebhookConfiguration", "UPDATE", "pods"),
        (500, 200, 200),
    ),
    "policy": (lambda api: deny(api, "UPDATE"), (422, 422, 422)),
    "level": (
        lambda api: api(
            "PATCH", NAMESPACE, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}, **MERGE
        ),
        (200, 200, 200),
    ),
}


@pytest.mark.parametrize(("url", "at"), [(url, at) for at, url in enumerate(OBJECTS)])
@pytest.mark.parametrize(("change", "codes"), OBSTACLES.values(), ids=OBSTACLES)
async def test_what_admission_says_is_as_it_is_now(
    started: Any, url: str, at: int, change: Change, codes: tuple[int, ...]
) -> None:
    async with started() as api:
        await create(api, url)
        for number in range(TIMES):
            assert (await patched(api, url, number))[0] == 200
        await change(api)
        for number in range(2):
            assert (await patched(api, url, f"then-{number}"))[0] == codes[at]


async def test_warnings_are_told_each_time(started: Any) -> None:
    async with started() as api:
        await create(api, DEPLOYMENT)
        for number in range(TIMES):
            await patched(api, DEPLOYMENT, number)
        level = {"pod-security.kubernetes.io/warn": "restricted"}
        await api("PATCH", NAMESPACE, {"metadata": {"labels": level}}, **MERGE)
        for number in range(TIMES):
            code, _, warning = await patched(api, DEPLOYMENT, f"then-{number}")
            assert (code, "would violate" in warning) == (200, True)


async def test_warnings_of_rules_are_told_each_time(started: Any) -> None:
    url = "/api/v1/persistentvolumes/web"
    spec = {"persistentVolumeReclaimPolicy": "Recycle", "hostPath": {"path": "/tmp"}}
    async with started() as api:
        body = {"metadata": {"name": "web", "labels": LABELS}, "spec": {"capacity": {"storage": "1Gi"}, **spec}}
        body["spec"]["accessModes"] = ["ReadWriteOnce"]
        assert (await api("POST", "/api/v1/persistentvolumes", body))[0] == 201
        for number in range(TIMES):
            code, _, warning = await patched(api, url, number)
            assert (code, "Recycle" in warning) == (200, True)


async def test_others_are_asked_about_anew(started: Any) -> None:
    async with started("--enable-admission-plugins=NodeRestriction") as api:
        await create(api, POD)
        for number in range(TIMES):
            await patched(api, POD, number)
        node = {"impersonate_user": "system:node:", "impersonate_group": "system:nodes"}
        assert (await patched(api, POD, "x", **node))[0] == 403
        version = (await api("GET", POD))[1]["metadata"]["resourceVersion"]
        answer = await api.send("PATCH", f"{POD}?dryRun=All", {"metadata": {"labels": {"round": "dry"}}}, **MERGE)
        assert (answer.status, json.loads(answer.body)["metadata"]["labels"]["round"]) == (200, "dry")
        stale = {"metadata": {"labels": {"round": "stale"}, "resourceVersion": "1"}}
        assert (await api("PATCH", POD, stale, **MERGE))[0] == 409
        assert (await api("GET", POD))[1]["metadata"]["resourceVersion"] == version


async def test_those_at_once_are_all_kept(started: Any) -> None:
    async with started() as api:
        await create(api, MAP)
        for number in range(TIMES):
            await patched(api, MAP, number)
        texts = {f"k{number}": "v" for number in range(30)}
        async with asyncio.TaskGroup() as group:
            for name in texts:
                group.create_task(api("PATCH", MAP, {"metadata": {"labels": {name: "v"}}}, **MERGE))
        assert (await api("GET", MAP))[1]["metadata"]["labels"] == {**LABELS, "round": str(TIMES - 1), **texts}


async def test_objects_under_deletion_go_with_their_last_hold(started: Any) -> None:
    async with started() as api:
        await create(api, MAP, finalizers=["example.org/held"])
        for number in range(TIMES):
            await patched(api, MAP, number)
        assert (await api("DELETE", MAP))[0] == 200
        for number in range(3):
            assert (await patched(api, MAP, f"then-{number}"))[0] == 200
        assert (await api("PATCH", MAP, {"metadata": {"finalizers": None}}, **MERGE))[0] == 200
        assert (await api("GET", MAP))[0] == 404


async def test_each_is_counted(started: Any) -> None:
    async def counts() -> list[float]:
        answer = await api.send("GET", "/metrics")
        families = "admission_controller_admission_duration", "admission_step_admission_duration", "pod_security_eval"
        return [
            float(line.rpartition(" ")[2])
            for line in answer.body.decode().splitlines()
            if any(family in line for family in families)
            and ("_count" in line or "_total" in line)
            and ('"UPDATE"' in line or '"update"' in line)
        ]

    async with started() as api:
        await create(api, POD)
        for number in range(TIMES):
            await patched(api, POD, number)
        before = await counts()
        for number in range(5):
            await patched(api, POD, f"then-{number}")
        after = await counts()
        assert before
        assert set(map(float.__sub__, after, before)) <= {0.0, 5.0, 10.0}
        assert sum(map(float.__sub__, after, before)) >= 5 * 4


# What is asked of two namespaces, of which one asks admission each time, is answered alike.
ENTRY = {
    "manager": "sent",
    "operation": "Update",
    "apiVersion": "v1",
    "time": "2020-01-01T00:00:00Z",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:metadata": {"f:labels": {"f:round": {}}}},
}
TEXTS: list[dict[str, Any]] = [
    {"labels": {"round": "%d"}},
    {"labels": {"round": "%d"}},
    {"annotations": {"note": "%d"}},
    {"labels": {"round": None}},
    {"labels": {"round": "%d", "other": "%d"}, "annotations": {"note": "same"}},
    {"labels": {"a b": "%d"}},
    {"labels": {"topology.kubernetes.io/zone": "z%d"}},
    {"annotations": {"kubernetes.io/config.mirror": "%d"}},
    {"annotations": {"deployment.kubernetes.io/revision": "%d"}},
    {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "%d"}},
    {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "%d" * 3 + "x"}},
    {"labels": None},
    {"labels": {"app": "web"}},
    {"finalizers": ["example.org/held"]},
    {"finalizers": None},
    {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}]},
    {"generation": 77},
    {"labels": {"round": "%d"}, "generation": 77},
    {"managedFields": [{}]},
    {"labels": {"round": "%d"}, "managedFields": [ENTRY]},
    {"labels": {"round": "%d"}, "managedFields": [{**ENTRY, "manager": "m" * 129}]},
    {"uid": "wrong"},
    {"deletionTimestamp": "2030-01-01T00:00:00Z"},
    {},
]
SPECS: dict[str, list[dict[str, Any]]] = {
    POD: [{"spec": {"activeDeadlineSeconds": 100}}, {"spec": {"nodeName": "n"}}, {"status": {"phase": "Running"}}],
    DEPLOYMENT: [{"spec": {"replicas": 3}}, {"spec": {"paused": True}}, {"status": {"replicas": 3}}],
    MAP: [{"data": {"a": "%d"}}, {"immutable": True}, {"binaryData": {"b": "AA=="}}],
}
WAYS = [MERGE, MERGE, STRATEGIC, APPLY]
OWN = re.compile(r'"resourceVersion": "\d+"|[0-9a-f]{8}-[0-9a-f-]{27}|\d{4}-\d\d-\d\dT[0-9:]+Z|kube-api-access-\w{5}\b')


def requests(source: random.Random) -> list[tuple[str, str, Any, dict[str, str]]]:
    """Changes of a few objects, one after the other, mostly of texts, and now and then what becomes of others."""
    some = [source.choice(TEXTS) for _ in range(3)]
    url = source.choice(list(OBJECTS))
    collection = url.rpartition("/")[0]
    asked: list[tuple[str, str, Any, dict[str, str]]] = [("POST", collection, named(url), {})]
    for number in range(60):
        texts = json.loads(json.dumps(source.choice(some)).replace("%d", str(number % 4)))
        query = source.choice(["", "", "", "", "fieldManager=one", "dryRun=All", "fieldManager=two&force=true"])
        chance = source.random()
        if chance < 0.75:
            way = source.choice(WAYS)
            body = {"metadata": texts} if way is not APPLY else {**named(url), "metadata": {"name": "web", **texts}}
            if way is APPLY and "fieldManager" not in query:
                query = "fieldManager=ci"
            part = "/status" if url != MAP and source.random() < 0.1 else ""
            asked.append(("PATCH", f"{url}{part}?{query}", json.dumps(body).encode(), way))
        elif chance < 0.85:
            asked.append(("PUT", f"{url}?{query}", texts, {}))
        elif chance < 0.95:
            part = source.choice(["", "", "/status" if url != MAP else ""])
            change = json.loads(json.dumps(source.choice(SPECS[url])).replace("%d", str(number)))
            asked.append(("PATCH", f"{url}{part}?{query}", change, MERGE))
        else:
            asked.append(source.choice([("DELETE", url, {"gracePeriodSeconds": 0}, {}), ("GET", url, None, {})]))
            asked.append(("POST", collection, named(url), {}))
    return asked


async def answer_in(api: Any, namespace: str, asked: tuple[str, str, Any, dict[str, str]]) -> Any:
    """An answer, without what is another for each object and namespace, and whether anything was written. A PUT lays
    texts over what is there.
    """
    method, url, body, headers = asked
    url = url.replace("/default/", f"/{namespace}/")
    code, found = await api("GET", url.partition("?")[0].removesuffix("/status"))
    version = found["metadata"].get("resourceVersion")
    if method == "PUT":
        if code == 404:
            return code
        for name, value in body.items():
            found["metadata"][name] = {**(found["metadata"].get(name) or {}), **value} if type(value) is dict else value
        body = found
    answer = await api.send(method, url, body, **headers)
    found = json.loads(answer.body)
    text = json.dumps([found, answer.headers.get("warning")])
    is_same = found["metadata"].get("resourceVersion") == version
    return answer.status, is_same, OWN.sub("own", text.replace(namespace, "NAMESPACE"))


@pytest.mark.virtual
@pytest.mark.parametrize("seed", range(40))
async def test_answers_are_those_of_who_asks_each_time(
    started: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = AdmittedObjects.find

    def find(self: AdmittedObjects, request: APIRequest, revision: int) -> Admitted | None:
        return known(self, request, revision) if request.namespace == "space-a" else None

    monkeypatch.setattr(AdmittedObjects, "find", find)
    async with started() as api:
        for namespace in ("space-a", "space-b"):
            assert (await api("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}))[0] == 201
        for one in requests(random.Random(seed)):
            assert await answer_in(api, "space-a", one) == await answer_in(api, "space-b", one), one
