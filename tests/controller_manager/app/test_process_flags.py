"""Process flags: upstream names, and rules between them."""

import pytest

from controller_manager.app.clients import ClientOptions
from controller_manager.app.election import ElectionOptions
from controller_manager.app.program import flag_set
from controller_manager.common.options.parse import FlagError

FLAGS = flag_set(())


def test_upstream_flag_names_are_accepted():
    parsed = FLAGS.parse(["--kubeconfig=a", "--kube-api-qps=5.5", "--kube-api-burst=7"])
    assert parsed[ClientOptions] == ClientOptions(clusterconfig="a", cluster_api_qps=5.5, cluster_api_burst=7)


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--leader-elect-renew-deadline=15s"], "--leader-elect-renew-deadline must be less than"),
        (["--leader-elect-retry-period=9s"], "--leader-elect-retry-period times 1.2 must be less than"),
        (["--tls-cert-file=x"], "--tls-cert-file and --tls-private-key-file must be given together"),
        (["--bind-address=localhost"], "--bind-address: 'localhost' does not appear to be an IPv4 or IPv6 address"),
        (["--secure-port=70000"], "--secure-port: must be at most 65535"),
        (["--leader-elect-resource-lock=endpoints"], "--leader-elect-resource-lock"),
        (["--cluster-api-burst=-1"], "--cluster-api-burst: must be at least 0"),
        (["--logging-format=xml"], "--logging-format: must be text or json"),
    ],
)
def test_invalid_process_flags_are_refused(argv, problem):
    with pytest.raises(FlagError) as caught:
        FLAGS.parse(argv)
    (message,) = caught.value.problems
    assert message.startswith(problem)


def test_short_election_timings_are_accepted():
    argv = [f"--leader-elect-{name}" for name in ("lease-duration=3s", "renew-deadline=2s", "retry-period=500ms")]
    assert FLAGS.parse(argv)[ElectionOptions].leader_elect_retry_period == 0.5
