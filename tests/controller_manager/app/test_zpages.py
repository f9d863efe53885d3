"""/flagz and /statusz, for people and for programs."""

import asyncio
import json
import re

import pytest
import yaml

from controller_manager.api.errors import NotAcceptable
from controller_manager.api.wire import Request
from controller_manager.app.zpages import About, flagz_handler, statusz_handler

pytestmark = pytest.mark.virtual

ABOUT = About("manager", "1.2.3", "1.36")
SETTINGS = {"v": 2, "leader-elect": True, "controllers": ["*", "-a"], "feature-gates": {"A": True}, "token": None}


TEXT = ("", "*/*", "text/plain", "text/html, */*;q=0.8", "application/json;v=v9;as=Flagz, text/*")


async def ask(handler, accept: str = "") -> tuple[str, str]:
    response = await handler(Request("GET", "/", headers={"accept": accept} if accept else {}))
    assert response.status == 200
    assert response.headers["cache-control"] == "no-cache, no-store"
    return response.headers["content-type"], response.body.decode()


@pytest.mark.parametrize("accept", TEXT)
async def test_whoever_asks_for_nothing_special_gets_text(accept):
    kind, text = await ask(flagz_handler(ABOUT, SETTINGS), accept)
    assert kind.startswith("text/plain")
    head, flags = text.strip().split("\n\n")
    assert head.startswith("manager flagz\nWarning: ")
    assert flags.split("\n") == ["controllers=*,-a", "feature-gates=A=true", "leader-elect=true", "token=", "v=2"]


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
async def test_flags_as_an_object(version):
    accept = f"application/json;v={version};g=config.k8s.io;as=Flagz"
    kind, text = await ask(flagz_handler(ABOUT, SETTINGS), accept)
    assert kind == "application/json"
    found = json.loads(text)
    assert (found["kind"], found["apiVersion"]) == ("Flagz", f"config.k8s.io/{version}")
    assert found["metadata"] == {"name": "manager"}
    assert found["flags"]["leader-elect"] == "true"
    kind, text = await ask(flagz_handler(ABOUT, SETTINGS), accept.replace("json", "yaml"))
    assert (kind, yaml.safe_load(text)) == ("application/yaml", found)


async def test_the_status_as_text_and_as_an_object():
    handler = statusz_handler(ABOUT, ["/a", "/b"])
    await asyncio.sleep(3723.5)
    _, text = await ask(handler)
    lines = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    assert (lines["Up"], lines["Binary version"], lines["Emulation version"]) == ("1 hr 02 min 03 sec", "1.2.3", "1.36")
    assert lines["Paths"] == "/a /b"
    _, text = await ask(handler, "application/json;g=config.k8s.io;v=v1beta1;as=Statusz")
    found = json.loads(text)
    assert (found["kind"], found["uptimeSeconds"], found["paths"]) == ("Statusz", 3723, ["/a", "/b"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", found["startTime"])


@pytest.mark.parametrize(
    "accept",
    [
        "application/json",
        "image/png",
        "application/json;v=v1;g=config.k8s.io;as=Flagz",
        "application/json;v=v1beta1;g=config.k8s.io;as=Statusz",
        "application/json;v=v1beta1;g=apps;as=Flagz",
    ],
)
async def test_other_objects_are_refused_with_those_there_are(accept):
    with pytest.raises(NotAcceptable) as caught:
        await flagz_handler(ABOUT, SETTINGS)(Request("GET", "/flagz", headers={"accept": accept}))
    assert "application/json;g=config.k8s.io;v=v1beta1;as=Flagz" in str(caught.value)
