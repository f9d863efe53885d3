"""Every documented flag exists with its type, default and bounds; all other flags are our own."""

import json
from pathlib import Path

import pytest

from controller_manager.app.catalog import installed
from controller_manager.app.program import flag_set
from controller_manager.common.options.flag import Flag
from controller_manager.common.options.parse import FlagError

DOCUMENTED = {row["name"]: row for row in map(json.loads, Path(__file__).with_name("flags.jsonl").open())}
# Flags that the Kubernetes documentation does not have.
OURS = {
    "use-client-config-for-access-checks": {"type": "bool", "default": "false"},
    "leader-elect-per-controller": {"type": "bool", "default": "false"},
    "controller-shards": {"type": "stringToString", "default": ""},
    "controller-api-qps": {"type": "stringToString", "default": ""},
    "adaptive-api-throttling": {"type": "bool", "default": "false"},
    "scheduler-names": {"type": "strings", "default": "default-scheduler"},
    "percentage-of-nodes-to-score": {"type": "int32", "default": "0"},
    "concurrent-bindings": {"type": "int32", "default": "32"},
    "virtual-nodes": {"type": "int32", "default": "0"},
    "virtual-node-capacity": {
        "type": "stringToString",
        "default": "cpu=32,ephemeral-storage=1Ti,memory=256Gi,pods=110",
    },
    "virtual-node-zones": {"type": "strings", "default": "zone-a,zone-b,zone-c"},
    "virtual-node-stages": {"type": "string", "default": ""},
    "virtual-node-instant": {"type": "bool", "default": "false"},
    "virtual-node-bind-address": {"type": "string", "default": "127.0.0.1"},
    "virtual-node-port": {"type": "int32", "default": "0"},
    "concurrent-virtual-node-syncs": {"type": "int32", "default": "64"},
}
FLAGS = flag_set(installed())
DECLARED = {flag.name: flag for flag in FLAGS}


def takes_any_text(flag: Flag) -> bool:
    """Return whether any text is a valid value, like a name or a file."""
    try:
        FLAGS.parse([f"--{flag.name}=x"])
    except FlagError as error:
        return "must be given together" in error.problems[0]
    return flag.type.label in ("string", "strings")


def test_flags_equal_documented_ones():
    assert sorted(DECLARED) == sorted(DOCUMENTED | OURS)


@pytest.mark.parametrize("name", sorted(set(DECLARED)))
def test_flag_has_documented_type_and_default(name):
    flag, row = DECLARED[name], (DOCUMENTED | OURS)[name]
    default = "" if flag.default is None else flag.type.format(flag.default)
    assert (flag.type.label, default, flag.declared.short) == (row["type"], row["default"], row.get("short"))
    assert flag.declared.help


@pytest.mark.parametrize("name", sorted(name for name, flag in DECLARED.items() if not takes_any_text(flag)))
def test_malformed_value_is_refused_with_flag_name(name):
    with pytest.raises(FlagError) as caught:
        FLAGS.parse([f"--{name}=?!"])
    (message,) = caught.value.problems
    assert message.startswith((f"--{name}: ", f"--{name} "))
    assert "\n" not in message


# One prints help; each occurrence of the other is a pair of files.
@pytest.mark.parametrize("name", sorted(set(DECLARED) - {"help", "tls-sni-cert-key"}))
def test_default_value_is_accepted_under_every_name(name):
    flag = DECLARED[name]
    text = "" if flag.default is None else flag.type.format(flag.default)
    before = FLAGS.parse([])[flag.group]
    for one in (name, name.replace("-", "_"), *flag.declared.aliases):
        assert FLAGS.parse([f"--{one}={text}"])[flag.group] == before


# The table "Limits" of the documentation, and bounds in its descriptions.
@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--attach-detach-reconcile-sync-period=1s"], "--attach-detach-reconcile-sync-period must be more than 1s"),
        (["--leader-elect-renew-deadline=15s"], "--leader-elect-renew-deadline must be less than"),
        (["--allocate-node-cidrs"], "--allocate-node-cidrs requires --cluster-cidr"),
        (["--leader-elect-resource-lock=configmaps"], "--leader-elect-resource-lock"),
        (["--unhealthy-zone-threshold=1.1"], "--unhealthy-zone-threshold: must be at most 1"),
        (
            [
                f"--cluster-signing-{name}-file=x"
                for name in ("cert", "key", "legacy-unknown-cert", "legacy-unknown-key")
            ],
            "--cluster-signing-legacy-unknown-cert-file cannot be given with --cluster-signing-cert-file",
        ),
    ],
)
def test_value_out_of_bounds_is_refused(argv, problem):
    with pytest.raises(FlagError) as caught:
        FLAGS.parse(argv)
    assert caught.value.problems[0].startswith(problem)


@pytest.mark.parametrize(
    "argv", [["--terminated-pod-gc-threshold=-1"], ["--attach-detach-reconcile-sync-period=1.001s"]]
)
def test_value_within_bounds_is_accepted(argv):
    FLAGS.parse(argv)
