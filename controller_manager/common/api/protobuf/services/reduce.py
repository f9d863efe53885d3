"""Generates the tables of gRPC services from their public descriptions: `python reduce.py grpc.json`."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SERVICES: Mapping[str, str] = {"externaljwt": "external_jwt", "kms.v2": "kms_v2", "konnectivity": "konnectivity"}
# The etcd methods in use.
_ETCD = ("Range", "Txn", "Compact", "Watch", "LeaseGrant", "LeaseTimeToLive", "Status")
_SCALARS: Mapping[str, str] = {
    "bool": "bool", "bytes": "raw", "double": "double", "int32": "int", "int64": "int", "string": "string",
    "uint32": "uint", "uint64": "uint",
}  # fmt: skip
_LABELS: Mapping[str, str] = {"": "pointer", "optional": "pointer", "repeated": "list"}
_TIMESTAMP = "google.protobuf.Timestamp"
_WELL_KNOWN = {_TIMESTAMP: {"1": ["seconds", "int", "pointer"], "2": ["nanos", "int", "pointer"]}}
Described = Mapping[str, Any]


def main(source: str) -> None:
    """Write the file of each service next to this one."""
    found = json.loads(Path(source).read_text())
    for name, target in _SERVICES.items():
        write(target, reduced(found[name], target))
    write("etcd", etcd(found["etcd.rpc"], found["etcd.kv"]))


def write(target: str, service: Mapping[str, Any]) -> None:
    """Write the file of one service."""
    path = Path(__file__).with_name(f"{target}.json")
    path.write_text(json.dumps(service, separators=(",", ":"), sort_keys=True) + "\n")


def etcd(rpc: Described, kv: Described) -> dict[str, Any]:
    """Return the etcd methods in use and their messages, which are in two packages."""
    found, values = reduced(rpc, "etcd"), reduced(kv, "mvccpb")["messages"]
    methods = {name: found["methods"][name] for name in _ETCD}
    known = found["messages"] | values
    needed: dict[str, Any] = {}
    waiting = [message for _, *messages in methods.values() for message in messages]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed[name] = known[name]
            waiting += [kind for _, kind, *_ in known[name].values() if kind in known]
    return {"methods": methods, "messages": needed}


def reduced(described: Described, prefix: str) -> dict[str, Any]:
    """Return methods and messages of a description; message names get a `prefix`."""
    package = f"{described['package']}." if described["package"] else ""
    methods = {
        method: [f"/{package}{service}/{method}", f"{prefix}.{request}", f"{prefix}.{answer}"]
        for service, rows in described["services"].items()
        for method, (request, answer, *_) in rows.items()
    }
    enums = {name.rpartition(".")[2] for name in described["enums"]}
    messages = {
        f"{prefix}.{name}": {str(row[0]): _field(field, row, prefix, enums) for field, row in rows.items()}
        for name, rows in described["messages"].items()
    }
    uses_time = any(_TIMESTAMP in field for rows in messages.values() for field in rows.values())
    return {"methods": methods, "messages": messages | (_WELL_KNOWN if uses_time else {})}


def _field(name: str, row: list[Any], prefix: str, enums: set[str]) -> list[str]:
    kind, label = row[1], row[2] if len(row) > 2 else ""
    if kind.startswith("map<string,"):
        return [name, _kind(kind[len("map<string,") : -1], prefix, enums), "map"]
    return [name, _kind(kind, prefix, enums), _LABELS[label]]


def _kind(kind: str, prefix: str, enums: set[str]) -> str:
    if kind in enums:
        return "int"
    return _SCALARS.get(kind) or (kind if "." in kind else f"{prefix}.{kind}")


if __name__ == "__main__":
    main(sys.argv[1])
