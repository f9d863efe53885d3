"""Metrics as text, in pieces: the Prometheus format 0.0.4, or OpenMetrics 1.0 for clients that accept only that."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from controller_manager.common.base.metrics import bound_text, qualified

PIECE = 500  # samples

_TYPES = {"info": "gauge", "stateset": "gauge", "gaugehistogram": "untyped", "unknown": "untyped"}
_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_ESCAPED_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_NUMBERS = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}
_LONGEST_HEADER = 2048  # characters parsed


class Form(msgspec.Struct, frozen=True):
    """One of the two formats."""

    content_type: str
    open: bool = False


PLAIN = Form("text/plain; version=0.0.4; charset=utf-8")
OPEN = Form("application/openmetrics-text; version=1.0.0; charset=utf-8", open=True)


def chosen(accept: str) -> Form:
    """Return the format for an `Accept` header.

    Clients that accept plain text, such as Prometheus, get it regardless of their preference: only in that format are
    names and bucket bounds as in the dashboards of Kubernetes.
    """
    weights = _weights(accept)
    if weights.get("text/plain", 0.0) > 0.0:
        return PLAIN
    plain = max(weights.get("text/*", 0.0), weights.get("*/*", 0.0))
    return OPEN if weights.get("application/openmetrics-text", 0.0) > plain else PLAIN


def takes_gzip(accept_encoding: str) -> bool:
    """Return whether an `Accept-Encoding` header allows gzip."""
    weights = _weights(accept_encoding)
    return weights.get("gzip", weights.get("*", 0.0)) > 0.0


def pieces(metrics: Iterable[Metric], form: Form) -> Iterator[str]:
    """Yield families as text, about `PIECE` samples at a time; a family without samples is omitted."""
    lines: list[str] = []
    for metric in metrics:
        fresh = True
        left_out = f"{metric.name}_created"
        for sample in metric.samples:
            if sample.name == left_out:
                continue
            if fresh:
                lines += _head(metric, form)
                fresh = False
            lines.append(_line(sample, form))
            if len(lines) >= PIECE:
                yield "".join(lines)
                lines.clear()
    if form.open:
        lines.append("# EOF\n")
    yield "".join(lines)


def _head(metric: Metric, form: Form) -> Iterator[str]:
    name, kind = qualified(metric), metric.type
    if not form.open:
        kind = _TYPES.get(kind, kind)
        text = metric.documentation.translate(_ESCAPED_HELP)
    else:
        # OpenMetrics requires the suffix _total for counters, which some metrics of Kubernetes do not have.
        kind = "unknown" if kind == "counter" and not name.endswith("_total") else kind
        name, text = metric.name, metric.documentation.translate(_ESCAPED)
    yield f"# HELP {name} {text}\n"
    yield f"# TYPE {name} {kind}\n"
    if form.open and metric.unit:
        yield f"# UNIT {name} {metric.unit}\n"


def _line(sample: Sample, form: Form) -> str:
    labels, at = _labels(sample.labels, form) if sample.labels else "", ""
    if sample.timestamp is not None:
        seconds = float(sample.timestamp)
        at = f" {seconds:.3f}" if form.open else f" {int(seconds * 1000)}"
    return f"{sample.name}{labels} {_number(sample.value)}{at}\n"


def _labels(labels: Mapping[str, str], form: Form) -> str:
    parts = []
    for name, value in sorted(labels.items()):
        if name in ("le", "quantile"):
            value = repr(float(value)) if form.open and value != "+Inf" else _bound(value)
        elif not value.isalnum():
            value = value.translate(_ESCAPED)
        parts.append(f'{name}="{value}"')
    return f"{{{','.join(parts)}}}"


def _bound(text: str) -> str:
    """Return a bucket bound in a uniform format."""
    return text if text == "+Inf" else bound_text(float(text))


def _number(value: float) -> str:
    text = repr(float(value))
    return text.removesuffix(".0") if text[-1].isdigit() else _NUMBERS[text]


def _weights(header: str) -> Mapping[str, float]:
    """Return the weight of each value in a header (RFC 9110, section 12.4.2)."""
    found: dict[str, float] = {}
    for part in header[:_LONGEST_HEADER].lower().split(","):
        value, *parameters = (one.strip() for one in part.split(";"))
        weight = next((one[2:] for one in parameters if one.startswith("q=")), "1")
        try:
            found[value] = max(float(weight), found.get(value, 0.0))
        except ValueError:
            found[value] = 1.0
    return found
