"""Metric flags, and the metrics page in the formats of scrapers."""

import asyncio
import collections
import gzip
import re
from pathlib import Path

import pytest
from prometheus_client import Counter

from controller_manager.app.program import flag_set
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.metric_rules import MetricRules
from controller_manager.common.base.metrics import Family, Histograms
from controller_manager.common.base.registry import Registry
from controller_manager.common.component.options import MetricsOptions
from controller_manager.common.component.pages import metrics_handler
from controller_manager.common.options.parse import FlagError
from controller_manager.testing import Cluster


def rules(*argv: str) -> MetricRules:
    return flag_set(()).parse(argv)[MetricsOptions].rules()


async def page(registry: Registry, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await metrics_handler(registry)(Request("GET", "/metrics", headers=named))


async def scrape(*argv: str) -> str:
    """Return the metrics of a working manager with these flags."""
    async with Cluster() as cluster:
        replica = await cluster.manage("--authorization-always-allow-paths=/metrics", *argv)
        await cluster.settle()
        answer = await replica.manager.pages.handle(Request("GET", "/metrics"))
        assert isinstance(answer.body, bytes)
        return answer.body.decode()


@pytest.mark.virtual
@pytest.mark.flag("show-hidden-metrics-for-version")
async def test_show_hidden_flag_shows_metrics_of_previous_version() -> None:
    assert "\nreconcile_total" not in await scrape()
    text = await scrape("--show-hidden-metrics-for-version=1.35")
    assert 'reconcile_total{name="endpoints-controller",outcome="give_up"} 0' in text
    assert "[ALPHA] (Deprecated since 1.35.0)" in text


@pytest.mark.flag("show-hidden-metrics-for-version")
@pytest.mark.parametrize("version", ["1.36", "1.34", "1", "v1.35", "1.35.0"])
def test_show_hidden_flag_refuses_other_versions(version: str) -> None:
    with pytest.raises(FlagError, match=r"show-hidden-metrics-for-version must be 1\.35"):
        rules(f"--show-hidden-metrics-for-version={version}")


@pytest.mark.virtual
async def test_idle_manager_exports_at_most_1700_series() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage("--authorization-always-allow-paths=/metrics")
        await cluster.advance(120)
        answer = await replica.manager.pages.handle(Request("GET", "/metrics"))
    assert isinstance(answer.body, bytes)
    series = [line for line in answer.body.decode().splitlines() if not line.startswith("#")]
    families = collections.Counter(re.sub(r"(_bucket|_sum|_count)?(\{| ).*", "", line) for line in series)
    assert len(series) < 1700, families.most_common(20)
    assert max(families.values()) <= 150, families.most_common(20)


@pytest.mark.virtual
@pytest.mark.flag("disabled-metrics")
async def test_disabled_metrics_stay_hidden_with_show_hidden() -> None:
    flags = ("--show-hidden-metrics-for-version=1.35", "--disabled-metrics=reconcile_unsettled_total,workqueue_depth")
    text = await scrape(*flags, "--disabled-metrics=workqueue_queue_duration_seconds")
    assert "workqueue_adds_total{" in text
    assert "reconcile_unsettled_total" not in text
    assert "workqueue_depth" not in text
    assert "workqueue_queue_duration_seconds" not in text
    assert "\ndisabled_metrics_total 3\n" in text


@pytest.mark.flag("disabled-metrics")
def test_malformed_metric_name_cannot_be_disabled() -> None:
    with pytest.raises(FlagError, match="--disabled-metrics: 'workqueue-depth' is not the name of a metric"):
        rules("--disabled-metrics=workqueue-depth")


@pytest.mark.virtual
@pytest.mark.flag("allow-metric-labels")
async def test_label_values_not_allowed_become_unexpected() -> None:
    text = await scrape("--allow-metric-labels=workqueue_depth,name=endpoint")
    assert 'workqueue_depth{name="endpoint"} 0' in text
    assert 'workqueue_depth{name="unexpected"} 0' in text
    assert 'workqueue_depth{name="namespace"}' not in text
    assert 'workqueue_adds_total{name="namespace"}' in text
    assert "\ncardinality_enforcement_unexpected_categorizations_total 0\n" not in text


@pytest.mark.flag("allow-metric-labels")
@pytest.mark.parametrize(
    "argv",
    [
        ("--allow-metric-labels=a,x=1,2", "--allow-metric-labels=b_total,y=3"),
        ('--allow-metric-labels="a,x=1,2","b_total,y=3"',),
    ],
)
def test_allow_metric_labels_accepts_all_spellings(argv: tuple[str, ...]) -> None:
    assert rules(*argv).allowed == {"a": {"x": frozenset({"1", "2"})}, "b_total": {"y": frozenset({"3"})}}


@pytest.mark.flag("allow-metric-labels-manifest")
@pytest.mark.parametrize("text", ['"a,x": "1,2"\n"b,y": ""\n', 'allowListMapping:\n  a,x: "1,2"\n  b,y: ""\n'])
def test_manifest_sets_allowed_labels(text: str, tmp_path: Path) -> None:
    manifest = tmp_path / "allowed.yaml"
    manifest.write_text(text)
    found = rules(f"--allow-metric-labels-manifest={manifest}")
    assert found.allowed == {"a": {"x": frozenset({"1", "2"})}, "b": {"y": frozenset({""})}}
    found = rules(f"--allow-metric-labels-manifest={manifest}", "--allow-metric-labels=c,z=1")
    assert found.allowed == {"c": {"z": frozenset({"1"})}}


@pytest.mark.flag("allow-metric-labels", "allow-metric-labels-manifest")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not YAML: line 1: "),
        ("- a\n", "is not a mapping of text to text"),
        ("a,x: 3\n", "is not a mapping of text to text"),
        ('"ax": "3"\n', "'ax' is not of the form metric,label"),
        (None, "can't be read: No such file or directory"),
    ],
)
def test_unusable_manifest_is_refused(text: str | None, problem: str, tmp_path: Path) -> None:
    manifest = tmp_path / "allowed.yaml"
    if text is not None:
        manifest.write_text(text)
    with pytest.raises(FlagError, match=f"--allow-metric-labels-manifest: {manifest}:? {problem}"):
        rules(f"--allow-metric-labels-manifest={manifest}")
    with pytest.raises(FlagError, match="--allow-metric-labels: 'ax' is not of the form metric,label"):
        rules("--allow-metric-labels=ax=1")


async def test_metrics_page_is_compressed_on_request() -> None:
    registry = Registry()
    Counter("c", "A counter.", registry=registry).inc()
    plain, zipped = await page(registry), await page(registry, accept_encoding="gzip")
    assert isinstance(plain.body, bytes)
    assert isinstance(zipped.body, bytes)
    assert gzip.decompress(zipped.body) == plain.body
    assert "content-encoding" not in plain.headers
    assert zipped.headers["content-encoding"] == "gzip"
    assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    open_form = await page(registry, accept="application/openmetrics-text")
    assert isinstance(open_form.body, bytes)
    assert open_form.body.endswith(b"# EOF\n")


async def test_large_metrics_page_yields_to_other_tasks() -> None:
    registry = Registry()
    took = Histograms(Family("took", "Time.", "histogram", ("x",), (0.1, 0.5, 1.0)), registry)
    for number in range(9000):
        took.observe(0.3, f"label-{number}")
    turns, done = 0, False

    async def take_turns() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(take_turns())
        answer = await page(registry, accept_encoding="gzip")
        done = True
    assert isinstance(answer.body, bytes)
    lines = gzip.decompress(answer.body).count(b"\n")
    assert lines > 50_000
    assert turns >= lines // 550
