"""Cached table rows: written once, correct at any time, small."""

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apiserver_stub.encode.table import Tabulator
from apiserver_stub.kinds.printers.cells import Since, duration
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.kinds.resource_info import DEFAULT_PRINTER, Printer, ResourceInfo
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.timestamps import parse_time

SHOWN = [kind for kind in built_in().all() if kind.printer is not DEFAULT_PRINTER and kind.persisted]
TIMES = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
INCLUDES = st.sampled_from(["", "Metadata", "None", "Object"])
VERSIONS = st.sampled_from(["meta.k8s.io/v1", "meta.k8s.io/v1beta1"])


def row_of(tree: Any) -> Row:
    return Row("things", "default/x", 7, orjson.dumps(tree))


def expected(printer: Printer, tree: dict[str, Any], now: datetime) -> list[Any]:
    """The cells, with each age computed separately."""

    def shown(cell: Any) -> Any:
        if not isinstance(cell, Since):
            return cell
        age = duration((now - parse_time(cell.moment)).total_seconds())
        return f"{cell.before}{age}{cell.after}"

    return [shown(cell) for cell in printer.cells(tree)]


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data(), moments=st.lists(TIMES, min_size=2, max_size=3), include=INCLUDES, version=VERSIONS)
def test_cached_row_equals_fresh_row(
    writer: Any,
    objects: Any,
    cached_rows: Any,
    data: st.DataObject,
    moments: list[datetime],
    include: str,
    version: str,
) -> None:
    kind: ResourceInfo = data.draw(st.sampled_from(SHOWN))
    tree = data.draw(objects(writer.kinds[f"{kind.api_version}/{kind.kind}"]))
    tree = {"apiVersion": kind.api_version, "kind": kind.kind, **tree}
    tree["metadata"] = {**tree.pop("metadata", {}), "resourceVersion": "7"}
    row = row_of(tree)
    for now in moments:
        tabulator = Tabulator(kind.printer, now, include, version)
        found = tabulator.row_of(cached_rows, row, row.data)
        assert found == tabulator.row(row.data)
        assert tabulator.one_of(cached_rows, row, row.data, headed=False) == tabulator.one(row.data, headed=False)
        shown = orjson.loads(found)
        assert shown["cells"] == expected(kind.printer, tree, now)
        partial = {"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": tree["metadata"]}
        assert shown["object"] == {"Object": tree, "None": None}.get(include, partial)


@pytest.mark.parametrize("text", ["\0", 'a\0"b', "2026-01-01T00:00:00Z", ',"object":', "%b\\u0000", "𝄞\n"])
def test_text_is_not_mistaken_for_an_age(cached_rows: Any, text: str) -> None:
    tree = {"metadata": {"name": text, "resourceVersion": "7"}, "type": text, "message": text, "reason": text}
    row = row_of({**tree, "firstTimestamp": "2026-01-01T00:00:00Z"})
    now = datetime(2026, 1, 1, tzinfo=UTC)
    for later in (0, 60):
        shown = orjson.loads(
            Tabulator(EVENTS.printer, now + timedelta(seconds=later)).row_of(cached_rows, row, row.data)
        )
        age = f"{later}s"
        assert shown["cells"] == [age, text, text, "", "", "", text.strip(), age, 1, text]
        assert shown["object"]["metadata"] == tree["metadata"]


EVENTS = next(kind for kind in SHOWN if kind.api_version == "v1" and kind.kind == "Event")


@pytest.mark.parametrize("include", ["Metadata", "None", "Object"])
@pytest.mark.parametrize(
    "tree",
    [{"kind": "X"}, {"kind": "X", "metadata": {}}, {"spec": {"metadata": {"a": 1}}, "metadata": {"name": "x"}},
     {"kind": '"metadata":', "metadata": {"name": "x"}}, {"spec": {"metadata": {"name": "x"}}}],
)  # fmt: skip
def test_metadata_is_found_at_any_position(tree: dict[str, Any], include: str) -> None:
    shown = orjson.loads(Tabulator(EVENTS.printer, datetime(2026, 1, 1, tzinfo=UTC), include).row(orjson.dumps(tree)))
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": tree.get("metadata", {})}
    assert shown["object"] == {"Object": tree, "None": None}.get(include, partial)
    assert shown["cells"][-1] == tree.get("metadata", {}).get("name", "")


def test_cached_row_is_small_and_serves_every_table(cached_rows: Any) -> None:
    metadata = {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {"a": "b" * 100_000}}
    row = row_of({"kind": "Event", "metadata": metadata})
    now = datetime(2026, 1, 1, tzinfo=UTC)
    for include in ("Metadata", "None", "Object"):
        for version in ("meta.k8s.io/v1", "meta.k8s.io/v1beta1"):
            Tabulator(EVENTS.printer, now, include, version).row_of(cached_rows, row, row.data)
    (written,) = cached_rows.values()
    assert len(written) < 200
