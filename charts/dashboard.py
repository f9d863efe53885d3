"""Prints the Grafana dashboard of the chart, which keeps it in dashboard.json."""

import json
import sys

from controller_manager.common.api.tree import Tree

SOURCE = {"type": "prometheus", "uid": "${source}"}
JOB = 'job="$job"'
PODS = 'job="$job",pod=~"$pod"'
WIDTH, HEIGHT, COLUMNS = 8, 8, 3


def p(quantile: float, family: str, by: str) -> str:
    """A quantile of a histogram."""
    rate = f"sum by (le, {by}) (rate({family}_bucket{{{PODS}}}[$__rate_interval]))"
    return f"histogram_quantile({quantile:g}, {rate})"


def rate(family: str, by: str, more: str = "") -> str:
    """A counter a second."""
    return f"sum by ({by}) (rate({family}{{{PODS}{more}}}[$__rate_interval]))"


# Rows of panels: title, unit, then queries as (expression, legend).
ROWS: dict[str, list[tuple[str, str, list[tuple[str, str]]]]] = {
    "Leadership": [
        ("Who leads", "none", [(f"max by (name, pod) (leader_election_master_status{{{JOB}}})", "{{name}} {{pod}}")]),
        ("Replicas up", "none", [(f"sum(up{{{JOB}}})", "up")]),
        ("Up since", "dateTimeAsIso", [(f"process_start_time_seconds{{{PODS}}} * 1000", "{{pod}}")]),
    ],
    "Controllers": [
        ("Reconciles", "ops", [(rate("controller_runtime_reconcile_total", "controller"), "{{controller}}")]),
        (
            "Failures",
            "ops",
            [(rate("controller_runtime_reconcile_total", "controller", ',result="error"'), "{{controller}}")],
        ),
        (
            "Keys that keep failing",
            "short",
            [(f"max by (controller) (controller_failing_keys{{{PODS}}})", "{{controller}}")],
        ),
        ("Retries", "ops", [(rate("workqueue_retries_total", "name"), "{{name}}")]),
        ("Keys that wait", "short", [(f"sum by (name) (workqueue_depth{{{PODS}}})", "{{name}}")]),
        ("Wait, 99 of 100", "s", [(p(0.99, "workqueue_queue_duration_seconds", "name"), "{{name}}")]),
        ("Work, 99 of 100", "s", [(p(0.99, "workqueue_work_duration_seconds", "name"), "{{name}}")]),
        (
            "Longest work under way",
            "s",
            [(f"max by (name) (workqueue_longest_running_processor_seconds{{{PODS}}})", "{{name}}")],
        ),
        ("Keys added", "ops", [(rate("workqueue_adds_total", "name"), "{{name}}")]),
        ("Work under way", "s", [(f"sum by (name) (workqueue_unfinished_work_seconds{{{PODS}}})", "{{name}}")]),
    ],
    "API server": [
        ("Requests", "reqps", [(rate("rest_client_requests_total", "code"), "{{code}}")]),
        ("Answer, 99 of 100", "s", [(p(0.99, "rest_client_request_duration_seconds", "verb"), "{{verb}}")]),
        ("Wait for the rate limit", "s", [(p(0.99, "rest_client_rate_limiter_duration_seconds", "verb"), "{{verb}}")]),
    ],
    "Informers": [
        ("Objects", "short", [(f"max by (informer) (informer_objects{{{PODS}}})", "{{informer}}")]),
        ("Since the server was heard", "s", [(f"max by (informer) (informer_age_seconds{{{PODS}}})", "{{informer}}")]),
        ("Failures", "ops", [(rate("informer_failures_total", "informer"), "{{informer}}")]),
        (
            "Objects that can't be read",
            "short",
            [(f"max by (informer) (informer_unreadable_objects{{{PODS}}})", "{{informer}}")],
        ),
    ],
    "Nodes and pods": [
        (
            "Healthy nodes",
            "percent",
            [(f"max by (zone) (node_collector_zone_health{{{PODS}}})", "{{zone}}")],
        ),
        ("Nodes whose pods must go", "ops", [(rate("node_collector_evictions_total", "zone"), "{{zone}}")]),
        (
            "Pods deleted",
            "ops",
            [
                (rate("taint_eviction_controller_pod_deletions_total", "job"), "tainted node"),
                (rate("pod_gc_collector_force_delete_pods_total", "reason"), "{{reason}}"),
            ],
        ),
    ],
    "Services, autoscalers, garbage": [
        (
            "Endpoint slices",
            "short",
            [
                (f"max(endpoint_slice_controller_num_endpoint_slices{{{PODS}}})", "there"),
                (f"max(endpoint_slice_controller_desired_endpoint_slices{{{PODS}}})", "needed"),
            ],
        ),
        (
            "Looks at autoscalers",
            "ops",
            [
                (
                    rate("horizontal_pod_autoscaler_controller_reconciliations_total", "action, error"),
                    "{{action}} {{error}}",
                )
            ],
        ),
        (
            "Resources the garbage collector can't read",
            "ops",
            [(rate("garbagecollector_controller_resources_sync_error_total", "pod"), "{{pod}}")],
        ),
    ],
    "Process": [
        ("Memory", "bytes", [(f"process_resident_memory_bytes{{{PODS}}}", "{{pod}}")]),
        ("CPU", "short", [(f"rate(process_cpu_seconds_total{{{PODS}}}[$__rate_interval])", "{{pod}}")]),
        ("Open files", "short", [(f"process_open_fds{{{PODS}}}", "{{pod}}")]),
    ],
}


def dashboard() -> Tree:
    """The dashboard as Grafana imports it."""
    panels: list[Tree] = []
    line = 0
    for title, row in ROWS.items():
        panels.append(_panel(len(panels), "row", title, (24, 1, 0, line)) | {"collapsed": False, "panels": []})
        line += 1
        for place, (name, unit, queries) in enumerate(row):
            x, y = place % COLUMNS * WIDTH, line + place // COLUMNS * HEIGHT
            panels.append(_chart(len(panels), name, unit, queries, (WIDTH, HEIGHT, x, y)))
        line += -(-len(row) // COLUMNS) * HEIGHT
    return {
        "uid": "cluster-controller-manager",
        "title": "Cluster controller manager",
        "tags": ["kubernetes"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source(), _variable("job", JOBS), _variable("pod", PODS_OF, several=True)]},
        "panels": panels,
    }


JOBS = "label_values(leader_election_master_status, job)"
PODS_OF = f"label_values(up{{{JOB}}}, pod)"


def _source() -> Tree:
    return {"name": "source", "type": "datasource", "query": "prometheus", "label": "Data source"}


def _variable(name: str, query: str, *, several: bool = False) -> Tree:
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": query,
        "refresh": 2,
        "multi": several,
        "includeAll": several,
        "current": {"text": "All", "value": "$__all"} if several else {},
    }


def _panel(number: int, kind: str, title: str, place: tuple[int, int, int, int]) -> Tree:
    width, height, x, y = place
    return {"id": number + 1, "type": kind, "title": title, "gridPos": {"w": width, "h": height, "x": x, "y": y}}


def _chart(
    number: int, title: str, unit: str, queries: list[tuple[str, str]], place: tuple[int, int, int, int]
) -> Tree:
    targets = [
        {"refId": chr(ord("A") + at), "expr": expression, "legendFormat": legend, "datasource": SOURCE}
        for at, (expression, legend) in enumerate(queries)
    ]
    return _panel(number, "timeseries", title, place) | {
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": targets,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(dashboard(), indent=1) + "\n")
