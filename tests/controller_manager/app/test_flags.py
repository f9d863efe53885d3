"""The flags of the process: documented names, types and defaults, and the rules between them."""

import pytest

from controller_manager.app.clients import ClientOptions
from controller_manager.app.election import ElectionOptions
from controller_manager.app.flags import flag_set
from controller_manager.options import FlagError

FLAGS = flag_set(())

# Document 3, controller manager options: name, type, default.
DOCUMENTED = """
allow-metric-labels stringToString
allow-metric-labels-manifest string
authentication-clusterconfig string
authentication-token-webhook-cache-ttl duration 10s
authorization-always-allow-paths strings /healthz,/readyz,/livez
authorization-clusterconfig string
authorization-webhook-cache-authorized-ttl duration 10s
authorization-webhook-cache-unauthorized-ttl duration 10s
bind-address string 0.0.0.0
cert-dir string
client-ca-file string
cluster-api-burst int32 30
cluster-api-qps float 20
clusterconfig string
controller-start-interval duration 0s
controllers strings *
disabled-metrics strings
emulated-version strings
feature-gates colonSeparatedMultimapStringString
leader-elect bool true
leader-elect-lease-duration duration 15s
leader-elect-renew-deadline duration 10s
leader-elect-resource-lock string leases
leader-elect-resource-name string cluster-controller-manager
leader-elect-resource-namespace string kube-system
leader-elect-retry-period duration 2s
logging-format string text
master string
min-resync-period duration 12h0m0s
secure-port int 10257
show-hidden-metrics-for-version string
tls-cert-file string
tls-private-key-file string
v int 0
"""


def test_every_flag_is_as_documented():
    found = [f"{one.name} {one.type.label} {one.type.format(one.default)}".strip() for one in FLAGS]
    assert sorted(found) == DOCUMENTED.split("\n")[1:-1]


def test_the_names_of_the_ecosystem_are_accepted():
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
        (["--leader-elect-resource-lock=endpoints"], "--leader-elect-resource-lock: must be leases"),
        (["--cluster-api-burst=0"], "--cluster-api-burst: must be at least 1"),
        (["--logging-format=xml"], "--logging-format: must be text or json"),
    ],
)
def test_what_cannot_work_is_refused(argv, problem):
    with pytest.raises(FlagError) as caught:
        FLAGS.parse(argv)
    (told,) = caught.value.problems
    assert told.startswith(problem)


def test_a_fast_election_is_possible():
    argv = [f"--leader-elect-{name}" for name in ("lease-duration=3s", "renew-deadline=2s", "retry-period=500ms")]
    assert FLAGS.parse(argv)[ElectionOptions].leader_elect_retry_period == 0.5
