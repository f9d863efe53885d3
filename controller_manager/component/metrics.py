"""The flags for metrics: which families a process shows, and with which values of labels."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from pydantic import PrivateAttr, model_validator

from controller_manager.api.platform import API_VERSION
from controller_manager.base.metric_rules import Allowed, Rules
from controller_manager.options import Options, StringList, StringMap, flag

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_KEY = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*,[a-zA-Z_][a-zA-Z0-9_]*")
_IN_MANIFEST = "allowListMapping"


class MetricsOptions(Options):
    """Flags of the page of metrics."""

    title: ClassVar[str] = "Metrics"

    show_hidden_metrics_for_version: str = flag(
        "", "show the metrics that are hidden since this version; only the previous minor version, as major.minor"
    )
    disabled_metrics: StringList = flag(
        (), "full names of metrics that are not kept; they are not shown as hidden ones either", metavar="name,..."
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

    def rules(self) -> Rules:
        """Return what the registry of the process goes by."""
        allowed: dict[str, dict[str, frozenset[str]]] = {}
        for key, values in self._mapping.items():
            name, _, label = key.partition(",")
            allowed.setdefault(name, {})[label] = frozenset(values.split(","))
        families: Mapping[str, Allowed] = allowed
        return Rules(
            version=API_VERSION,
            disabled=frozenset(self.disabled_metrics),
            show_hidden=bool(self.show_hidden_metrics_for_version),
            allowed=families,
        )


def _read(where: str, path: Path) -> dict[str, str]:
    from controller_manager.base.plain_yaml import NotPlain, read_yaml  # --help gets along without YAML

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
