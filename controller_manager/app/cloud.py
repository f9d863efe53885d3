"""The cloud provider: its flags, and how the provider is loaded."""

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import ClassVar

from controller_manager.common.base.errors import CannotStart, describe
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.parse import Check, Parsed
from controller_manager.framework.cloud_provider import CloudContext, CloudProvider, MakeCloudProvider

ENTRY_POINTS = "cluster_controller_manager.cloud_providers"
# No provider, or a provider that another process uses.
_NONE, _EXTERNAL = "", "external"


class CloudOptions(Options):
    """Flags of the cloud provider."""

    title: ClassVar[str] = "Cloud provider"

    cloud_provider: str = flag(
        _NONE,
        "provider of the cloud that controllers work with: none, external if another process works with it, or the "
        "name of one that is installed",
        metavar="name",
    )
    cloud_config: str = flag("", "configuration file of the provider, which reads it", metavar="file")
    cluster_name: str = flag("kubernetes", "name of the cluster in what is made in the cloud for it")


def provider_known(given: Mapping[str, MakeCloudProvider]) -> Check:
    """Return the check that `--cloud-provider` is empty, `external`, one of those `given`, or an installed one."""

    def check(parsed: Parsed) -> Iterator[str]:
        name = parsed[CloudOptions].cloud_provider
        if name in (_NONE, _EXTERNAL) or name in given:
            return
        installed = {entry.name for entry in entry_points(group=ENTRY_POINTS)}
        if name not in installed:
            others = f", or one that is installed: {', '.join(sorted(installed))}" if installed else ""
            yield f"--cloud-provider must be empty or external{others}, got {name!r}"

    return check


def make_provider(
    options: CloudOptions, given: Mapping[str, MakeCloudProvider], runtime: Runtime
) -> CloudProvider | None:
    """Create the provider of `--cloud-provider`; None if it is empty or external. Raises CannotStart."""
    name = options.cloud_provider
    if name in (_NONE, _EXTERNAL):
        return None
    context = CloudContext(options.cluster_name, _read(options.cloud_config), runtime.log("cloud").bind(provider=name))
    try:
        make = given.get(name) or _installed(name)
        return make(context)
    except Exception as error:
        raise CannotStart(f"--cloud-provider={name} is of no use: {describe(error)}") from error


def _installed(name: str) -> MakeCloudProvider:
    found: Sequence[MakeCloudProvider] = [entry.load() for entry in entry_points(group=ENTRY_POINTS, name=name)]
    if len(found) != 1:
        raise LookupError(f"{len(found)} packages have a provider of that name")
    return found[0]


def _read(path: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CannotStart(f"--cloud-config={path} cannot be read: {describe(error)}") from error
