"""Volume specs: unique names in node status, CSI handles, and exclusive access."""

from typing import Any

import msgspec
import pytest

from controller_manager.common.api.core import Pod, Volume
from controller_manager.common.api.storage import PersistentVolume
from controllers.shared.volume_specs import has_volumes, spec_of_inline, spec_of_name, spec_of_volume
from tests.scenarios.volumes import volume

Tree = dict[str, Any]
EBS, GCE, CINDER = "ebs.csi.aws.com", "pd.csi.storage.gke.io", "cinder.csi.openstack.org"
AZURE_DISK, AZURE_FILE = "disk.csi.azure.com", "file.csi.azure.com"
URI = "/subscriptions/s/resourceGroups/r/providers/Microsoft.Compute/disks/d"
OLD_ZONE, NEW_ZONE = "failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"


def persistent_volume(source: Tree, *modes: str, **metadata: Any) -> PersistentVolume:
    found = volume("v", source=source, modes=modes or ("ReadWriteOnce",), claimRef={"namespace": "ns", "name": "c"})
    tree = msgspec.json.decode(found.raw)
    return PersistentVolume.decode(msgspec.json.encode({**tree, "metadata": {**tree["metadata"], **metadata}}))


def inline_volume(**source: Tree) -> Volume:
    return msgspec.json.decode(msgspec.json.encode({"name": "vol", **source}), type=Volume)


@pytest.mark.parametrize(
    ("source", "metadata", "expected"),
    [
        ({"csi": {"driver": "d", "volumeHandle": "h/1"}}, {}, "kubernetes.io/csi/d^h/1"),
        ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, {}, f"kubernetes.io/csi/{EBS}^vol-1"),
        ({"awsElasticBlockStore": {"volumeID": "aws://us-1a/vol-1"}}, {}, f"kubernetes.io/csi/{EBS}^vol-1"),
        ({"awsElasticBlockStore": {"volumeID": "aws:///vol-1"}}, {}, f"kubernetes.io/csi/{EBS}^vol-1"),
        ({"awsElasticBlockStore": {"volumeID": "aws://us-1a/1"}}, {}, None),
        ({"cinder": {"volumeID": "abc"}}, {}, f"kubernetes.io/csi/{CINDER}^abc"),
        (
            {"gcePersistentDisk": {"pdName": "d"}},
            {},
            f"kubernetes.io/csi/{GCE}^projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
        ),
        (
            {"gcePersistentDisk": {"pdName": "d"}},
            {"labels": {NEW_ZONE: "europe-west1-b"}},
            f"kubernetes.io/csi/{GCE}^projects/UNSPECIFIED/zones/europe-west1-b/disks/d",
        ),
        (
            {"gcePersistentDisk": {"pdName": "d"}},
            {"labels": {OLD_ZONE: "europe-west1-b__europe-west1-c", NEW_ZONE: "x"}},
            f"kubernetes.io/csi/{GCE}^projects/UNSPECIFIED/regions/europe-west1/disks/d",
        ),
        ({"gcePersistentDisk": {"pdName": "d"}}, {"labels": {OLD_ZONE: "a-b-c__x-y-z"}}, None),
        ({"gcePersistentDisk": {"pdName": "d"}}, {"labels": {OLD_ZONE: "a-b-c__a-b-1-2"}}, None),
        ({"azureDisk": {"diskName": "d", "diskURI": URI}}, {}, f"kubernetes.io/csi/{AZURE_DISK}^{URI}"),
        (
            {"azureDisk": {"diskName": "d", "diskURI": URI, "kind": "managed"}},
            {},
            f"kubernetes.io/csi/{AZURE_DISK}^{URI}",
        ),
        ({"azureDisk": {"diskName": "d", "diskURI": URI, "kind": "Dedicated"}}, {}, None),
        (
            {"azureFile": {"secretName": "azure-storage-account-acc-secret", "shareName": "s"}},
            {"annotations": {"kubernetes.io/azure-file-resource-group": "rg"}},
            f"kubernetes.io/csi/{AZURE_FILE}^rg#acc#s#v#ns",
        ),
        (
            {"azureFile": {"secretName": "mine", "secretNamespace": "there", "shareName": "s"}},
            {},
            f"kubernetes.io/csi/{AZURE_FILE}^#mine#s#v#there",
        ),
        ({"vsphereVolume": {"volumePath": "[a] b.vmdk"}}, {}, "kubernetes.io/csi/csi.vsphere.vmware.com^[a] b.vmdk"),
        ({"portworxVolume": {"volumeID": "pwx"}}, {}, "kubernetes.io/csi/pxd.portworx.com^pwx"),
        (
            {"iscsi": {"targetPortal": "1.2.3.4:3260", "iqn": "iqn.a", "lun": 2}},
            {},
            "kubernetes.io/iscsi/1.2.3.4:3260:iqn.a:2",
        ),
        ({"fc": {"targetWWNs": ["a", "b"], "lun": 0}}, {}, "kubernetes.io/fc/[a b]:0"),
        ({"fc": {"wwids": ["x", "y"]}}, {}, "kubernetes.io/fc/[x y]"),
        ({"fc": {"targetWWNs": ["a"]}}, {}, None),
        ({"flexVolume": {"driver": "example.org/disks"}}, {}, "example.org/disks/v"),
        ({"flexVolume": {"driver": "disks"}}, {}, "disks/v"),
        ({"nfs": {"server": "s", "path": "/p"}}, {}, None),
        ({"hostPath": {"path": "/p"}}, {}, None),
    ],
)
def test_unique_name_of_persistent_volume(source: Tree, metadata: Tree, expected: str | None) -> None:
    found = spec_of_volume(persistent_volume(source, **metadata))
    assert (found.name if found is not None else None) == expected
    if found is not None:
        assert (found.title, found.inline) == ("v", None)
        by_name = spec_of_name(found.name, {"example.org/disks", "disks"})
        assert by_name is not None
        assert (by_name.plugin, by_name.driver, by_name.handle) == (found.plugin, found.driver, found.handle)


@pytest.mark.parametrize(
    ("name", "driver"),
    [("a/b/v", "a/b"), ("b/v", "b"), ("a/c/v", None), ("a/b/c/v", None), ("v", None), ("kubernetes.io/csi/b/v", None)],
)
def test_unique_name_matches_installed_flex_driver(name: str, driver: str | None) -> None:
    found = spec_of_name(name, {"a/b", "b"})
    assert (found.plugin if found is not None else None) == driver


@pytest.mark.parametrize(
    ("source", "read_only", "options"),
    [
        ({}, False, {"kubernetes.io/readwrite": "rw", "kubernetes.io/fsType": ""}),
        ({"fsType": "xfs"}, True, {"kubernetes.io/readwrite": "ro", "kubernetes.io/fsType": "xfs"}),
        ({"readOnly": True}, False, {"kubernetes.io/readwrite": "rw", "kubernetes.io/fsType": ""}),
        (
            {"options": {"a": "<b>", "kubernetes.io/fsType": "zfs"}, "secretRef": {"name": "s"}},
            False,
            {"kubernetes.io/readwrite": "rw", "kubernetes.io/fsType": "zfs", "a": "<b>"},
        ),
    ],
)
def test_flex_options_of_persistent_volume(source: Tree, read_only: bool, options: Tree) -> None:
    found = spec_of_volume(persistent_volume({"flexVolume": {"driver": "a/b", **source}}), read_only=read_only)
    assert found is not None
    assert found.is_flex
    assert msgspec.json.decode(found.options) == {"kubernetes.io/pvOrVolumeName": "v", **options}


@pytest.mark.parametrize(("read_only", "mode"), [(True, "ro"), (False, "rw")])
def test_flex_options_of_inline_volume(read_only: bool, mode: str) -> None:
    found = spec_of_inline(inline_volume(flexVolume={"driver": "a/b", "readOnly": read_only}), "ns")
    assert found is not None
    assert (found.name, found.title, found.exclusive) == ("a/b/vol", "vol", False)
    assert msgspec.json.decode(found.options)["kubernetes.io/readwrite"] == mode


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        (("ReadWriteOnce",), True),
        (("ReadWriteOncePod",), True),
        (("ReadWriteOnce", "ReadOnlyMany"), False),
        (("ReadOnlyMany",), False),
        (("ReadWriteMany",), False),
    ],
)
def test_exclusive_by_access_modes(modes: tuple[str, ...], expected: bool) -> None:
    sources: tuple[Tree, ...] = (
        {"csi": {"driver": "d", "volumeHandle": "h"}},
        {"iscsi": {"targetPortal": "p", "iqn": "i"}},
        {"flexVolume": {"driver": "a/b"}},
    )
    for source in sources:
        found = spec_of_volume(persistent_volume(source, *modes))
        assert found is not None
        assert found.exclusive is expected


@pytest.mark.parametrize(
    ("modes", "expected"),
    [(("ReadWriteMany",), True), (("ReadWriteOnce", "ReadOnlyMany"), True), (("ReadOnlyMany",), False)],
)
def test_gce_disk_is_exclusive_unless_read_only(modes: tuple[str, ...], expected: bool) -> None:
    found = spec_of_volume(persistent_volume({"gcePersistentDisk": {"pdName": "d"}}, *modes))
    assert found is not None
    assert (found.exclusive, found.migrated) == (expected, True)


@pytest.mark.parametrize(
    ("source", "title", "spec"),
    [
        (
            {"awsElasticBlockStore": {"volumeID": "vol-1", "fsType": "ext4", "partition": 2, "readOnly": True}},
            f"{EBS}-vol-1",
            {
                "csi": {
                    "driver": EBS,
                    "volumeHandle": "vol-1",
                    "readOnly": True,
                    "fsType": "ext4",
                    "volumeAttributes": {"partition": "2"},
                },
                "accessModes": ["ReadWriteOnce"],
                "volumeMode": "Filesystem",
            },
        ),
        (
            {"gcePersistentDisk": {"pdName": "d", "readOnly": True}},
            f"{GCE}-d",
            {
                "csi": {
                    "driver": GCE,
                    "volumeHandle": "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
                    "readOnly": True,
                    "volumeAttributes": {"partition": ""},
                },
                "accessModes": ["ReadOnlyMany"],
                "volumeMode": "Filesystem",
            },
        ),
        (
            {"azureFile": {"secretName": "s", "shareName": "share"}},
            "#s#share#vol#ns",
            {
                "csi": {
                    "driver": AZURE_FILE,
                    "volumeHandle": "#s#share#vol#ns",
                    "volumeAttributes": {"sharename": "share"},
                    "nodeStageSecretRef": {"name": "s", "namespace": "ns"},
                },
                "accessModes": ["ReadWriteMany"],
                "volumeMode": "Filesystem",
            },
        ),
        (
            {"azureDisk": {"diskName": "d", "diskURI": URI, "cachingMode": "None", "fsType": "ext4"}},
            URI,
            {
                "csi": {
                    "driver": AZURE_DISK,
                    "volumeHandle": URI,
                    "fsType": "ext4",
                    "volumeAttributes": {"kind": "Managed", "cachingmode": "None", "fstype": "ext4"},
                },
                "accessModes": ["ReadWriteOnce"],
                "volumeMode": "Filesystem",
            },
        ),
        (
            {"cinder": {"volumeID": "abc"}},
            f"{CINDER}-abc",
            {
                "csi": {"driver": CINDER, "volumeHandle": "abc"},
                "accessModes": ["ReadWriteOnce"],
                "volumeMode": "Filesystem",
            },
        ),
        (
            {"portworxVolume": {"volumeID": "p", "readOnly": True, "fsType": "xfs"}},
            "pxd.portworx.com-p",
            {
                "csi": {"driver": "pxd.portworx.com", "volumeHandle": "p", "fsType": "xfs"},
                "accessModes": ["ReadOnlyMany"],
                "volumeMode": "Filesystem",
            },
        ),
    ],
)
def test_inline_volume_migrates_to_csi(source: Tree, title: str, spec: Tree) -> None:
    found = spec_of_inline(inline_volume(**source), "ns")
    assert found is not None
    assert (found.title, found.inline, found.volume) == (title, spec, "")


@pytest.mark.parametrize(
    ("volume_of_pod", "expected"),
    [
        ({"projected": {"sources": []}}, False),
        ({"emptyDir": {}}, False),
        ({"csi": {"driver": "d"}}, False),
        ({"persistentVolumeClaim": {"claimName": "c"}}, True),
        ({"ephemeral": {}}, True),
        ({"cinder": {"volumeID": "x"}}, True),
        ({"iscsi": {"targetPortal": "p"}}, True),
    ],
)
def test_which_pods_have_volumes(volume_of_pod: Tree, expected: bool) -> None:
    tree = {
        "metadata": {"name": "p"},
        "spec": {"volumes": [{"name": "e", "emptyDir": {}}, {"name": "v", **volume_of_pod}]},
    }
    assert has_volumes(Pod.decode(msgspec.json.encode(tree))) is expected


def test_inline_volumes_without_attachment_have_no_spec() -> None:
    assert spec_of_inline(inline_volume(emptyDir={}), "ns") is None
    assert spec_of_inline(inline_volume(csi={"driver": "d"}), "ns") is None
    assert spec_of_inline(inline_volume(hostPath={"path": "/"}), "ns") is None
    shared = spec_of_inline(inline_volume(iscsi={"targetPortal": "p", "iqn": "i"}), "ns")
    assert shared is not None
    assert (shared.title, shared.exclusive) == ("vol", False)


@pytest.mark.parametrize("name", ["", "a", "kubernetes.io/csi/d", "kubernetes.io/csi", "example.org/x/y", "a/b"])
def test_unknown_unique_name_has_no_spec(name: str) -> None:
    assert spec_of_name(name) is None
