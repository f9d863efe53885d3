"""A real Prometheus scrapes the managers of a real cluster and has the series of dashboards."""

import gzip
import json
import re
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import pytest
import yaml

from tests.e2e.conftest import ClusterUp, free_port

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.needs("prometheus", "promtool", "kubectl"),
]

DASHBOARD = Path(__file__).parents[2] / "charts" / "cluster-controller-manager" / "dashboard.json"
JOB = "kube-controller-manager"

# May read metrics, and nothing else.
READER = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: monitoring}}
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: prometheus, namespace: monitoring}}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  metadata: {name: metrics-reader}
  rules: [{nonResourceURLs: [/metrics], verbs: [get]}]
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRoleBinding
  metadata: {name: prometheus-reads-metrics}
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: metrics-reader}
  subjects: [{kind: ServiceAccount, name: prometheus, namespace: monitoring}]
"""
# An object for controllers to count.
WORK = """
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: scraped, namespace: default}
  spec: {selector: {app: web}, ports: [{port: 80}]}
- {apiVersion: v1, kind: Node, metadata: {name: node-1}}
- apiVersion: autoscaling/v2
  kind: HorizontalPodAutoscaler
  metadata: {name: scraped, namespace: default}
  spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: none}}
"""
# Labeled by namespace, once a pod was collected there: a node must have been missing for most of a minute.
# The others appear once something fails.
LATER = {
    *("pod_gc_collector_force_delete_pods_total", "controller_failing_keys"),
    *("informer_failures_total", "informer_unreadable_objects"),
}

# Queries of dashboards and alerts for kube-controller-manager, and the labels of their results.
QUERIES = [
    ('sum(up{job="%s"})', ()),
    ('sum by (instance, name) (rate(workqueue_adds_total{job="%s"}[1m]))', ("instance", "name")),
    ('sum by (instance, name) (rate(workqueue_depth{job="%s"}[1m]))', ("instance", "name")),
    ('sum by (name) (rate(workqueue_retries_total{job="%s"}[1m]))', ("name",)),
    ('workqueue_unfinished_work_seconds{job="%s"}', ("instance", "name")),
    ('workqueue_longest_running_processor_seconds{job="%s"}', ("instance", "name")),
    ('rate(rest_client_requests_total{job="%s",code=~"2.."}[1m])', ("code", "method", "host")),
    ('sum(rate(rest_client_requests_total{job="%s",code=~"2.."}[1m]))', ()),
    ('sum by (instance, namespace) (rate(rest_client_requests_total{job="%s"}[1m]))', ("instance",)),
    ('leader_election_master_status{job="%s"}', ("instance", "name")),
    ('process_resident_memory_bytes{job="%s"}', ("instance",)),
    ('rate(process_cpu_seconds_total{job="%s"}[1m])', ("instance",)),
    ('time() - process_start_time_seconds{job="%s"}', ("instance",)),
    ('process_open_fds{job="%s"} / process_max_fds{job="%s"}', ("instance",)),
    ('count by (git_version) (kubernetes_build_info{job="%s"})', ("git_version",)),
    ('kubernetes_feature_enabled{job="%s"}', ("name",)),  # generally available features have no stage
    ('sum by (stability_level) (registered_metrics_total{job="%s"})', ("stability_level",)),
]
# Queries of durations, by metric and grouping labels.
QUANTILES = [
    ("workqueue_queue_duration_seconds", "name"),
    ("workqueue_work_duration_seconds", "name"),
    ("rest_client_request_duration_seconds", "verb"),
    ("rest_client_rate_limiter_duration_seconds", "verb"),
    ("rest_client_request_size_bytes", "verb"),
    ("rest_client_response_size_bytes", "verb"),
    ("informer_processing_latency_seconds", "resource"),
]
# Problems that promtool finds in upstream's metric names.
KNOWN_COMPLAINTS = {
    'authenticated_user_requests counter metrics should have "_total" suffix',
    'authentication_attempts counter metrics should have "_total" suffix',
    'endpoint_slice_controller_changes counter metrics should have "_total" suffix',
    'endpoint_slice_controller_syncs counter metrics should have "_total" suffix',
    'endpoint_slice_mirroring_controller_changes counter metrics should have "_total" suffix',
    (
        "authentication_token_cache_active_fetch_count non-histogram and non-summary metrics "
        'should not have "_count" suffix'
    ),
}


class Setup:
    """The managers of a cluster, and a Prometheus that scrapes them as the holder of a token."""

    def __init__(self, folder: Path, cluster: ClusterUp) -> None:
        self.folder, self.port, self.cluster = folder, free_port(), cluster
        self.kubectl = cluster.kubectl
        first = int(cluster.manager_url.rpartition(":")[2])
        self.targets = [f"127.0.0.1:{first}", f"127.0.0.1:{first + 1}"]
        self.prometheus: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.kubectl("apply", "--validate=false", "-f", "-", stdin=READER)
        self.token = self.kubectl("create", "token", "prometheus", "-n", "monitoring").strip()
        (self.folder / "token").write_text(self.token)
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(self.configuration()))
        self.prometheus = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={self.folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={self.folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--log.level=warn",
            ],
            stderr=(self.folder / "prometheus.log").open("wb"),
        )

    def authority(self, number: int) -> Path:
        """The CA of a manager's certificate, which is self-signed."""
        return next((self.cluster.folder / f"manager-{number}").glob("*.crt"))

    def configuration(self) -> dict[str, object]:
        """One scrape job; each target has its own CA."""
        jobs = [
            {
                "job_name": f"{JOB}-{number}",
                "scheme": "https",
                "authorization": {"credentials_file": str(self.folder / "token")},
                "tls_config": {"ca_file": str(self.authority(number))},
                "static_configs": [{"targets": [target], "labels": {"job": JOB}}],
            }
            for number, target in enumerate(self.targets)
        ]
        return {"global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"}, "scrape_configs": jobs}

    def page(self, method: str = "GET", **headers: str) -> tuple[int, bytes]:
        """/metrics of the first manager, with the token unless `headers` are given."""
        request = urllib.request.Request(f"https://{self.targets[0]}/metrics", method=method)
        for name, value in {"authorization": f"Bearer {self.token}", **headers}.items():
            request.add_header(name, value)
        context = ssl.create_default_context(cafile=str(self.authority(0)))
        try:
            with urllib.request.urlopen(request, context=context, timeout=10) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def ask(self, path: str, **query: str) -> dict[str, object]:
        """The data of a Prometheus answer."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found = json.load(answer)
        assert found["status"] == "success"
        return dict(found["data"])

    def query(self, text: str) -> list[dict[str, str]]:
        """The labels of every series in the result of a query."""
        return [dict(one["metric"]) for one in self.ask("query", query=text)["result"]]

    def value(self, text: str) -> float:
        (found,) = self.ask("query", query=text)["result"]
        return float(found["value"][1])

    def health(self) -> list[str]:
        with suppress(OSError):
            targets = self.ask("targets", state="active")["activeTargets"]
            return [one["health"] for one in targets]
        return []

    def stop(self) -> None:
        if self.prometheus is not None:
            self.prometheus.terminate()
            self.prometheus.wait(20)


@pytest.fixture(scope="session")
def setup(tmp_path_factory: pytest.TempPathFactory, cluster: ClusterUp) -> Iterator[Setup]:
    for program in ("prometheus", "promtool", "kubectl"):
        assert shutil.which(program), f"these tests need {program}"
    running = Setup(tmp_path_factory.mktemp("prometheus"), cluster)
    try:
        running.start()
        wait_until(lambda: running.health() == ["up", "up"], running)
        running.kubectl("create", "--validate=false", "-f", "-", stdin=WORK)
        wait_until(lambda: running.query('rate(workqueue_adds_total{name="endpoint"}[1m]) > 0'), running)
        yield running
    finally:
        running.stop()


def wait_until(holds: Callable[[], object], setup: Setup, seconds: float = 60.0) -> None:
    began = time.monotonic()
    while not holds():
        log = setup.folder / "prometheus.log"
        assert time.monotonic() - began < seconds, f"{holds} {setup.health()} {log.read_text() if log.exists() else ''}"
        time.sleep(0.1)


def test_every_replica_is_scraped_and_one_leads(setup: Setup) -> None:
    wait_until(lambda: setup.health() == ["up", "up"], setup)  # a scrape may be late on a busy machine
    assert setup.value(f'sum(leader_election_master_status{{job="{JOB}"}})') == 1


def test_wrong_token_is_unauthorized(setup: Setup) -> None:
    assert setup.page(authorization="Bearer wrong")[0] == 401


def test_metrics_support_head_gzip_and_formats(setup: Setup) -> None:
    status, page = setup.page()
    assert status == 200
    assert b"\n# TYPE leader_election_master_status gauge\n" in page
    assert setup.page(method="HEAD") == (200, b"")
    assert setup.page(method="POST")[0] == 403  # its role allows it to get pages
    status, zipped = setup.page(**{"accept-encoding": "gzip"})
    assert b"\n# TYPE leader_election_master_status gauge\n" in gzip.decompress(zipped)


def test_dashboard_and_alert_queries_have_results(setup: Setup) -> None:
    for text, labels in QUERIES:
        found = setup.query(text.replace("%s", JOB))
        assert found, f"nothing answers {text}"
        assert all(set(labels) <= set(one) for one in found), f"{text} is answered by {found[0]}"


def test_quantiles_of_durations_and_sizes_have_results(setup: Setup) -> None:
    for family, label in QUANTILES:
        text = f'histogram_quantile(0.99, sum by (le, {label}) (rate({family}_bucket{{job="{JOB}"}}[1m]))) > 0'
        wait_until(partial(setup.query, text), setup)


def test_no_version_mismatch_and_no_errors_are_reported(setup: Setup) -> None:
    short = 'label_replace(kubernetes_build_info, "git_version", "$1", "git_version", "(v[0-9]*.[0-9]*).*")'
    assert setup.query(f"count by (git_version) ({short})") == [{"git_version": "v1.36"}]
    refused = 'sum(rate(rest_client_requests_total{code=~"5.."}[1m])) / sum(rate(rest_client_requests_total[1m]))'
    assert not setup.query(f"{refused} > 0.01")


def test_own_dashboard_finds_its_series(setup: Setup) -> None:
    panels = DASHBOARD.read_text()
    asked = set(re.findall(r"\b((?:[a-z]+_)+[a-z]+)\{", panels))
    assert len(asked) > 10
    for name in asked - LATER:
        wait_until(lambda name=name: setup.query(f'{{__name__="{name}"}}'), setup)  # nodes are polled now and then


def test_promtool_reports_no_unknown_problems(setup: Setup) -> None:
    page = setup.page()[1]
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
    complaints = {line for line in done.stderr.decode().splitlines() if line}
    assert complaints - KNOWN_COMPLAINTS == set()  # the leader has counted more
