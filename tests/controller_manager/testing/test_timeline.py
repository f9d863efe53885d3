"""The timeline lists writes, causes and cluster operations; failed tests print it."""

import pytest
from msgspec.structs import replace

from controller_manager.common.api.apps import DEPLOYMENTS, REPLICA_SETS
from controller_manager.common.api.core import NAMESPACES, PODS
from controller_manager.common.api.errors import Conflict
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.options.flag import Options
from controller_manager.framework import Context, ControllerSpec, For, PolicyRule
from controller_manager.testing import Cluster, builders, timeline
from controller_manager.testing.pod_agent import PodAgent
from tests.controller_manager.testing.test_snapshots import deployment

pytest_plugins = ("pytester",)
WEB = Key("default", "web")


@pytest.mark.virtual
async def test_write_has_actor_and_cause() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage()
        await cluster.settle()
        await cluster.client.create(DEPLOYMENTS, deployment(1))
        await cluster.settle()
        events = cluster.timeline.events()
        pod = (await cluster.client.list(PODS)).items[0]
        (replica_set,) = (await cluster.client.list(REPLICA_SETS)).items
        made = [event for event in events if event.key == f"default/{pod.metadata.name}"]
        assert [(event.verb, event.resource) for event in made] == [
            ("create", "pods"),
            ("create", "pods/binding"),
            ("patch", "pods/status"),
        ]
        assert made[0].who == "manager-1/replicaset-controller [system:kube-controller-manager]"
        assert made[0].run == f"replicaset-controller default/{replica_set.metadata.name}"
        assert made[0].causes == (f"replicasets.apps default/{replica_set.metadata.name} created",)
        assert made[2].revision == int(pod.metadata.resource_version)
        assert [event.at for event in events] == sorted(event.at for event in events)
        assert not any("leases" in event.resource for event in events)


@pytest.mark.virtual
async def test_refusals_and_server_writes_are_listed() -> None:
    async with Cluster(["--event-ttl=1m"]) as cluster:
        first = await cluster.client.create(NAMESPACES, builders.namespace("n"))
        await cluster.client.patch(NAMESPACES, Key("", "n"), {"metadata": {"labels": {"a": "b"}}})
        with pytest.raises(Conflict):
            await cluster.client.update(NAMESPACES, replace(first, metadata=ObjectMeta(name="n", resource_version="1")))
        listed = [(event.who, event.verb, event.text[:13]) for event in cluster.timeline.events() if event.key == "n"]
        admin = "cluster-controller-manager [kubernetes-admin]"
        assert listed == [(admin, "create", ""), (admin, "patch", ""), (admin, "update", "409 Conflict:")]


class Labeller:
    """Applies a label to each pod, even if it is set, and records an event."""

    def __init__(self, context: Context, options: Options) -> None:
        self._client, self._events = context.client, context.events

    async def reconcile(self, key: Key) -> None:
        pod = await self._client.apply(PODS, key, {"metadata": {"labels": {"seen": "yes"}}}, "labeller")
        self._events.normal(pod, "Seen", f"Saw {key.name}")


LABELLER = ControllerSpec(
    name="labeller",
    reconciler=Labeller,
    options=Options,
    watches=(For(PODS),),
    rbac=(PolicyRule(groups=("",), resources=("pods",), verbs=("list", "watch", "create", "patch")),),
)


@pytest.mark.virtual
async def test_apply_without_change_is_not_a_write() -> None:
    async with Cluster() as cluster:
        await cluster.client.create(PODS, builders.pod("p", labels={"seen": "yes"}))
        await cluster.client.apply(PODS, Key("default", "p"), {"metadata": {"labels": {"seen": "yes"}}}, "labeller")
        replica = await cluster.manage("--leader-elect=false", specs=[LABELLER])
        await cluster.settle()
        (controller,) = replica.manager.controllers()
        assert controller.work is not None
        assert controller.work.outcomes["done"] == 1
        assert controller.work.acted == ()
        listed = [(event.verb, event.who) for event in cluster.timeline.events() if event.resource == "pods"]
        admin = "cluster-controller-manager [kubernetes-admin]"
        assert listed == [("create", admin), ("patch", admin)]
        await cluster.client.patch(PODS, Key("default", "p"), {"metadata": {"labels": {"seen": "no"}}}, dry_run=True)
        assert [event.resource for event in cluster.timeline.events()].count("pods") == 2


@pytest.mark.virtual
@pytest.mark.parametrize("flags", [(), ("--use-service-account-credentials",)], ids=["process", "account"])
async def test_event_writes_have_no_reconcile(flags: tuple[str, ...]) -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", *flags, specs=[LABELLER])
        for name in "abc":
            await cluster.client.create(PODS, builders.pod(name))
        await cluster.settle()
        made = [event for event in cluster.timeline.events() if event.resource == "events" and event.verb == "create"]
        assert [event.run for event in made] == [""] * 3
        applied = [
            event.run for event in cluster.timeline.events() if (event.resource, event.verb) == ("pods", "patch")
        ]
        assert sorted(applied) == [f"labeller default/{name}" for name in "abc"]


@pytest.mark.virtual
async def test_cluster_operations_are_listed() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage()
        await cluster.sleep(1)
        snapshot = cluster.snapshot()
        replica.network.cut()
        replica.network.heal()
        await replica.kill()
        await cluster.kill_api()
        await cluster.start_api()
        await cluster.restore(snapshot)
        async with cluster.fork():
            pass
        steps = [event.text for event in cluster.timeline.events() if not event.resource]
        assert steps[:8] == [
            "manager-1: starts",
            "the test lets 1 s pass",
            "manager-1: cut off",
            "manager-1: connected again",
            "manager-1: is killed",
            "manager-1: cut off",
            "the server is killed",
            "the server starts",
        ]
        assert steps.index("the cluster is restored") < steps.index("fork-1 goes on from here")


@pytest.mark.virtual
async def test_faults_are_listed_with_their_requests() -> None:
    async with Cluster() as cluster:
        await cluster.manage(faults=0.5)
        await cluster.sleep(10)
        listed = [str(event) for event in cluster.timeline.events() if not event.resource]
        assert any("manager-1: the server refused: manager-1/informers GET /api" in line for line in listed)
        assert any("the request was lost" in line for line in listed)


@pytest.mark.virtual
async def test_timeline_keeps_newest_and_counts_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "_MOST", 10)
    monkeypatch.setattr(timeline, "_SHOWN", 3)
    async with Cluster() as cluster:
        for number in range(30):
            cluster.timeline.step("", f"step {number}")
        assert len(cluster.timeline) == 30
        assert cluster.timeline.dropped == 20
        lines = cluster.timeline.text().splitlines()
        assert lines[0] == "(left out: 27 earlier ones)"
        assert [line.split("  ")[-1] for line in lines[1:]] == ["step 27", "step 28", "step 29"]


@pytest.mark.virtual
async def test_failure_naming_objects_shows_their_history() -> None:
    async with Cluster() as cluster:
        for name in ("one", "two"):
            await cluster.client.create(NAMESPACES, builders.namespace(name))
        await cluster.sleep(1)
        lines = cluster.timeline.text("AssertionError: 'two' is missing").splitlines()
        assert lines[0] == "(left out: 1 about other objects, 0 earlier ones)"
        assert ["two" in lines[1], "the test lets 1 s pass" in lines[2], len(lines)] == [True, True, 3]
        assert "create namespaces one" in cluster.timeline.text("no object is named")


@pytest.mark.virtual
async def test_token_owners_are_listed_but_no_tokens() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--use-service-account-credentials")
        await cluster.client.create(DEPLOYMENTS, deployment(1))
        await cluster.settle()
        text = cluster.timeline.text()
        assert "[system:serviceaccount:kube-system:replicaset-controller] create pods" in text
        assert "eyJ" not in text


def test_plugin_prints_timeline_of_failed_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from controller_manager.testing import Cluster, builders
        from controller_manager.framework import Key
        from controller_manager.common.api.core import NAMESPACES

        @pytest.mark.virtual
        async def test_fails():
            async with Cluster() as cluster:
                await cluster.client.create(NAMESPACES, builders.namespace("mine"))
                await cluster.advance(minutes=1)
                assert False, "mine"

        @pytest.mark.virtual
        async def test_passes():
            async with Cluster() as cluster:
                await cluster.advance(1)
        """
    )
    result = pytester.runpytest_inprocess("-o", "asyncio_default_fixture_loop_scope=function")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*Timeline*", "*create namespaces mine -> *", "*the test lets 60 s pass*"])
