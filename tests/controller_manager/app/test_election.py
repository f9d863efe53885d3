"""Each flag of leader election changes the leader, the lease or the timing (virtual time)."""

import pytest

from controller_manager.app.election import ElectionOptions
from controller_manager.common.api.coordination import LEASES, Lease
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.resource import Key
from controller_manager.common.base.clock import monotonic
from controller_manager.common.options.parse import FlagError, FlagSet
from controller_manager.testing import Cluster

LEASE = Key("kube-system", "cluster-controller-manager")


async def lease(cluster: Cluster, key: Key = LEASE) -> Lease:
    return await cluster.client.get(LEASES, key)


async def renewals(cluster: Cluster, seconds: int) -> int:
    """Return the number of lease renewals in these seconds."""
    seen = set()
    for _ in range(seconds * 4):
        seen.add((await lease(cluster)).spec.renew_time)
        await cluster.sleep(0.25)
    return len(seen) - 1


@pytest.mark.virtual
@pytest.mark.flag("leader-elect")
async def test_without_election_every_replica_leads_without_lease() -> None:
    async with Cluster() as cluster:
        replicas = [await cluster.manage("--leader-elect=false") for _ in range(2)]
        await cluster.settle()
        assert all(replica.manager.may_write() for replica in replicas)
        assert [lock.leads for lock in replicas[1].manager.state().locks] == [True]
        with pytest.raises(NotFound):
            await lease(cluster)


@pytest.mark.virtual
@pytest.mark.flag("leader-elect-resource-name", "leader-elect-resource-namespace")
async def test_lease_name_and_namespace_follow_flags() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(
            "--leader-elect-resource-name=mine", "--leader-elect-resource-namespace=kube-public"
        )
        await cluster.settle()
        found = await lease(cluster, Key("kube-public", "mine"))
        assert found.spec.holder_identity == replica.manager.state().identity
        with pytest.raises(NotFound):
            await lease(cluster)


@pytest.mark.virtual
@pytest.mark.parametrize("seconds", [15, 40])
@pytest.mark.flag("leader-elect-lease-duration")
async def test_standby_waits_for_lease_duration(seconds: int) -> None:
    async with Cluster() as cluster:
        flags = (f"--leader-elect-lease-duration={seconds}s", "--leader-elect-renew-deadline=10s")
        first = await cluster.manage(*flags)
        await cluster.settle()
        second = await cluster.manage(*flags)
        await cluster.settle()
        assert (await lease(cluster)).spec.lease_duration_seconds == seconds
        await first.kill()
        killed = monotonic()
        while not second.manager.may_write():
            await cluster.sleep(0.5)
        assert seconds - 3 < monotonic() - killed < seconds + 3


@pytest.mark.virtual
@pytest.mark.parametrize("seconds", [5, 12])
@pytest.mark.flag("leader-elect-renew-deadline")
async def test_disconnected_leader_stops_after_renew_deadline(seconds: int) -> None:
    async with Cluster() as cluster:
        first = await cluster.manage(f"--leader-elect-renew-deadline={seconds}s")
        await cluster.settle()
        first.network.cut()
        cut = monotonic()
        assert (await first.ended()).status == 1
        assert seconds - 3 < monotonic() - cut <= seconds + 0.1


@pytest.mark.virtual
@pytest.mark.parametrize(("period", "expected"), [("1s", 60), ("4s", 15)])
@pytest.mark.flag("leader-elect-retry-period")
async def test_lease_is_renewed_every_retry_period(period: str, expected: int) -> None:
    async with Cluster() as cluster:
        await cluster.manage(f"--leader-elect-retry-period={period}")
        await cluster.settle()
        assert abs(await renewals(cluster, 60) - expected) <= 1


REFUSED = [
    (["--leader-elect-renew-deadline=15s"], "--leader-elect-renew-deadline must be less than"),
    (["--leader-elect-lease-duration=10s"], "--leader-elect-renew-deadline must be less than"),
    (["--leader-elect-retry-period=9s"], "--leader-elect-retry-period times 1.2 must be less than"),
    (["--leader-elect-retry-period=0s"], "--leader-elect-retry-period"),
    (["--leader-elect-lease-duration=500ms"], "--leader-elect-lease-duration"),
    (["--leader-elect-resource-name="], "must not be empty"),
    (["--leader-elect-resource-namespace="], "must not be empty"),
]


@pytest.mark.parametrize(("argv", "sentence"), REFUSED)
@pytest.mark.flag("leader-elect-lease-duration", "leader-elect-renew-deadline", "leader-elect-retry-period")
def test_unsafe_lease_timings_are_refused(argv: list[str], sentence: str) -> None:
    with pytest.raises(FlagError) as refusal:
        FlagSet(ElectionOptions).parse(argv)
    assert len(refusal.value.problems) == 1
    assert sentence in refusal.value.problems[0]


@pytest.mark.flag("leader-elect-resource-lock")
@pytest.mark.parametrize("kind", ["endpoints", "configmaps", "endpointsleases", "configmapsleases", ""])
def test_resource_lock_must_be_leases(kind: str) -> None:
    parse = FlagSet(ElectionOptions).parse
    assert parse(["--leader-elect-resource-lock=leases"])
    with pytest.raises(FlagError, match="must be leases: locks on endpoints and config maps are gone"):
        parse([f"--leader-elect-resource-lock={kind}"])
