"""Real manifests: writing back what was read changes nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiserver_stub.kinds.defaults.kinds import apply_defaults
from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.schema.clean import Report, clean

FILES = sorted((Path(__file__).parents[2] / "manifests").glob("*.yaml"))


def _documents(file: Path) -> Iterator[dict[str, Any]]:
    for document in yaml.safe_load_all(file.read_text()):
        if document is not None:
            yield from document["items"] if document["kind"] == "List" else [document]


def _kind(kinds: ResourceRegistry, document: dict[str, Any]) -> ResourceInfo:
    of = (document["apiVersion"], document["kind"])
    return next(kind for kind in kinds.all() if (kind.api_version, kind.kind) == of)


def _url(kind: ResourceInfo, metadata: dict[str, Any]) -> str:
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    inner = f"/namespaces/{metadata.get('namespace', 'default')}" if kind.namespaced else ""
    return f"{root}{inner}/{kind.plural}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
async def test_put_of_unchanged_object_changes_nothing(api, file: Path) -> None:
    for document in _documents(file):
        kind = _kind(api.kinds, document)
        made = (await api.post(url := _url(kind, document["metadata"]), document)).tree
        found = (await api.get(f"{url}/{made['metadata']['name']}")).tree
        assert found == made
        assert clean(found, kind) == Report()
        apply_defaults(found, kind)
        assert found == made
        assert (await api.put(f"{url}/{made['metadata']['name']}", made)).tree == made


async def test_dropped_status_is_replaced_by_zero_values(api) -> None:
    spec = {"selector": {"matchLabels": {"a": "b"}}}
    url = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    made = (await api.post(url, {"metadata": {"name": "a"}, "spec": spec, "status": {"expectedPods": 7}})).tree
    assert made["status"] == {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}


@pytest.mark.parametrize(
    ("labels", "of_template", "expected"),
    [({}, {}, set()), ({}, {"a": "b"}, {"a"}), ({"own": "1"}, {"a": "b"}, {"own"})],
)
async def test_job_without_labels_gets_those_of_its_template(api, labels, of_template, expected) -> None:
    template = {
        "metadata": {"labels": of_template},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }
    job = {"metadata": {"name": "j", "labels": labels}, "spec": {"template": template}}
    made = (await api.post("/apis/batch/v1/namespaces/default/jobs", job)).tree
    ours = {"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"}
    assert made["metadata"]["labels"].keys() == (expected if labels else expected | ours)
    assert (await api.put("/apis/batch/v1/namespaces/default/jobs/j", made)).tree == made
