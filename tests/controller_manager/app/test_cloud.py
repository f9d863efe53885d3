"""Discovery of cloud providers and their configuration."""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from controller_manager.app import cloud
from controller_manager.app.catalog import installed
from controller_manager.app.cloud import CloudOptions, make_provider
from controller_manager.app.program import author_program, flag_set
from controller_manager.common.base.errors import CannotStart
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.options.parse import FlagError
from controller_manager.framework.cloud_provider import CloudContext, MakeCloudProvider
from controller_manager.testing import Cluster
from controller_manager.testing.cloud import SimulatedCloud

HERE = __name__
CLOUDS = {"service-lb-controller", "node-route-controller", "cloud-node-lifecycle-controller"}


class Installed(SimulatedCloud):
    def __init__(self, context: CloudContext) -> None:
        super().__init__()
        self.context = context


def broken(_: CloudContext) -> Installed:
    raise RuntimeError("no credentials")


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two packages with providers."""
    names = {"mine": "Installed", "broken": "broken"}
    found = EntryPoints(EntryPoint(name, f"{HERE}:{value}", cloud.ENTRY_POINTS) for name, value in names.items())
    monkeypatch.setattr(cloud, "entry_points", lambda **wanted: found.select(**wanted))


def problems(*argv: str, given: Mapping[str, MakeCloudProvider] | None = None) -> list[str]:
    try:
        flag_set(installed(), cloud_providers=given or {}).parse(argv)
    except FlagError as error:
        return list(error.problems)
    return []


@pytest.mark.flag("cloud-provider")
@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize("name", ["", "external", "mine", "given"])
def test_known_cloud_providers_are_accepted(name: str) -> None:
    assert problems(f"--cloud-provider={name}", given={"given": Installed}) == []


@pytest.mark.usefixtures("packages")
def test_unknown_cloud_provider_is_refused_with_choices() -> None:
    assert problems("--cloud-provider=aws") == [
        "--cloud-provider must be empty or external, or one that is installed: broken, mine, got 'aws'"
    ]


def test_cloud_provider_without_installed_ones_is_refused() -> None:
    assert problems("--cloud-provider=aws") == ["--cloud-provider must be empty or external, got 'aws'"]


@pytest.mark.flag("cloud-config", "cluster-name")
@pytest.mark.usefixtures("packages")
def test_provider_gets_cluster_name_and_config(tmp_path: Path) -> None:
    config = tmp_path / "cloud.conf"
    config.write_text("zone = a\n")
    options = CloudOptions(cloud_provider="mine", cloud_config=str(config), cluster_name="blue")
    found = make_provider(options, {}, Runtime("manager"))
    assert isinstance(found, Installed)
    assert found.context is not None
    assert (found.context.cluster_name, found.context.config) == ("blue", "zone = a\n")


@pytest.mark.parametrize("name", ["", "external"])
def test_without_own_provider_no_config_is_read(name: str) -> None:
    assert make_provider(CloudOptions(cloud_provider=name, cloud_config="/nowhere"), {}, Runtime("manager")) is None


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"cloud_provider": "broken"}, "--cloud-provider=broken is of no use: RuntimeError: no credentials"),
        ({"cloud_provider": "mine", "cloud_config": "/nowhere/x"}, "--cloud-config=/nowhere/x cannot be read: FileNot"),
    ],
)
def test_unusable_provider_fails_start_with_reason(options: dict[str, str], problem: str) -> None:
    with pytest.raises(CannotStart) as caught:
        make_provider(CloudOptions(**options), {}, Runtime("manager"))
    assert str(caught.value).startswith(problem)


def test_program_without_cloud_controllers_has_no_cloud_flags() -> None:
    specs = [spec for spec in installed() if spec.name == "ttl-controller"]
    names = {flag.name for flag in author_program("mine", specs).flags}
    assert "cloud-provider" not in names


async def running(cloud: SimulatedCloud, *flags: str) -> set[str]:
    async with Cluster() as cluster:
        chosen = f"--controllers=ttl-controller,{','.join(CLOUDS)}"
        replica = await cluster.manage(
            *("--leader-elect=false", "--cluster-cidr=10.0.0.0/16", chosen, *flags),
            cloud_providers={"simulated": cloud.provide},
        )
        await cluster.settle()
        return {one.name for one in replica.manager.state().controllers}


@pytest.mark.virtual
@pytest.mark.parametrize("flag", ["--cloud-provider=", "--cloud-provider=external"])
async def test_cloud_controllers_require_a_provider(flag: str) -> None:
    assert await running(SimulatedCloud(), flag) == {"ttl-controller"}


@pytest.mark.virtual
async def test_cloud_controllers_require_part_of_provider() -> None:
    cloud = SimulatedCloud()
    assert await running(cloud, "--cloud-provider=simulated") == {"ttl-controller", *CLOUDS}
    assert cloud.closed
    for part, name in (
        ("instances", "cloud-node-lifecycle-controller"),
        ("load_balancers", "service-lb-controller"),
        ("routes", "node-route-controller"),
    ):
        lacking = SimulatedCloud()
        setattr(lacking, part, None)
        assert await running(lacking, "--cloud-provider=simulated") == {"ttl-controller", *CLOUDS} - {name}
