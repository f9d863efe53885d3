"""Flags of controllers that do not exist yet: read and checked like all others, and without effect.

Whoever writes one of these controllers moves its group beside it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Self

from pydantic import model_validator

from controller_manager.api.platform import VENDOR
from controller_manager.options import Duration, Int32, Options, flag


def _needs(controller: str) -> Callable[..., Any]:
    """Return `flag()` for the flags of that controller."""
    return partial(flag, inert=f"needs {controller}")


_cloud_nodes = _needs("cloud-node-lifecycle-controller")
_balancer = _needs("service-lb-controller")
_route = _needs("node-route-controller")


class CloudOptions(Options):
    """The cloud the cluster runs in."""

    title = "Cloud controllers"

    cloud_provider: str = _cloud_nodes("", "provider of the cloud: none, or external", metavar="name")
    cloud_config: str = _cloud_nodes("", "configuration file of the provider of the cloud", metavar="file")
    cluster_name: str = _balancer("kubernetes", "name of the cluster in what is made in the cloud for it")
    concurrent_service_syncs: Int32 = _balancer(1, "load balancers worked on at the same time", minimum=1)
    configure_cloud_routes: bool = _route(True, "tell the cloud's network the ranges that nodes were given")
    route_reconciliation_period: Duration = _route(
        "10s", "how often the routes in the cloud's network are compared", minimum=0.001
    )

    @model_validator(mode="after")
    def _is_another_process(self) -> Self:
        if self.cloud_provider not in ("", "external"):
            raise ValueError(f"--cloud-provider must be empty or external, got {self.cloud_provider!r}")
        return self


_binder = _needs("persistentvolume-binder-controller")


class VolumeOptions(Options):
    """Flags of volumes and their claims."""

    title = "Volume controllers"

    enable_dynamic_provisioning: bool = _binder(True, "make volumes for claims that name a class")
    enable_hostpath_provisioner: bool = _binder(
        False, "make volumes of the host's folders where there is no cloud; for tests with one node only"
    )
    external_cloud_volume_plugin: str = _binder(
        "", "plugin for the volumes of the cloud when --cloud-provider is external", metavar="name"
    )
    flex_volume_plugin_dir: str = _binder(
        f"/usr/libexec/{VENDOR}/node-agent-plugins/volume/exec/", "folder of further volume plugins", metavar="folder"
    )
    pvclaimbinder_sync_period: Duration = _binder("15s", "how often volumes and claims are compared", minimum=0.001)
    pv_recycler_pod_template_filepath_nfs: str = _binder(
        "", "file of the pod that empties an NFS volume", metavar="file"
    )
    pv_recycler_minimum_timeout_nfs: Int32 = _binder(
        300, "seconds the emptying of an NFS volume may take at least", minimum=0
    )
    pv_recycler_increment_timeout_nfs: Int32 = _binder(
        30, "seconds more for each Gi the emptying of an NFS volume may take", minimum=0
    )
    pv_recycler_pod_template_filepath_hostpath: str = _binder(
        "", "file of the pod that empties a volume of the host; for tests only", metavar="file"
    )
    pv_recycler_minimum_timeout_hostpath: Int32 = _binder(
        60, "seconds the emptying of a volume of the host may take at least; for tests only", minimum=0
    )
    pv_recycler_timeout_increment_hostpath: Int32 = _binder(
        30, "seconds more for each Gi the emptying of a volume of the host may take; for tests only", minimum=0
    )


AWAITED: tuple[type[Options], ...] = (
    CloudOptions,
    VolumeOptions,
)
