"""Flags of controllers that do not exist yet: read and checked like all others, and without effect.

Whoever writes one of these controllers moves its group beside it.
"""

from collections.abc import Callable, Iterator
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, Self

from pydantic import field_validator, model_validator

from controller_manager.api.platform import VENDOR
from controller_manager.options import Check, Duration, Int32, Options, Parsed, flag


def _needs(controller: str) -> Callable[..., Any]:
    """Return `flag()` for the flags of that controller."""
    return partial(flag, inert=f"needs {controller}")


_ipam = _needs("node-ipam-controller")

_MASKS = {4: 24, 6: 64}
_WIDEST = 16  # bits between the mask of an IPv6 range and that of a node's part of it: 65536 nodes


class RangeOptions(Options):
    """Flags of the address ranges of nodes."""

    title = "Node address controller"

    allocate_node_cidrs: bool = _ipam(False, "give each node a part of --cluster-cidr for its pods")
    cidr_allocator_type: str = _ipam(
        "RangeAllocator", "who gives nodes their parts", choices=("RangeAllocator", "CloudAllocator")
    )
    cluster_cidr: str = _ipam(
        "", "range of the addresses of pods, or two of different families, divided by a comma", metavar="range"
    )
    service_cluster_ip_range: str = _ipam(
        "",
        "range of the addresses of services, or two of different families, left out of --cluster-cidr",
        metavar="range",
    )
    node_cidr_mask_size: Int32 = _ipam(
        0, "length of the mask of a node's part; 0 is 24 for IPv4 and 64 for IPv6", minimum=0, maximum=128
    )
    node_cidr_mask_size_ipv4: Int32 = _ipam(
        0, "length of the mask of a node's IPv4 part; 0 is 24", minimum=0, maximum=32
    )
    node_cidr_mask_size_ipv6: Int32 = _ipam(
        0, "length of the mask of a node's IPv6 part; 0 is 64", minimum=0, maximum=128
    )

    @field_validator("cluster_cidr", "service_cluster_ip_range")
    @classmethod
    def _are_ranges(cls, value: str) -> str:
        versions = [network.version for network in _ranges(value)]
        if len(set(versions)) < len(versions):
            raise ValueError(f"must be one range, or one of each family, got {value!r}")
        return value


def _ranges_fit(parsed: Parsed) -> Iterator[str]:
    """Yield what the flags say about the ranges of nodes fits together."""
    options = parsed[RangeOptions]
    networks = _ranges(options.cluster_cidr)
    general, *single = options.node_cidr_mask_size, options.node_cidr_mask_size_ipv4, options.node_cidr_mask_size_ipv6
    if options.allocate_node_cidrs and not networks:
        yield "--allocate-node-cidrs requires --cluster-cidr"
    if general and any(single):
        yield "--node-cidr-mask-size cannot be given with --node-cidr-mask-size-ipv4 or --node-cidr-mask-size-ipv6"
    elif general and len(networks) > 1:
        yield "--node-cidr-mask-size cannot be given with two ranges in --cluster-cidr, but one for each family"
    elif options.allocate_node_cidrs:
        masks = {4: general or single[0] or _MASKS[4], 6: general or single[1] or _MASKS[6]}
        for network in networks:
            yield from _fits(network, masks[network.version])


def _fits(network: IPv4Network | IPv6Network, mask: int) -> Iterator[str]:
    first = network.prefixlen
    last = network.max_prefixlen if network.version == 4 else min(first + _WIDEST, network.max_prefixlen)
    if not first <= mask <= last:
        yield f"--node-cidr-mask-size must be from {first} to {last} for --cluster-cidr={network}, and is {mask}"


def _ranges(text: str) -> list[IPv4Network | IPv6Network]:
    return [ip_network(part.strip(), strict=False) for part in text.split(",")] if text.strip() else []


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


_attach = _needs("persistentvolume-attach-detach-controller")
_binder = _needs("persistentvolume-binder-controller")


class AttachOptions(Options):
    """Flags of attaching volumes to nodes."""

    title = "Attach-detach controller"

    attach_detach_reconcile_sync_period: Duration = _attach(
        "1m", "how often attached volumes are compared with those that should be; more than one second"
    )
    disable_attach_detach_reconcile_sync: bool = _attach(
        False, "never compare attached volumes with those that should be; pods may then lack theirs"
    )
    disable_force_detach_on_timeout: bool = _attach(
        False, "leave a volume attached to a node that is not ready, however long its unmounting takes"
    )

    @model_validator(mode="after")
    def _is_not_hectic(self) -> Self:
        if self.attach_detach_reconcile_sync_period <= 1:
            raise ValueError("--attach-detach-reconcile-sync-period must be more than 1s")
        return self


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


_daemon_set = _needs("daemonset-controller")
_stateful_set = _needs("statefulset-controller")


class WorkloadOptions(Options):
    """Flags of the number of objects that each controller works on at once."""

    title = "Workload controllers"

    concurrent_daemonset_syncs: Int32 = _daemon_set(2, "daemon sets worked on at the same time", minimum=1)
    concurrent_statefulset_syncs: Int32 = _stateful_set(5, "stateful sets worked on at the same time", minimum=1)


AWAITED: tuple[type[Options], ...] = (
    RangeOptions,
    CloudOptions,
    AttachOptions,
    VolumeOptions,
    WorkloadOptions,
)
CHECKS: tuple[Check, ...] = (_ranges_fit,)
