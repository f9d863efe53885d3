"""Lookups of the scheduler in the caches of volumes and devices."""

from functools import partial
from typing import Any

from controller_manager.common.api.devices import DEVICE_CLASSES, DEVICE_TAINT_RULES, RESOURCE_CLAIMS, DeviceClass
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.storage import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    VolumeAttachment,
)
from controller_manager.framework import Context, Key

from ..shared.controlled import controlled_by
from .devices import Devices
from .extended_resources import class_for
from .storage import Storage

TAINTS, RULES, EXTENDED = "DRADeviceTaints", "DRADeviceTaintRules", "DRAExtendedResource"
STORAGE: tuple[Resource[Any], ...] = (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    CSI_NODES,
    CSI_DRIVERS,
    CSI_STORAGE_CAPACITIES,
)
BY_NODE = "by-node"
BY_RESOURCE = "by-resource"


def node_of(attachment: VolumeAttachment) -> tuple[str, ...]:
    return (attachment.spec.node_name,)


def resource_of(device_class: DeviceClass) -> tuple[str, ...]:
    name = device_class.spec.extended_resource_name
    return (name,) if name else ()


def storage(context: Context) -> Storage:
    attachments = context.informers.get(VOLUME_ATTACHMENTS)
    claims, volumes, classes, nodes, drivers, capacities = (context.informers.get(one) for one in STORAGE)
    return Storage(
        claim=claims.get,
        volume=lambda name: volumes.get(Key("", name)),
        volumes=volumes.list,
        storage_class=lambda name: classes.get(Key("", name)),
        csi_node=lambda name: nodes.get(Key("", name)),
        csi_driver=lambda name: drivers.get(Key("", name)),
        capacities=capacities.list,
        attachments=lambda node: attachments.by_index(BY_NODE, node),
    )


def devices(context: Context) -> Devices:
    claims, classes = context.informers.get(RESOURCE_CLAIMS), context.informers.get(DEVICE_CLASSES)
    ruled, extended = context.enabled(RULES), context.enabled(EXTENDED)

    def by_name(name: str) -> DeviceClass | None:
        return classes.get(Key("", name))

    def by_resource(name: str) -> DeviceClass | None:
        return class_for(name, by_name, partial(classes.by_index, BY_RESOURCE)) if extended else None

    return Devices(
        claim=claims.get,
        device_class=by_name,
        class_for=by_resource,
        claims_of=partial(controlled_by, claims),
        rules=context.informers.get(DEVICE_TAINT_RULES).list if ruled else tuple,
        tainted=context.enabled(TAINTS),
    )
