"""Extracts the default roles and bindings from a folder of API data, without those of a vendor.

Run as `python -m apiserver_stub.bootstrap.reduce FOLDER`; writes `policy.json` beside this file, one object per line
with kind, namespace, name and other data. Aggregated roles include the aggregated rules.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec

Raw = dict[str, Any]

# Objects of a vendor, or of a feature that is off by default.
_LEFT_OUT = (
    "system:openshift:",
    "system:controller:service-ca-cert-publisher",
    "system:cluster-trust-bundle-discovery",
)
_ORDER = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


def main(folder: str) -> None:
    """Write `policy.json`."""
    lines = (Path(folder) / "rbac.jsonl").read_bytes().splitlines()
    found = {}  # the first of duplicate entries is the one with off-by-default features disabled
    for raw in map(msgspec.json.decode, lines):
        if not raw["name"].startswith(_LEFT_OUT):
            found[_ORDER.index(raw["kind"]), raw.get("namespace", ""), raw["name"]] = raw
    objects = [found[key] for key in sorted(found)]
    roles = {raw["name"]: raw for raw in objects if raw["kind"] == "ClusterRole"}
    for name in ("view", "edit", "admin"):  # each gathers the one before
        roles[name]["rules"] = _gathered(roles[name], roles)
    target = Path(__file__).parent / "policy.json"
    target.write_bytes(b"[\n" + b",\n".join(map(msgspec.json.encode, objects)) + b"\n]\n")


def _gathered(role: Raw, roles: dict[str, Raw]) -> list[Raw]:
    """Return the rules of the roles that one gathers, each once, in the order of names."""
    rules: list[Raw] = []
    for selector in role["aggregationRule"]["clusterRoleSelectors"]:
        labels = selector["matchLabels"].items()
        for name in sorted(roles):
            if name != role["name"] and labels <= roles[name].get("labels", {}).items():
                rules += [rule for rule in roles[name].get("rules") or () if rule not in rules]
    return rules


if __name__ == "__main__":
    main(sys.argv[1])
