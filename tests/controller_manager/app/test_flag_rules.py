"""Rules between flags of controllers."""

import pytest

from controller_manager.app.catalog import installed
from controller_manager.app.program import flag_set
from controller_manager.common.options.parse import FlagError

FLAGS = flag_set(installed())


def problems_of(*argv: str) -> tuple[str, ...]:
    with pytest.raises(FlagError) as caught:
        FLAGS.parse(argv)
    return caught.value.problems


def test_only_external_cloud_volume_plugin_has_no_effect():
    inert = {flag.name for flag in FLAGS if flag.declared.inert}
    assert inert == {"external-cloud-volume-plugin"}


@pytest.mark.parametrize(
    ("argv", "problems"),
    [
        (["--cluster-cidr=10.0.0.0/33"], ["'10.0.0.0/33' does not appear to be an IPv4 or IPv6 network"]),
        (["--cluster-cidr=pods"], ["'pods' does not appear to be an IPv4 or IPv6 network"]),
        (
            ["--cluster-cidr=10.0.0.0/8,11.0.0.0/8"],
            ["must be one CIDR, or one of each IP family, got '10.0.0.0/8,11.0.0"],
        ),
        (["--service-cluster-ip-range=::/0,::/1"], ["must be one CIDR, or one of each IP family, got '::/0,::/1'"]),
        (
            [
                "--allocate-node-cidrs",
                "--cluster-cidr=fd00::/48",
                "--node-cidr-mask-size=60",
                "--node-cidr-mask-size-ipv6=64",
            ],
            ["--node-cidr-mask-size cannot be given with --node-cidr-mask-size-ipv4 or --node-cidr-mask-size-ipv6"],
        ),
        (
            ["--allocate-node-cidrs", "--node-cidr-mask-size=24", "--cluster-cidr=10.0.0.0/8,fd00::/48"],
            ["--node-cidr-mask-size cannot be given with two CIDRs in --cluster-cidr; give one for each IP family"],
        ),
        (
            ["--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/25"],
            ["--node-cidr-mask-size must be from 25 to 32 for --cluster-cidr=10.0.0.0/25, not 24"],
        ),
        (
            ["--allocate-node-cidrs", "--cluster-cidr=fd00::/47"],
            ["--node-cidr-mask-size must be from 47 to 63 for --cluster-cidr=fd00::/47, not 64"],
        ),
        (["--cloud-provider=aws"], ["--cloud-provider must be empty or external, got 'aws'"]),
        (["--node-monitor-grace-period=5s"], ["--node-monitor-grace-period must be more than --node-monitor-period"]),
    ],
)
def test_conflicting_flags_are_refused(argv, problems):
    found = problems_of(*argv)
    assert len(found) == len(problems)
    for message, expected in zip(found, problems, strict=True):
        assert expected in message


@pytest.mark.parametrize(
    "argv",
    [
        ["--allocate-node-cidrs=true", "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56"],
        ["--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/8", "--node-cidr-mask-size=26"],
        ["--allocate_node_cidrs", "--cluster-cidr", "fd00::/48", "--node-cidr-mask-size-ipv6=64"],
        ["--node-cidr-mask-size=24", "--node-cidr-mask-size-ipv4=24"],
        ["--cloud-provider=external", "--concurrent_rc_syncs=9", "--node-monitor-grace-period=40s"],
    ],
)
def test_common_command_lines_are_accepted(argv):
    FLAGS.parse(argv)


def test_rule_between_groups_waits_for_valid_groups():
    assert problems_of("--allocate-node-cidrs", "--node-cidr-mask-size=x", "--cloud-provider=aws") == (
        "--node-cidr-mask-size: not a whole number, got 'x'",
        "--cloud-provider must be empty or external, got 'aws'",
    )
