"""Flags of the controllers of volumes, until there are such controllers."""

from typing import Self

from pydantic import model_validator

from controller_manager.api.platform import VENDOR
from controller_manager.app.unimplemented._needs import needs
from controller_manager.options import Duration, Int32, Options

_attach = needs("persistentvolume-attach-detach-controller")
_binder = needs("persistentvolume-binder-controller")
_ephemeral = needs("ephemeral-volume-controller")


class AttachOptions(Options):
    """How volumes come to nodes."""

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
    """How claims find volumes."""

    title = "Volume controllers"

    concurrent_ephemeralvolume_syncs: Int32 = _ephemeral(5, "ephemeral volumes worked on at the same time", minimum=1)
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


GROUPS = (AttachOptions, VolumeOptions)
