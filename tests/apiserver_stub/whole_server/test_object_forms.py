"""Objects that are created again and again: each is as if nothing like it had been there before."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from apiserver_stub.verbs import create as creating
from apiserver_stub.verbs.write import write
from tests.apiserver_stub.whole_server.obstacles import add_webhook, deny

NAMESPACE = "/api/v1/namespaces/default"
PODS = f"{NAMESPACE}/pods"
MERGE = {"content_type": "application/merge-patch+json"}
TIMES = 8  # after which what comes again is written in its form, whichever of several servers is asked
DRAWN = "kube-api-access-"
CONTAINER = {"name": "c", "image": "i", "env": [{"name": "RATE", "value": "100%(name)b %s %%"}]}
TOKEN = {"name": f"{DRAWN}abcde", "projected": {"sources": []}}
METADATA: dict[str, dict[str, Any]] = {
    "plain": {},
    "labels": {"labels": {"app": "web"}, "annotations": {"note": "100 %(name)b %%"}},
    "finalizers": {"finalizers": ["example.org/held"]},
    "owned": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}]},
}

Created = tuple[int, Any]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The creates that took all that a create takes."""
    seen: list[str] = []

    def noted(scope: Any, request: Any, mutation: Any) -> Awaitable[Any]:
        seen.append(request.kind.storage)
        return write(scope, request, mutation)

    monkeypatch.setattr(creating, "write", noted)
    return seen


def pod(metadata: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"metadata": metadata, "spec": {"containers": [CONTAINER], **spec}}


def common(made: Any) -> Any:
    """What objects of one template have in common, in the order in which it is written."""
    metadata, text = made["metadata"], json.dumps(made)
    for volume in made["spec"].get("volumes", []):
        text = text.replace(volume["name"], DRAWN) if volume["name"].startswith(DRAWN) else text
    for field in ("name", "uid", "resourceVersion", "creationTimestamp"):
        text = text.replace(json.dumps(metadata[field]), f'"{field}"')
    return json.loads(text), list(json.loads(text)["metadata"])


async def account(api: Any, name: str = "default", **fields: Any) -> None:
    assert (await api("POST", f"{NAMESPACE}/serviceaccounts", {"metadata": {"name": name}, **fields}))[0] == 201


@pytest.mark.parametrize("metadata", METADATA.values(), ids=METADATA)
async def test_objects_in_a_form_are_as_others(
    started: Any, slow: list[str], storage: str, metadata: dict[str, Any]
) -> None:
    async with started() as api:
        await account(api)
        made = [
            (await api("POST", PODS, pod({"name": f"p{n}", **metadata}, dnsPolicy="Default")))[1] for n in range(12)
        ]
        if storage == "memory":
            assert 0 < slow.count("pods") < TIMES
        stored = [(await api("GET", f"{PODS}/p{n}"))[1] for n in range(12)]
        assert stored == made
        assert all(common(one) == common(made[0]) for one in made)
        assert [one["metadata"]["name"] for one in made] == [f"p{n}" for n in range(12)]
        assert len({one["metadata"]["uid"] for one in made}) == 12
        assert len({one["spec"]["volumes"][0]["name"] for one in made}) == 12
        mounts = [one["spec"]["containers"][0]["volumeMounts"][0]["name"] for one in made]
        assert mounts == [one["spec"]["volumes"][0]["name"] for one in made]


async def test_names_are_drawn(started: Any, slow: list[str], storage: str) -> None:
    async with started() as api:
        body = pod({"generateName": "web-" + "x" * 60})
        made = [(await api("POST", PODS, body))[1]["metadata"] for _ in range(12)]
        if storage == "memory":
            assert slow.count("pods") < TIMES
        assert len({one["name"] for one in made}) == 12
        assert {(len(one["name"]), one["name"][:58], one["generateName"]) for one in made} == {
            (63, body["metadata"]["generateName"][:58], body["metadata"]["generateName"])
        }


async def test_what_the_body_names_is_kept(started: Any) -> None:
    """The volume of a pod that is made again has the name that was drawn for the first."""
    async with started() as api:
        await account(api)
        for number in range(TIMES):
            code, made = await api("POST", PODS, pod({"name": f"p{number}"}, volumes=[TOKEN]))
            assert (code, [volume["name"] for volume in made["spec"]["volumes"]]) == (201, [TOKEN["name"]])


async def test_a_name_beside_a_prefix_is_kept(started: Any) -> None:
    async with started() as api:
        for _ in range(TIMES):
            code, made = await api("POST", PODS, pod({"name": "one", "generateName": "some-"}))
            assert (code, made["metadata"]["name"]) == (201, "one")
            assert (await api("DELETE", f"{PODS}/one", {"gracePeriodSeconds": 0}))[0] == 200


@pytest.mark.virtual
async def test_times_are_those_of_each(started: Any) -> None:
    async with started() as api:
        for number in range(TIMES):
            await asyncio.sleep(100)
            metadata = (await api("POST", PODS, pod({"name": f"p{number}"})))[1]["metadata"]
            assert metadata["managedFields"][0]["time"] == metadata["creationTimestamp"]
        first = (await api("GET", f"{PODS}/p0"))[1]["metadata"]["creationTimestamp"]
        assert first < metadata["creationTimestamp"]


@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [("p0", 409, "AlreadyExists"), ("Wrong_Name", 422, "Invalid"), ("a.b", 201, None), ("x" * 64, 201, None)],
)
async def test_names_that_are_others(started: Any, name: str, code: int, reason: str | None) -> None:
    async with started() as api:
        for number in range(TIMES):
            await api("POST", PODS, pod({"name": f"p{number}"}))
        found, answer = await api("POST", PODS, pod({"name": name}))
        assert (found, answer.get("reason")) == (code, reason)


async def test_callers_are_asked_each(started: Any) -> None:
    """A node makes no pods but mirrors."""
    async with started("--enable-admission-plugins=NodeRestriction") as api:
        for number in range(TIMES):
            await api("POST", PODS, pod({"name": f"p{number}"}))
        node = {"impersonate_user": "system:node:a", "impersonate_group": "system:nodes"}
        code, answer = await api("POST", PODS, pod({"name": "last"}), **node)
        assert code == 403
        assert 'node "a" can only create mirror pods' in answer["message"]


@pytest.mark.parametrize("query", ["fieldManager=other", "dryRun=All", "fieldValidation=Strict&pretty=true"])
async def test_queries_are_heeded(started: Any, query: str) -> None:
    async with started() as api:
        for number in range(TIMES):
            await api("POST", PODS, pod({"name": f"p{number}"}), user_agent="first/1")
        code, made = await api("POST", f"{PODS}?{query}", pod({"name": "last"}), user_agent="second/1")
        manager = "other" if "fieldManager" in query else "second"
        assert (code, made["metadata"]["managedFields"][0]["manager"]) == (201, manager)
        assert ((await api("GET", f"{PODS}/last"))[0] == 404) is ("dryRun" in query)


Change = Callable[[Any], Awaitable[None]]


def created(path: str, body: dict[str, Any]) -> Change:
    async def change(api: Any) -> None:
        code, answer = await api("POST", path, body)
        assert code == 201, answer

    return change


def patched(path: str, body: dict[str, Any]) -> Change:
    async def change(api: Any) -> None:
        code, answer = await api("PATCH", path, body, **MERGE)
        assert code == 200, answer

    return change


def limits(**limit: Any) -> dict[str, Any]:
    return {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", **limit}]}}


async def counted(api: Any) -> None:
    await created(f"{NAMESPACE}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "100"}}})(api)
    await patched(
        f"{NAMESPACE}/resourcequotas/q/status", {"status": {"hard": {"pods": "100"}, "used": {"pods": "99"}}}
    )(api)


CHANGES: dict[str, Change] = {
    "defaults": created(f"{NAMESPACE}/limitranges", limits(default={"cpu": "2"})),
    "bounds": created(f"{NAMESPACE}/limitranges", limits(max={"cpu": "2"})),
    "account without a token": patched(f"{NAMESPACE}/serviceaccounts/default", {"automountServiceAccountToken": False}),
    "pull secrets": patched(f"{NAMESPACE}/serviceaccounts/default", {"imagePullSecrets": [{"name": "s"}]}),
    "priority": created(
        "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "c"}, "value": 7, "globalDefault": True}
    ),
    "restricted": patched(NAMESPACE, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}),
    "warned": patched(NAMESPACE, {"metadata": {"labels": {"pod-security.kubernetes.io/warn": "restricted"}}}),
    "quota": counted,
    "mutating webhook": lambda api: add_webhook(api, "MutatingWebhookConfiguration", "CREATE", "pods"),
    "validating webhook": lambda api: add_webhook(api, "ValidatingWebhookConfiguration", "CREATE", "*"),
    "webhook of others": lambda api: add_webhook(api, "ValidatingWebhookConfiguration", "CREATE", "services"),
    "policy": lambda api: deny(api, "CREATE", resources=["pods"], resourceNames=["last"]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_what_admission_asks_is_as_it_is_now(started: Any, storage: str, change: Change) -> None:
    """Once something has changed, a body that came often is answered as one that never came."""
    async with started() as api:
        await account(api)
        for number in range(TIMES):
            assert (await api("POST", PODS, pod({"name": f"p{number}"})))[0] == 201
        await change(api)
        first = await answer_to(api, pod({"name": "last"}))
        await api("DELETE", f"{PODS}/last", {"gracePeriodSeconds": 0})
        if change is counted:
            await patched(f"{NAMESPACE}/resourcequotas/q/status", {"status": {"used": {"pods": "99"}}})(api)
        new = await answer_to(api, pod({"name": "last"}, nodeSelector={}))
        assert first == new
        again = [await answer_to(api, pod({"name": f"more{n}"})) for n in range(TIMES)]
        if change is counted:
            assert {code for code, _, _ in again} == {403}


async def answer_to(api: Any, body: dict[str, Any]) -> Any:
    answer = await api.send("POST", PODS, body)
    made = json.loads(answer.body)
    told = common(made) if answer.status == 201 else {**made, "details": None}
    return answer.status, told, answer.headers.get("warning")


async def test_quotas_count_each(started: Any) -> None:
    async with started() as api:
        path = f"{NAMESPACE}/resourcequotas"
        await created(path, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "10"}}})(api)
        await patched(f"{path}/q/status", {"status": {"hard": {"pods": "10"}, "used": {"pods": "0"}}})(api)
        codes = [(await api("POST", PODS, pod({"name": f"p{number}"})))[0] for number in range(12)]
        assert codes == [201] * 10 + [403] * 2
        assert (await api("GET", f"{path}/q"))[1]["status"]["used"] == {"pods": "10"}


async def test_each_is_counted(started: Any) -> None:
    async with started() as api:
        for number in range(TIMES):
            await api("POST", PODS, pod({"name": f"p{number}"}))
        before = await counts(api)
        for number in range(5):
            await api("POST", PODS, pod({"name": f"q{number}"}))
        after = await counts(api)
        assert {name: after[name] - before[name] for name in after} == dict.fromkeys(after, 5.0)
        assert len(after) == 4


async def counts(api: Any) -> dict[str, float]:
    """How often pods were admitted, and judged, as metrics tell it."""
    answer = await api.send("GET", "/metrics")
    lines = [line.rpartition(" ") for line in answer.body.decode().splitlines()]
    wanted = (
        ("admission_duration_seconds_count", '"LimitRanger"', '"CREATE"', '"admit"'),
        ("admission_duration_seconds_count", '"PodSecurity"', '"CREATE"', '"validate"'),
        ("step_admission_duration_seconds_count", '"CREATE"', '"validate"'),
        ("pod_security_evaluations_total", '"allow"', '"create"', '"pod"'),
    )
    return {
        name: float(value)
        for name, _, value in lines
        if not name.startswith("#") and any(all(word in name for word in words) for words in wanted)
    }


async def test_a_namespace_that_goes(started: Any) -> None:
    async with started() as api:
        await created("/api/v1/namespaces", {"metadata": {"name": "short"}})(api)
        for number in range(TIMES):
            assert (await api("POST", "/api/v1/namespaces/short/pods", pod({"name": f"p{number}"})))[0] == 201
        assert (await api("DELETE", "/api/v1/namespaces/short"))[0] == 200
        code, answer = await api("POST", "/api/v1/namespaces/short/pods", pod({"name": "last"}))
        assert (code, answer["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")


async def test_a_change_in_the_midst_of_many(started: Any) -> None:
    """What is asked for after a change was answered heeds it, however many are under way."""
    async with started() as api:
        phase, judged = [0, False], [0, 0]  # its number; whether there is a limit, while that is certain

        async def toggle() -> None:
            for _ in range(12):
                for method, path in (("POST", "limitranges"), ("DELETE", "limitranges/l")):
                    body = limits(default={"cpu": "2"}) if method == "POST" else None
                    phase[0] += 1
                    await api(method, f"{NAMESPACE}/{path}", body)
                    phase[:] = phase[0] + 1, method == "POST"
                    for _ in range(6):
                        await api("POST", PODS, pod({"generateName": "p-"}))

        async def make() -> None:
            while not toggling.done():
                number, limited = phase
                _, made = await api("POST", PODS, pod({"generateName": "p-"}))
                if number == phase[0] and number % 2 == 0:
                    found = made["spec"]["containers"][0]["resources"].get("limits")
                    assert found == ({"cpu": "2"} if limited else None)
                    judged[limited] += 1

        async with asyncio.TaskGroup() as group:
            toggling = group.create_task(toggle())
            for _ in range(8):
                group.create_task(make())
        assert min(judged) > 50
