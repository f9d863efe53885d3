"""The two metric formats, parsed by the reference client, and the choice between them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Enum, Gauge, Histogram, Info, Summary
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open
from prometheus_client.parser import text_string_to_metric_families as read_plain

from controller_manager.common.base.metrics import Counters, Family, Histograms
from controller_manager.common.serving.exposition import OPEN, PLAIN, Form, chosen, pieces, takes_gzip

READERS = {PLAIN: read_plain, OPEN: read_open}
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


def text_of(registry: CollectorRegistry, form: Form) -> str:
    return "".join(pieces(registry.collect(), form))


def samples(registry: CollectorRegistry, form: Form) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = READERS[form](text_of(registry, form))
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for metric in found for one in metric.samples}


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", PLAIN),
        ("*/*", PLAIN),
        ("text/html", PLAIN),
        ("text/plain;version=0.0.4", PLAIN),
        (PROMETHEUS, PLAIN),
        ("application/openmetrics-text", OPEN),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", OPEN),
        ("application/openmetrics-text;version=1.0.0,*/*;q=0.1", OPEN),
        ("application/openmetrics-text;q=0.1,*/*", PLAIN),
        ("application/openmetrics-text;q=0", PLAIN),
        ("application/openmetrics-text,text/plain;q=0", OPEN),
        ("application/openmetrics-text;q=x", OPEN),
        ("," * 10_000, PLAIN),
    ],
)
def test_format_is_chosen_by_accept_header(accept: str, form: Form) -> None:
    assert chosen(accept) is form


@pytest.mark.parametrize(
    ("header", "taken"), [("", False), ("gzip", True), ("br, GZIP;q=0.5", True), ("gzip;q=0", False), ("*", True)]
)
def test_takes_gzip_by_accept_encoding(header: str, taken: bool) -> None:
    assert takes_gzip(header) is taken


@pytest.mark.parametrize("form", [PLAIN, OPEN])
def test_every_type_round_trips(form: Form) -> None:
    registry = CollectorRegistry()
    Counter("c", "A counter.", ["x"], registry=registry).labels("1").inc(2)
    Gauge("g", 'A gauge\nwith a \\ and a " in its help.', registry=registry).set(float("-inf"))
    Gauge("n", "No number.", registry=registry).set(float("inf"))
    Summary("s", "A summary.", registry=registry).observe(3)
    Histogram("h", "A histogram.", buckets=(0.5, 1, 2), registry=registry).observe(1)
    Info("i", "An info.", registry=registry).info({"version": "1"})
    Enum("e", "A state.", states=["on", "off"], registry=registry).state("on")
    found = samples(registry, form)
    one = "1.0" if form is OPEN else "1"
    assert found["c_total", (("x", "1"),)] == 2
    assert found["g", ()] == float("-inf")
    assert found["n", ()] == float("inf")
    assert found["s_sum", ()] == 3
    assert found["h_bucket", (("le", one),)] == 1
    assert found["h_bucket", (("le", "+Inf"),)] == 1
    assert found["i_info", (("version", "1"),)] == 1
    assert found["e", (("e", "on"),)] == 1


def test_metadata_is_written_once_without_created_series() -> None:
    registry = CollectorRegistry()
    Counter("c", "A counter.", registry=registry)
    Gauge("unseen", "Never set.", ["x"], registry=registry)
    assert text_of(registry, PLAIN) == "# HELP c_total A counter.\n# TYPE c_total counter\nc_total 0\n"
    assert text_of(registry, OPEN) == "# HELP c A counter.\n# TYPE c counter\nc_total 0\n# EOF\n"


def test_counters_without_total_suffix_keep_their_names() -> None:
    registry = CollectorRegistry()
    Counters(Family("attempts", "Tries.", "counter", ("result",)), registry).add("success")
    assert '# TYPE attempts counter\nattempts{result="success"} 1\n' in text_of(registry, PLAIN)
    assert '# TYPE attempts unknown\nattempts{result="success"} 1\n' in text_of(registry, OPEN)


@given(st.text(), st.sampled_from([PLAIN, OPEN]))
def test_any_label_round_trips(value: str, form: Form) -> None:
    registry = CollectorRegistry()
    Counters(Family("c_total", "A counter.", "counter", ("x",)), registry).add(value)
    assert samples(registry, form) == {("c_total", (("x", value),)): 1}


@given(st.floats(), st.sampled_from([PLAIN, OPEN]))
def test_any_number_round_trips(value: float, form: Form) -> None:
    registry = CollectorRegistry()
    Gauge("g", "A gauge.", registry=registry).set(value)
    (found,) = samples(registry, form).values()
    assert found == value or (math.isnan(found) and math.isnan(value))


def test_large_family_is_split_under_one_heading() -> None:
    took = Histograms(Family("t", "Time.", "histogram", ("x",), (0.5, 1.0)), None)
    for number in range(1000):
        took.observe(1.0, str(number))
    found = list(pieces(took.collect(), PLAIN))
    assert max(text.count("\n") for text in found) <= 502
    assert sum(text.count("# TYPE") for text in found) == 1
    assert sum(text.count("\n") for text in found) == 5000 + 2


def test_pieces_are_generated_lazily() -> None:
    def families() -> "list[Metric]":
        took = Histograms(Family("t", "Time.", "histogram", ("x",), (0.5,)), None)
        for number in range(5000):
            took.observe(1.0, str(number))
        return list(took.collect())

    text = pieces(families(), PLAIN)
    assert next(text).count("\n") <= 502
