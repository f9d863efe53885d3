"""Pods in forms against pods that are made each on its own: what is asked of two namespaces, of which one knows no
forms, is answered alike.
"""

import json
import random
import re
from typing import Any

import pytest

from apiserver_stub.verbs.object_forms import ObjectForms
from controller_manager.api.protobuf import MEDIA_TYPE
from controller_manager.api.protobuf import body as protobuf_body

NAMESPACE = "/api/v1/namespaces/NAMESPACE"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
PODS = f"{NAMESPACE}/pods"
JSON = "application/json"
MERGE = {"content_type": "application/merge-patch+json"}
CONTAINER = {"name": "c", "image": "i"}
SPECS: list[dict[str, Any]] = [
    {"containers": [CONTAINER]},
    {"containers": [{**CONTAINER, "env": [{"name": "A", "value": "one"}]}], "priorityClassName": "high"},
    {"containers": [CONTAINER], "volumes": [{"name": "kube-api-access-abcde", "emptyDir": {}}]},
    {"containers": [CONTAINER], "nodeName": "node"},
    {"containers": [CONTAINER], "automountServiceAccountToken": False, "hostNetwork": True},
    {"containers": []},
]
METADATA: list[dict[str, Any]] = [
    {"name": "%s"},
    {"name": "%s", "labels": {"app": "web"}},
    {"name": "%s", "labels": {"app": "%s"}},
    {"generateName": "web-"},
    {"name": "fixed"},
    {"name": "fixed", "generateName": "web-"},
    {"name": "%s", "annotations": {"kubernetes.io/config.mirror": "x"}},
    {"name": "%s", "finalizers": ["wrong"]},
]


def requests(source: random.Random) -> list[tuple[str, str, Any, dict[str, str]]]:
    """What is asked, one after the other: pods of few bodies, and now and then something that changes what they are."""
    asked: list[tuple[str, str, Any, dict[str, str]]] = []
    bodies = [(source.choice(METADATA), source.choice(SPECS), source.choice([JSON, MEDIA_TYPE])) for _ in range(2)]
    for number in range(80):
        if source.random() < 0.9:
            metadata, spec, media = source.choice(bodies)
            body = json.dumps({"metadata": metadata, "spec": spec}).replace("%s", f"p{number}").encode()
            if media == MEDIA_TYPE:
                body = protobuf_body("v1", "Pod", body) or b""
            query = source.choice(["", "", "", "", "?fieldManager=other", "?dryRun=All"])
            asked.append(("POST", PODS + query, body, {"content_type": media}))
            continue
        asked.append(source.choice([
            ("POST", f"{NAMESPACE}/limitranges", limits(source.choice(["1", "2"])), {}),
            ("DELETE", f"{NAMESPACE}/limitranges/l", None, {}),
            ("POST", f"{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}}, {}),
            ("PATCH", f"{NAMESPACE}/serviceaccounts/default", {"imagePullSecrets": [{"name": "s"}]}, MERGE),
            ("DELETE", f"{NAMESPACE}/serviceaccounts/default", None, {}),
            ("POST", CLASSES, {"metadata": {"name": "high"}, "value": 7}, {}),
            ("DELETE", f"{CLASSES}/high", None, {}),
            ("PATCH", NAMESPACE, level(source.choice(["privileged", "baseline"])), MERGE),
            ("DELETE", f"{PODS}/fixed", {"gracePeriodSeconds": 0}, {}),
        ]))  # fmt: skip
    return asked


def limits(cpu: str) -> dict[str, Any]:
    return {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "default": {"cpu": cpu}}]}}


def level(name: str) -> dict[str, Any]:
    return {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": name}}}


# What is another for each object: its version, uid, times, and what was drawn for it.
OWN = re.compile(
    r'"resourceVersion": "\d+"|[0-9a-f]{8}-[0-9a-f-]{27}|\d{4}-\d\d-\d\dT[0-9:]+Z|'
    r"web-\w{5}\b|kube-api-access-(?!abcde)\w{5}\b"
)


async def answer_in(api: Any, namespace: str, asked: tuple[str, str, Any, dict[str, str]]) -> Any:
    """An answer without what is another for each object and namespace, but for how many letters that has."""
    method, url, body, headers = asked
    answer = await api.send(method, url.replace("NAMESPACE", namespace), body, **headers)
    found = json.dumps([json.loads(answer.body), answer.headers.get("warning") if url.startswith(PODS) else ""])
    return answer.status, OWN.sub("own", found.replace(namespace, "NAMESPACE"))


@pytest.mark.parametrize("seed", range(40))
async def test_answers_are_those_of_who_knows_no_forms(
    started: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = ObjectForms.find
    monkeypatch.setattr(ObjectForms, "find", lambda self, place: known(self, place) if place[2] == "space-a" else None)
    async with started() as api:
        for namespace in ("space-a", "space-b"):
            assert (await api("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}))[0] == 201
        for asked in requests(random.Random(seed)):
            first = await answer_in(api, "space-a", asked)
            if asked[1].startswith(CLASSES):
                continue
            assert await answer_in(api, "space-b", asked) == first, asked
