"""/flagz and /statusz as text and as objects."""

import asyncio
import json
import re

import pytest
import yaml

from controller_manager.app.program import flag_set
from controller_manager.common.api.errors import NotAcceptable
from controller_manager.common.api.wire import Request
from controller_manager.common.component.pages import About, debugging_routes, flagz_handler, statusz_handler

pytestmark = pytest.mark.virtual

ABOUT = About("manager", "1.2.3", "1.36")
VALUES = {"v": "2", "leader-elect": "true", "controllers": "*,-a", "feature-gates": "kube:A=true", "token": ""}

TEXT = ("", "*/*", "text/plain", "text/html, */*;q=0.8", "application/json;v=v9;as=Flagz, text/*")


async def ask(handler, accept: str = "") -> tuple[str, str]:
    response = await handler(Request("GET", "/", headers={"accept": accept} if accept else {}))
    assert response.status == 200
    assert response.headers["cache-control"] == "no-cache, no-store"
    return response.headers["content-type"], response.body.decode()


@pytest.mark.parametrize("accept", TEXT)
async def test_flagz_defaults_to_text(accept):
    kind, text = await ask(flagz_handler(ABOUT, lambda: VALUES), accept)
    assert kind.startswith("text/plain")
    head, flags = text.strip().split("\n\n")
    assert head.startswith("manager flagz\nWarning: ")
    assert flags.split("\n") == ["controllers=*,-a", "feature-gates=kube:A=true", "leader-elect=true", "token=", "v=2"]


async def test_flagz_values_are_written_as_flags():
    gates = "--feature-gates=kube:AllAlpha=false,AllBeta=true"
    routes = debugging_routes("manager", flag_set(()).parse([gates, "--leader-elect-lease-duration=90s"]), "v1")
    _, text = await ask(routes["/flagz"])
    shown = text.splitlines()
    assert {"feature-gates=AllBeta=true,kube:AllAlpha=false", "leader-elect-lease-duration=1m30s"} <= set(shown)


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
async def test_flagz_as_json_and_yaml(version):
    accept = f"application/json;v={version};g=config.k8s.io;as=Flagz"
    kind, text = await ask(flagz_handler(ABOUT, lambda: VALUES), accept)
    assert kind == "application/json"
    found = json.loads(text)
    assert (found["kind"], found["apiVersion"]) == ("Flagz", f"config.k8s.io/{version}")
    assert found["metadata"] == {"name": "manager"}
    assert found["flags"]["leader-elect"] == "true"
    kind, text = await ask(flagz_handler(ABOUT, lambda: VALUES), accept.replace("json", "yaml"))
    assert (kind, yaml.safe_load(text)) == ("application/yaml", found)


async def test_statusz_as_text_and_json():
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
async def test_other_media_types_are_refused_with_supported_ones(accept):
    with pytest.raises(NotAcceptable) as caught:
        await flagz_handler(ABOUT, lambda: VALUES)(Request("GET", "/flagz", headers={"accept": accept}))
    assert "application/json;g=config.k8s.io;v=v1beta1;as=Flagz" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("https://admin:hunter22@10.0.0.1:6443", "https://<masked>@10.0.0.1:6443"),
        ("https://admin:hunter@22@10.0.0.1", "https://<masked>@10.0.0.1"),
        ("http://only-a-name@proxy,http://b:c@d", "http://<masked>@proxy,http://<masked>@d"),
        ("https://10.0.0.1:6443/path@2", "https://10.0.0.1:6443/path@2"),
    ],
)
async def test_credentials_in_urls_are_masked(given, shown):
    parsed = flag_set(()).parse([f"--master={given}", f"--kubeconfig={given}"])
    routes = debugging_routes("manager", parsed, "v1")
    _, flags = await ask(routes["/flagz"])
    assert {f"master={shown}", f"clusterconfig={shown}"} <= set(flags.splitlines())
    accept = "application/json;v=v1beta1;g=config.k8s.io;as=Flagz"
    _, tree = await ask(routes["/flagz"], accept)
    assert json.loads(tree)["flags"]["master"] == shown
    settings = json.loads((await routes["/configz"](Request("GET", "/configz"))).body)["manager"]
    assert (settings["master"], settings["clusterconfig"]) == (shown, shown)
