"""Logging, metrics and profiling flags of every process."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import PrivateAttr, model_validator

from controller_manager.common.api.platform import API_VERSION
from controller_manager.common.base.metric_rules import Allowed, MetricRules
from controller_manager.common.component.features import LOGGING_ALPHA, LOGGING_BETA, FeatureOptions
from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.parse import Parsed
from controller_manager.common.options.types import Duration, FlagType, Quantity, StringList, StringMap

_LARGEST_LEVEL = 2**31 - 1
_LARGEST_BUFFER = 1 << 30


def _parse_patterns(text: str) -> tuple[tuple[str, int], ...]:
    """Parse `pattern=N` pairs; empty ones, such as after a trailing comma, are ignored."""
    return tuple(map(_parse_pattern, filter(None, text.split(","))))


def _parse_pattern(text: str) -> tuple[str, int]:
    pattern, _, level = text.partition("=")
    if not pattern or not (level.isascii() and level.isdigit()) or int(level) > _LARGEST_LEVEL:
        raise ValueError(f"{text!r} is not of the form pattern=N")
    return pattern, int(level)


def _format_patterns(patterns: Iterable[tuple[str, int]]) -> str:
    return ",".join(f"{pattern}={level}" for pattern, level in patterns)


_PATTERNS = FlagType("pattern=N,...", _parse_patterns, _format_patterns, lambda before, more: before + more)


class LoggingOptions(Options):
    """Logging flags: level, format and destination."""

    title: ClassVar[str] = "Logs"

    logging_format: str = flag(
        "text", f"log format; json needs the feature gate {LOGGING_BETA}", choices=("text", "json")
    )
    v: int = flag(
        0,
        "log verbosity: 1 logs the flags at the start, 4 every reconcile and every request that an API server answers, "
        "6 every request to an API server",
        short="v",
        minimum=0,
        maximum=_LARGEST_LEVEL,
    )
    vmodule: Annotated[tuple[tuple[str, int], ...], _PATTERNS] = flag(
        (),
        "levels of single files, where they are higher than -v: a pattern (*, ?) is the name of a file without .py, or "
        "the last parts of its path; the first that matches counts; only for the text format",
    )
    log_flush_frequency: Duration = flag("5s", "maximum time between log flushes", minimum=0)
    log_text_split_stream: bool = flag(
        False,
        "in the text format, write information to standard output and only warnings and worse to standard error; "
        f"needs the feature gate {LOGGING_ALPHA}",
    )
    log_text_info_buffer_size: Quantity = flag(
        0,
        "in the text format with split streams, size of the buffer for information, such as 512 or 64Ki; 0 disables "
        f"buffering; needs the feature gate {LOGGING_ALPHA}",
        maximum=_LARGEST_BUFFER,
    )

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.vmodule and self.logging_format != "text":
            raise ValueError("--vmodule can only be used with --logging-format=text")
        return self


def logs_allowed(parsed: Parsed) -> Iterator[str]:
    """Yield an error for each flag that needs a disabled feature gate."""
    options, enabled = parsed[LoggingOptions], parsed[FeatureOptions].enabled
    for what, gate, is_asked in (
        ("--logging-format=json", LOGGING_BETA, options.logging_format == "json"),
        ("--log-text-split-stream", LOGGING_ALPHA, options.log_text_split_stream),
        ("--log-text-info-buffer-size", LOGGING_ALPHA, options.log_text_info_buffer_size > 0),
    ):
        if is_asked and not enabled(gate):
            yield f"{what} needs --feature-gates={gate}=true"


_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_KEY = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*,[a-zA-Z_][a-zA-Z0-9_]*")
_IN_MANIFEST = "allowListMapping"


class MetricsOptions(Options):
    """Flags of the metrics page."""

    title: ClassVar[str] = "Metrics"

    show_hidden_metrics_for_version: str = flag(
        "", "show the metrics that are hidden since this version; only the previous minor version, as major.minor"
    )
    disabled_metrics: StringList = flag(
        (), "full names of metrics to disable; this takes precedence over showing hidden metrics", metavar="name,..."
    )
    allow_metric_labels: StringMap = flag(
        {},
        "allowed values of labels, as metric,label=value,value,...; all other values are shown as 'unexpected'. "
        "Several in one flag stand in double quotes, separated by commas",
    )
    allow_metric_labels_manifest: str = flag(
        "",
        "YAML file with the same mapping, in which metric,label is a key and its values are one text; "
        "--allow-metric-labels takes its place",
        metavar="file",
    )
    _mapping: dict[str, str] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _shows_the_previous_version(self) -> Self:
        major, _, minor = API_VERSION.partition(".")
        previous = f"{major}.{int(minor) - 1}"
        if self.show_hidden_metrics_for_version not in ("", previous):
            raise ValueError(f"--show-hidden-metrics-for-version must be {previous}, the previous minor version")
        return self

    @model_validator(mode="after")
    def _disables_names(self) -> Self:
        for name in self.disabled_metrics:
            if not _NAME.fullmatch(name):
                raise ValueError(f"--disabled-metrics: {name!r} is not the name of a metric")
        return self

    @model_validator(mode="after")
    def _names_labels(self) -> Self:
        found = {"--allow-metric-labels": dict(self.allow_metric_labels)}
        if self.allow_metric_labels_manifest:
            where = f"--allow-metric-labels-manifest: {self.allow_metric_labels_manifest}"
            found[where] = _read(where, Path(self.allow_metric_labels_manifest))
        for where, mapping in found.items():
            for key in mapping:
                if not _KEY.fullmatch(key):
                    raise ValueError(f"{where}: {key!r} is not of the form metric,label")
        self._mapping = next((mapping for mapping in found.values() if mapping), {})
        return self

    def rules(self) -> MetricRules:
        """Return the rules for the metrics registry of the process."""
        allowed: dict[str, dict[str, frozenset[str]]] = {}
        for key, values in self._mapping.items():
            name, _, label = key.partition(",")
            allowed.setdefault(name, {})[label] = frozenset(values.split(","))
        families: Mapping[str, Allowed] = allowed
        return MetricRules(
            version=API_VERSION,
            disabled=frozenset(self.disabled_metrics),
            show_hidden=bool(self.show_hidden_metrics_for_version),
            allowed=families,
        )


def _read(where: str, path: Path) -> dict[str, str]:
    from controller_manager.common.base.plain_yaml import NotPlain, read_yaml  # --help gets along without YAML

    try:
        found = read_yaml(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{where} can't be read: {error.strerror}") from None
    except NotPlain as error:
        raise ValueError(f"{where} is not YAML: {error}") from None
    if isinstance(found, dict) and set(found) == {_IN_MANIFEST}:
        found = found[_IN_MANIFEST]
    if not isinstance(found, dict) or not all(isinstance(one, str) for pair in found.items() for one in pair):
        raise ValueError(f"{where} is not a mapping of text to text")
    return found


class ProfilingOptions(Options):
    """Profiling flags."""

    title: ClassVar[str] = "Profiling"

    profiling: bool = flag(True, "serve profiles for `go tool pprof` at host:port/debug/pprof/")
    contention_profiling: bool = flag(
        False, "record what blocks the event loop, for /debug/pprof/block, if profiling is enabled"
    )
