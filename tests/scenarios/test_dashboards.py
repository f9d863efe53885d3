"""A running manager exports all series that the alerts and the dashboard of the chart use."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from controller_manager.common.api.autoscaling import (
    HORIZONTAL_POD_AUTOSCALERS,
    AutoscalerSpec,
    HorizontalPodAutoscaler,
    ObjectInNamespace,
)
from controller_manager.common.api.core import NAMESPACES, NODES, PODS, Namespace, Node
from controller_manager.common.api.errors import InternalError
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.serving.http import refusal
from controller_manager.testing import Cluster, builders

pytestmark = pytest.mark.virtual

CHART = Path(__file__).parents[2] / "charts" / "cluster-controller-manager"
# A name before `{` selects series; any other name in an expression is a function or a label.
SELECTED = re.compile(r"\b([a-zA-Z_:][\w:]*)\{")
# Series that Prometheus itself adds for each target.
OF_PROMETHEUS = {"up"}


def in_alerts() -> Iterator[str]:
    for group in yaml.safe_load((CHART / "alerts.yaml").read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


def in_panels(panels: list[dict[str, Any]]) -> Iterator[str]:
    for panel in panels:
        yield from (target["expr"] for target in panel.get("targets", ()))
        yield from in_panels(panel.get("panels", []))


def asked(expressions: Iterator[str]) -> set[str]:
    return {name for one in expressions for name in SELECTED.findall(one)} - OF_PROMETHEUS


async def series() -> set[str]:
    """Return the names of all series of a leading manager that had work and failures."""
    async with Cluster() as cluster:
        cluster.serve_beside("/api/v1/services", partial(_old_type, cluster))
        cluster.serve_beside("/api/v1/namespaces/failing/serviceaccounts", _out_of_order)
        replica = await cluster.manage("--authorization-always-allow-paths=/metrics", strict=False)
        await cluster.client.create(NODES, Node(metadata=ObjectMeta(name="n")))
        lost = builders.pod("lost")
        await cluster.client.create(PODS, replace(lost, spec=replace(lost.spec, node_name="gone")))
        target = ObjectInNamespace(kind="ReplicaSet", name="none", api_version="apps/v1")
        spec = AutoscalerSpec(scale_target_ref=target, max_replicas=3)
        meta = ObjectMeta(name="a", namespace="default")
        await cluster.client.create(HORIZONTAL_POD_AUTOSCALERS, HorizontalPodAutoscaler(metadata=meta, spec=spec))
        await cluster.client.create(NAMESPACES, Namespace(metadata=ObjectMeta(name="failing")))
        await cluster.advance(120)
        await cluster.stop_api()
        await cluster.sleep(2)
        await cluster.start_api()
        await cluster.advance(60)
        answer = await replica.manager.pages.handle(Request("GET", "/metrics"))
        assert isinstance(answer.body, bytes)
        return set(re.findall(r"^(\w+)(?:\{|\s)", answer.body.decode(), re.MULTILINE))


async def _old_type(cluster: Cluster, request: Request) -> Response:
    """Answer with services that cannot be decoded."""
    response = await cluster.api.handle(request)
    body = response.body
    if request.method != "GET":
        return response
    return Response(response.status, response.headers, _spoil(body) if isinstance(body, bytes) else _spoiled(body))


def _spoil(data: bytes) -> bytes:
    return data.replace(b'"type":"ClusterIP"', b'"type":5')


async def _spoiled(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for chunk in body:
        yield _spoil(chunk)


async def _out_of_order(_: Request) -> Response:
    return refusal(InternalError("out of order"))


def test_each_alert_links_to_its_runbook() -> None:
    written = re.findall(r"^## (\w+)$", (CHART / "RUNBOOKS.md").read_text(), re.MULTILINE)
    alerts = [
        rule for group in yaml.safe_load((CHART / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
    ]
    assert sorted(written) == sorted(rule["alert"] for rule in alerts)
    for rule in alerts:
        assert rule["annotations"]["runbook_url"] == f"RUNBOOKS.md#{rule['alert'].lower()}"


async def test_every_series_of_an_alert_is_exported() -> None:
    names = asked(in_alerts())
    assert len(names) >= 6
    assert names - await series() == set()


async def test_every_series_of_the_dashboard_is_exported() -> None:
    dashboard = json.loads((CHART / "dashboard.json").read_text())
    variables = [one["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    names = asked(in_panels(dashboard["panels"])) | set(re.findall(r"label_values\((\w+)", " ".join(variables)))
    assert len(names) >= 15
    assert names - OF_PROMETHEUS - await series() == set()
