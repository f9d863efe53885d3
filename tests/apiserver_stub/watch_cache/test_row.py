"""What selectors read of a row."""

import pytest

from apiserver_stub.watch_cache.row import Row

DATA = b"""{"metadata":{"name":"a","labels":{"app":"web"}},"type":"Opaque",
"spec":{"nodeName":"n\\u00e9","replicas":3,"paused":true,"template":{"x":1},"hosts":["h"],"none":null}}"""


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.nodeName", "né"),
        ("spec.replicas", "3"),
        ("spec.paused", "true"),
        ("spec.none", ""),
        ("spec.template", ""),
        ("spec.hosts", ""),
        ("spec.absent", ""),
        ("spec.nodeName.deeper", ""),
        ("status.phase", ""),
        ("type", "Opaque"),
        ("metadata.name", "a"),
        ("metadata.namespace", "ns"),
    ],
)
def test_field_of_row(path: str, value: str) -> None:
    row = Row("pods", "ns/a", 5, DATA)
    assert row.field(path) == value
    assert row.field(path) == value


def test_several_fields_are_cached() -> None:
    row = Row("pods", "ns/a", 5, DATA)
    assert [row.field(p) for p in ("spec.nodeName", "type", "spec.replicas")] == ["né", "Opaque", "3"]
    row.hold((b"{", b"}"))
    assert [row.field(p) for p in ("spec.nodeName", "type", "spec.replicas")] == ["né", "Opaque", "3"]


def test_labels_of_row() -> None:
    assert Row("pods", "ns/a", 5, DATA).labels == {"app": "web"}
    assert Row("pods", "ns/a", 5, b'{"metadata":{"labels":null}}').labels == {}
    assert Row("pods", "ns/a", 5, b"{}").labels == {}


def test_namespace_and_name_of_row() -> None:
    assert (Row("nodes", "n1", 5, DATA).namespace, Row("nodes", "n1", 5, DATA).name) == ("", "n1")
    assert (Row("pods", "ns/a", 5, DATA).namespace, Row("pods", "ns/a", 5, DATA).name) == ("ns", "a")
