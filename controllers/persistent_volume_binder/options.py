"""The flags of the binder and the files that they name."""

from collections.abc import Mapping
from typing import Any, ClassVar

from controller_manager.framework import ConfigError, Duration, Int32, Options, flag

from .recycler import DEFAULT_TEMPLATE, Recycling, template_from

_UNUSED = (
    "it named the plugin for volumes of a cloud while kube-controller-manager had such plugins itself; in 1.36 it has "
    "none any more, and nothing reads the name there either"
)


class BinderOptions(Options):
    """Flags of the binder."""

    title: ClassVar[str] = "PersistentVolume binder controller"

    enable_dynamic_provisioning: bool = flag(True, "make volumes for claims that name a class")
    enable_hostpath_provisioner: bool = flag(
        False, "provision HostPath volumes when running without a cloud provider; only for tests on a single node"
    )
    external_cloud_volume_plugin: str = flag(
        "", "plugin for the volumes of the cloud when --cloud-provider is external", metavar="name", inert=_UNUSED
    )
    pvclaimbinder_sync_period: Duration = flag("15s", "how often volumes and claims are compared", minimum=0.001)
    pv_recycler_pod_template_filepath_nfs: str = flag("", "file of the pod that empties an NFS volume", metavar="file")
    pv_recycler_minimum_timeout_nfs: Int32 = flag(
        300, "seconds the emptying of an NFS volume may take at least", minimum=0
    )
    pv_recycler_increment_timeout_nfs: Int32 = flag(
        30, "seconds more for each Gi the emptying of an NFS volume may take", minimum=0
    )
    pv_recycler_pod_template_filepath_hostpath: str = flag(
        "", "file of the pod that empties a volume of the host; for tests only", metavar="file"
    )
    pv_recycler_minimum_timeout_hostpath: Int32 = flag(
        60, "seconds the emptying of a volume of the host may take at least; for tests only", minimum=0
    )
    pv_recycler_timeout_increment_hostpath: Int32 = flag(
        30, "seconds more for each Gi the emptying of a volume of the host may take; for tests only", minimum=0
    )


def recycling_of_host(options: BinderOptions) -> Recycling:
    """Return how host path volumes are recycled. Raises ConfigError."""
    template = _template(
        options.pv_recycler_pod_template_filepath_hostpath, "pv-recycler-pod-template-filepath-hostpath"
    )
    minimum, increment = options.pv_recycler_minimum_timeout_hostpath, options.pv_recycler_timeout_increment_hostpath
    return Recycling(template, minimum, increment)


def recycling_of_nfs(options: BinderOptions) -> Recycling:
    """Return how NFS volumes are recycled. Raises ConfigError."""
    template = _template(options.pv_recycler_pod_template_filepath_nfs, "pv-recycler-pod-template-filepath-nfs")
    return Recycling(template, options.pv_recycler_minimum_timeout_nfs, options.pv_recycler_increment_timeout_nfs)


def check_files(options: BinderOptions) -> None:
    """Raise ConfigError, with the name of the flag, for an invalid file."""
    recycling_of_host(options)
    recycling_of_nfs(options)


def _template(file: str, name: str) -> Mapping[str, Any]:
    if not file:
        return DEFAULT_TEMPLATE
    try:
        return template_from(file)
    except OSError as error:
        raise ConfigError(f"--{name}: {file} can't be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"--{name}: {file}: {error}") from None
