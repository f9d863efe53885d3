"""The plugin of each volume source, and the CSI drivers that replace in-tree plugins."""

from collections.abc import Mapping
from types import MappingProxyType

from controller_manager.common.api.core import VolumeSources
from controller_manager.common.api.platform import PLATFORM_DOMAIN

IN_TREE = f"{PLATFORM_DOMAIN}/"
"""The prefix of the names of in-tree plugins."""
HOST_PATH, NFS = f"{IN_TREE}host-path", f"{IN_TREE}nfs"

_SOURCES: Mapping[str, str] = MappingProxyType(
    {
        "aws_elastic_block_store": f"{IN_TREE}aws-ebs",
        "azure_disk": f"{IN_TREE}azure-disk",
        "azure_file": f"{IN_TREE}azure-file",
        "cinder": f"{IN_TREE}cinder",
        "gce_persistent_disk": f"{IN_TREE}gce-pd",
        "portworx_volume": f"{IN_TREE}portworx-volume",
        "vsphere_volume": f"{IN_TREE}vsphere-volume",
        "host_path": HOST_PATH,
        "nfs": NFS,
    }
)
MIGRATED: Mapping[str, str] = MappingProxyType(
    {
        f"{IN_TREE}aws-ebs": "ebs.csi.aws.com",
        f"{IN_TREE}azure-disk": "disk.csi.azure.com",
        f"{IN_TREE}azure-file": "file.csi.azure.com",
        f"{IN_TREE}cinder": "cinder.csi.openstack.org",
        f"{IN_TREE}gce-pd": "pd.csi.storage.gke.io",
        f"{IN_TREE}portworx-volume": "pxd.portworx.com",
        f"{IN_TREE}vsphere-volume": "csi.vsphere.vmware.com",
    }
)
"""The CSI driver that replaces a plugin (KEP-625)."""


def plugin_of(volume: VolumeSources) -> str:
    """Return the name of the plugin of a volume source, or an empty string for an unknown source."""
    return next((plugin for source, plugin in _SOURCES.items() if bytes(getattr(volume, source))), "")
