"""Reduce a folder of API descriptions (schemas, resources, columns, protobuf numbers) to the data that the server
needs.

`wire.json` is written by hand. It has what the descriptions lack: messages with another form in JSON, messages embedded
in others, numbers of fields with another name in protobuf, and the presence of fields that `presence.json` does not
have.

Run `python -m apiserver_stub.kinds.data.reduce FOLDER` to write the JSON files beside this one. JSON schemas do not say
whether an empty field is written. `presence.json` does (`reduce_presence.py`).
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

Raw = dict[str, Any]

_SCALARS = {"string": "string", "boolean": "bool", "integer": "int", "number": "double"}
_PREFIX = re.compile(r"(io\.k8s|k8s\.io)\.(api|(apimachinery|apiextensions-apiserver|kube-aggregator)\.pkg(\.apis)?)\.")


def protobuf(kinds: Mapping[str, str], definitions: Iterable[Raw], extra: Raw, wire: Raw, presence: Raw) -> Raw:
    """Return the messages of the `kinds` (by `version/kind` or `group/version/kind`) and of their parts."""
    table = _Table({message_name(found["name"]): found for found in definitions}, extra, wire, presence)
    messages: dict[str, Raw] = {}
    kinds = {**kinds, **{f"{kind}List": f"{name}List" for kind, name in kinds.items() if table.has(f"{name}List")}}
    kinds.update(wire["kinds"])
    waiting = [*kinds.values(), "runtime.Unknown"]
    while waiting:
        name = waiting.pop()
        if name not in messages:
            messages[name] = fields = table.message(name)
            waiting.extend(field[1] for field in fields.values() if "." in field[1])
    return {"kinds": kinds, "messages": dict(sorted(messages.items()))}


def message_name(definition: str) -> str:
    """Return the name of the message of a definition: group, version and kind."""
    return _PREFIX.sub("", definition, count=1)


class _Table:
    """The known messages."""

    def __init__(self, definitions: Mapping[str, Raw], extra: Raw, wire: Raw, presence: Raw) -> None:
        self._definitions = definitions
        self._wire = wire
        self._presence: Raw = {**presence, **wire["presence"]}
        self._numbers = {
            message_name(name): {field: found[0] for field, found in fields.items()} for name, fields in extra.items()
        }
        self._numbers.update(wire["numbers"])
        self._outer = {inner: outer for outer, (_, inner) in wire["embedded"].items()}

    def has(self, name: str) -> bool:
        """Return whether a message is known."""
        return name in self._definitions

    def message(self, name: str) -> Raw:
        """Return the fields of a message by number."""
        if name in self._wire["messages"]:
            return {str(number): [field, *rest] for field, (number, *rest) in self._wire["messages"][name].items()}
        numbers: dict[str, int] = dict(self._numbers.get(name, {}))
        if name in self._definitions:
            definition = self._definitions[name]
            own = definition.get("fields", {}).items()
            numbers.update((field, found["pb"]) for field, found in own if "pb" in found)
        else:
            definition = self._definitions[self._outer[name]]
        fields = {number: self._field(name, definition, field) for field, number in numbers.items()}
        if name in self._wire["embedded"]:
            number, inner = self._wire["embedded"][name]
            fields[number] = ["", inner]
        return {str(number): fields[number] for number in sorted(fields)}

    def _field(self, name: str, definition: Raw, field: str) -> list[str]:
        found = definition["fields"][field]
        for part, label in (("items", "list"), ("values", "map")):
            if part in found:
                return [field, _type(found[part]), label]
        kind, label = _type(found), self._label(name, field, "." in _type(found))
        return [field, kind, label] if label else [field, kind]

    def _label(self, name: str, field: str, is_message: bool) -> str:
        presence = self._presence.get(name) or self._presence.get(self._outer.get(name, ""), {})
        if field in presence.get("pointers", ()):
            return "pointer"
        return "required" if field in presence.get("kept", ()) and not is_message else ""


def _type(raw: Raw) -> str:
    if "ref" in raw:
        return message_name(raw["ref"])
    if raw["type"] == "array":
        return "meta.v1.ExtraValue"
    return "bytes" if raw.get("format") == "byte" else _SCALARS[raw["type"]]


_SERVED = {("autoscaling", "v2")}
# Kinds of versions that are disabled by default.
_OPTIONAL = frozenset({
    "certificates.k8s.io/v1alpha1/clustertrustbundles", "certificates.k8s.io/v1beta1/clustertrustbundles",
    "certificates.k8s.io/v1beta1/podcertificaterequests", "internal.apiserver.k8s.io/v1alpha1/storageversions",
    "resource.k8s.io/v1alpha3/devicetaintrules", "resource.k8s.io/v1alpha3/resourcepoolstatusrequests",
    "resource.k8s.io/v1beta2/devicetaintrules", "storagemigration.k8s.io/v1beta1/storageversionmigrations",
})  # fmt: skip
_BODIES = (
    ("", "v1", "DeleteOptions"), ("autoscaling", "v1", "Scale"), ("policy", "v1", "Eviction"),
    ("authentication.k8s.io", "v1", "TokenRequest"),
)  # fmt: skip
_PREFIXES = (
    ("io.k8s.apimachinery.pkg.apis.", ""),
    ("io.k8s.apiextensions-apiserver.pkg.apis.", ""),
    ("io.k8s.kube-aggregator.pkg.apis.", ""),
    ("io.k8s.api.", ""),
)
_LEAVES: Mapping[str, Raw] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "quantity"},
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": {"type": "any"},
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": {"type": "micro-time"},
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": {"type": "time"},
    "io.k8s.apimachinery.pkg.runtime.RawExtension": {"type": "any"},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": "int-or-string"},
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON": {"type": "any"},
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray": {"type": "any"},
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool": {"type": "any"},
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray": {"type": "any"},
}
_KEPT = ("type", "format", "enum", "default", "listType", "listMapKeys", "mapType", "patchStrategy", "patchMergeKey")
# Required or always present, but an absent value is stored as the empty one.
_EMPTY_IS_FINE: Mapping[str, Mapping[str, Any]] = {
    "core.v1.HTTPHeader": {"value": ""},
    "core.v1.Sysctl": {"value": ""},
    "meta.v1.Condition": {"message": "", "reason": ""},
    "storage.v1.TokenRequest": {"audience": ""},
    "resource.v1.Counter": {"value": "0"},
    "resource.v1.DeviceCapacity": {"value": "0"},
    "resource.v1.ResourcePool": {"generation": 0, "resourceSliceCount": 0},
}
# Null if they are not set, as empty lists are: Go always writes them.
_NULLS: Mapping[str, tuple[str, ...]] = {
    "autoscaling.v2.HorizontalPodAutoscalerStatus": ("currentMetrics",),
    "core.v1.LimitRangeSpec": ("limits",),
    "core.v1.TypedLocalObjectReference": ("apiGroup",),
    "core.v1.TypedObjectReference": ("apiGroup",),
    "discovery.v1.EndpointSlice": ("endpoints", "ports"),
    "flowcontrol.v1.ResourcePolicyRule": ("namespaces",),
    "rbac.v1.ClusterRole": ("rules",),
    "rbac.v1.Role": ("rules",),
    "resource.v1.AllocatedDeviceStatus": ("conditions",),
    "resource.v1.CapacityRequestPolicy": ("default",),
    "resource.v1.DeviceClaim": ("requests",),
    "storage.v1.CSINodeDriver": ("topologyKeys",),
    "storage.v1.CSINodeSpec": ("drivers",),
}
# Lists with a default, whose empty value differs from an absent one.
_MEANINGFUL_EMPTY: Mapping[str, frozenset[str]] = {"autoscaling.v2.HPAScalingRules": frozenset({"policies"})}
# Zero equals absent here, and the default depends on other fields (kinds/defaults/).
_NO_DEFAULT = (
    "flowcontrol.v1.", "core.v1.ReplicationControllerSpec", "rbac.v1.RoleRef",
    "batch.v1.PodFailurePolicyOnPodConditionsPattern",
)  # fmt: skip
# Columns of kinds that are not served or that have other columns.
_UNREAD_COLUMNS = frozenset({
    "csiDriver", "csiStorageCapacity", "leaseCandidate", "podGroup", "status", "workload",
})  # fmt: skip
_MESSAGES = Path(__file__).parents[3] / "controller_manager/common/api/protobuf/messages.json"
_ZEROS: Mapping[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False}
_BEGUN: Mapping[str, Any] = {"string": "", "int-or-string": 0}
_LEFT_OUT = ("string", "integer", "boolean", "bytes", "array", "object")


def main(folder: str) -> None:
    """Write `resources.json`, `schema.json`, `columns.json` and the table of messages."""
    source, target = Path(folder), Path(__file__).parent
    resources = [r for r in _lines(source / "resources.jsonl") if _is_served(r)]
    definitions = {d["name"]: d for d in _lines(source / "schema.jsonl")}
    kinds = _kinds(resources, definitions)
    _write(target / "resources.json", resources)
    _write(target / "schema.json", _schema(kinds, definitions))
    columns = _read(source / "table-columns.json").items()
    _write(target / "columns.json", {name: found for name, found in columns if name not in _UNREAD_COLUMNS})
    messages = {kind.removeprefix("/"): message_name(name) for kind, name in kinds.items()}
    extra, wire = _read(source / "proto-extra.json"), _read(target / "wire.json")
    presence = _read(target / "presence.json")
    _write(_MESSAGES, protobuf(messages, definitions.values(), extra, wire, presence))


def _kinds(resources: Iterable[Raw], definitions: Mapping[str, Raw]) -> dict[str, str]:
    """Return the definition of every kind that a request may have."""
    by_kind = {tuple(gvk): name for name, found in definitions.items() for gvk in found.get("gvk", ())}
    roots = dict.fromkeys([(r["group"], r["version"], r["kind"]) for r in resources])
    roots.update(dict.fromkeys(_BODIES))
    return {"/".join(gvk): by_kind[gvk] for gvk in roots}


def _schema(kinds: Mapping[str, str], definitions: Mapping[str, Raw]) -> Raw:
    used = _reachable(kinds.values(), definitions, skip="")
    desired = _reachable(kinds.values(), definitions, skip="status")
    reduced = {
        _short(name): _definition(_short(name), definitions[name], observed=name not in desired)
        for name in sorted(used)
    }
    observed = {_short(name) for name in used - desired}
    for name, presence in _read(Path(__file__).with_name("presence.json")).items():
        _lay_presence(reduced, name, presence, observed=name in observed)
    for name, fields in _read(Path(__file__).with_name("judged.json")).items():
        _demand_less(reduced[name], fields)
    return {"kinds": {kind: _short(name) for kind, name in kinds.items()}, "definitions": reduced}


def _definition(full: str, raw: Raw, *, observed: bool) -> Raw:
    """Return a definition. `observed` means that it only occurs below a status, where clients need not set anything."""
    fields = {field: _field(found) for field, found in raw.get("fields", {}).items()}
    if full.startswith(_NO_DEFAULT):
        for found in fields.values():
            found.pop("default", None)
    required = tuple(field for field in raw.get("required", ()) if "default" not in fields[field])
    empty = dict(_EMPTY_IS_FINE.get(full, {}))
    if observed:
        empty = {field: _ZEROS[fields[field]["type"]] for field in required if fields[field].get("type") in _ZEROS}
    for name, value in empty.items():
        fields[name]["default"] = value
    null = _NULLS.get(full, ())
    for name in null:
        fields[name]["null"] = True
    demanded = () if observed else tuple(field for field in required if field not in empty and field not in null)
    return {
        "type": "object",
        **({"mapType": raw["mapType"]} if "mapType" in raw else {}),
        **({"required": demanded} if demanded else {}),
        "fields": fields,
    }


def _lay_presence(definitions: Mapping[str, Raw], name: str, presence: Raw, *, observed: bool) -> None:
    """Mark which fields of a definition are always present and which are omitted when empty, in place."""
    for field, raw in definitions[name]["fields"].items():
        if field in presence.get("amounts", ()):
            raw["values"]["format"] = "milli"
        if field in presence.get("times", ()):
            raw["null"] = True
        if field in _NULLS.get(name, ()):
            continue
        if field in presence.get("pointers", ()):
            if observed and raw.get("default") == _ZEROS.get(raw.get("type", "")):
                raw.pop("default", None)  # its rules distinguish unset from set
            continue
        if field in definitions[name].get("required", ()):
            _begin(definitions, raw)
            continue
        empty = _ZEROS.get(raw.get("type", ""))
        if "ref" in raw:
            if not (observed and _demands(definitions, raw["ref"])):
                raw["default"] = {}
        elif raw.get("type") == "quantity":
            raw["default"] = "0"
        elif field not in presence.get("kept", ()) or name.startswith(_NO_DEFAULT):
            left_out = raw.get("type") in _LEFT_OUT and field not in _MEANINGFUL_EMPTY.get(name, ())
            if left_out and ("default" not in raw or raw["default"] != empty):
                raw["omit"] = True
        elif empty is not None:
            raw.setdefault("default", empty)


def _begin(definitions: Mapping[str, Raw], raw: Raw) -> None:
    """Give a required field an empty default, in place, so that rules can report it if it is missing."""
    if "ref" in raw and definitions[raw["ref"]].get("type") == "object":
        raw.setdefault("default", {})
    elif raw.get("type") in _BEGUN:
        raw.setdefault("default", _BEGUN[raw["type"]])


def _demand_less(definition: Raw, fields: Iterable[str]) -> None:
    """Remove requirements that rules report themselves, in place."""
    left = tuple(name for name in definition["required"] if name not in fields)
    definition.pop("required")
    if left:
        definition["required"] = left


def _demands(definitions: Mapping[str, Raw], name: str) -> bool:
    return bool(definitions[name].get("required"))


def _field(raw: Raw) -> Raw:
    found: Raw = {key: raw[key] for key in _KEPT if key in raw}
    if "ref" in raw:
        found.update(_LEAVES.get(raw["ref"]) or {"ref": _short(raw["ref"])})
    if found.get("format") == "byte":
        found = {**found, "type": "bytes"}
        del found["format"]
    for part in ("items", "values"):
        if part in raw:
            found[part] = _field(raw[part])
    return found


def _reachable(roots: Iterable[str], definitions: Mapping[str, Raw], skip: str) -> set[str]:
    """Return the definitions reachable from `roots`, without the field `skip` of a root."""
    found: set[str] = set()
    waiting = [ref for name in roots for ref in _refs(definitions[name], skip)]
    found.update(roots)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(_refs(definitions[name], ""))
    return found


def _refs(definition: Raw, skip: str) -> Iterator[str]:
    for name, field in definition.get("fields", {}).items():
        found: Raw | None = None if name == skip else field
        while found is not None:
            if found.get("ref", "") not in ("", *_LEAVES):
                yield found["ref"]
            found = found.get("items") or found.get("values")


def _short(name: str) -> str:
    for prefix, instead in _PREFIXES:
        if name.startswith(prefix):
            return instead + name[len(prefix) :]
    return name


def _is_served(resource: Raw) -> bool:
    group, version, plural = resource["group"], resource["version"], resource["plural"]
    return version == "v1" or (group, version) in _SERVED or f"{group}/{version}/{plural}" in _OPTIONAL


def _lines(path: Path) -> list[Raw]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def _read(path: Path) -> Any:
    return msgspec.json.decode(path.read_bytes())


def _write(path: Path, content: Any) -> None:
    path.write_bytes(msgspec.json.encode(content) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1])
