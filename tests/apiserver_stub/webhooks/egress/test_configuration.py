"""Egress selector configurations: valid files, and errors."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiserver_stub.common.config_file import ConfigFileError
from apiserver_stub.common.error_list import ErrorList
from apiserver_stub.webhooks.egress import DIRECT, egress_selector
from apiserver_stub.webhooks.egress.configuration import EgressSelection, judge
from controller_manager.common.base.errors import CannotStart
from controller_manager.common.base.log import get_logger

LOG = get_logger("egress")
UDS = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": "/proxy"}}}


def written(folder: Path, selections: object, version: str = "apiserver.k8s.io/v1beta1") -> str:
    file = folder / "egress.yaml"
    document = {"apiVersion": version, "kind": "EgressSelectorConfiguration", "egressSelections": selections}
    file.write_text(yaml.safe_dump(document))
    return str(file)


def problems(folder: Path, selections: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Return field and kind of each problem."""
    with pytest.raises(ConfigFileError) as caught:
        egress_selector(written(folder, selections), None, LOG)
    causes = str(caught.value).removeprefix(f"{folder}/egress.yaml: ").split("; ")
    return {(one.split(":")[0], one.split(":")[1].strip()) for one in causes}


def over(protocol: str, **transport: object) -> dict[str, Any]:
    return {"proxyProtocol": protocol, "transport": transport}


NO_FILE = "/nowhere/at/all"
# The causes that kube-apiserver 1.36 reports for each connection.
WRONG: list[tuple[dict[str, Any], set[tuple[str, str]]]] = [
    ({}, {("service.connection.protocol", "Unsupported value")}),
    ({"proxyProtocol": "direct"}, {("service.connection.protocol", "Unsupported value")}),
    (over("Direct"), {("service.connection.transport", "Invalid value")}),
    ({"proxyProtocol": "HTTPConnect"}, {("service.connection.transport", "Required value")}),
    ({"proxyProtocol": "GRPC"}, {("service.connection.transport", "Required value")}),
    (over("HTTPConnect"), {("service.connection.tcp", "Required value")}),
    (over("GRPC"), {("service.connection.uds", "Required value")}),
    (over("GRPC", tcp={"url": "http://a"}), {("service.connection.uds", "Required value")}),
    (over("GRPC", uds={}), {("service.connection.udsName", "Invalid value")}),
    (over("HTTPConnect", uds={"udsName": ""}), {("service.connection.udsName", "Invalid value")}),
    (over("HTTPConnect", uds={"udsName": "a"}, tcp={"url": "b"}), {("service.connection.tcp", "Invalid value")}),
    (over("HTTPConnect", tcp={}), {("service.connection.url", "Invalid value")}),
    (over("HTTPConnect", tcp={"url": "ftp://a"}), {("service.connection.url", "Invalid value")}),
    (over("HTTPConnect", tcp={"url": "http://"}), {("service.connection.url", "Invalid value")}),
    (over("HTTPConnect", tcp={"url": "http://a:b"}), {("service.connection.url", "Invalid value")}),
    (
        over("HTTPConnect", tcp={"url": "http://a", "tlsConfig": {}}),
        {("service.connection.tlsConfig", "Invalid value")},
    ),
    (over("HTTPConnect", tcp={"url": "https://a"}), {("service.connection.tlsConfig", "Required value")}),
    (
        over("HTTPConnect", tcp={"url": "https://a", "tlsConfig": {}}),
        {
            ("service.connection.tlsConfig.clientCert", "Invalid value"),
            ("service.connection.tlsConfig.clientKey", "Invalid value"),
        },
    ),
    (
        over(
            "HTTPConnect",
            tcp={"url": "https://a", "tlsConfig": dict.fromkeys(("caBundle", "clientCert", "clientKey"), NO_FILE)},
        ),
        {
            ("service.connection.tlsConfig.caBundle", "Invalid value"),
            ("service.connection.tlsConfig.clientCert", "Invalid value"),
            ("service.connection.tlsConfig.clientKey", "Invalid value"),
        },
    ),
]


@pytest.mark.parametrize(("connection", "expected"), WRONG)
def test_connection_errors_name_the_field(
    tmp_path: Path, connection: dict[str, Any], expected: set[tuple[str, str]]
) -> None:
    assert problems(tmp_path, [{"name": "cluster", "connection": connection}]) == expected


def test_all_problems_are_reported_together(tmp_path: Path) -> None:
    names = ["cluster", "Cluster", "elsewhere", "master", "controlplane", "datastore", "etcd"]
    connections = [over("GRPC"), *[UDS] * 6]
    selections = [{"name": name, "connection": one} for name, one in zip(names, connections, strict=True)]
    causes = problems(tmp_path, selections)
    assert causes == {
        ("service.connection.uds", "Required value"),
        ("service.connection[1]", "Duplicate value"),
        ("service.connection", "Unsupported value"),
        ("service.connection[4]", "Duplicate value"),
        ("service.connection[6]", "Duplicate value"),
    }


@pytest.mark.parametrize("version", ["apiserver.k8s.io/v1beta1", "apiserver.k8s.io/v1alpha1"])
async def test_each_network_has_its_dialer(tmp_path: Path, version: str) -> None:
    selections = [
        {"name": "master", "connection": UDS},
        {"name": "CLUSTER", "connection": {"proxyProtocol": "Direct"}},
        {"name": "datastore", "connection": UDS},
    ]
    found = egress_selector(written(tmp_path, selections, version), None, LOG)
    assert found.control_plane is not None
    assert found.cluster is None
    assert found.etcd is not None
    assert found.selected == {"controlplane", "cluster", "etcd"}
    await found.close()


def test_no_file_means_direct_and_imports_nothing() -> None:
    assert egress_selector("", None, LOG) is DIRECT
    script = (
        "import sys, apiserver_stub.process.build; "
        "print([m for m in sys.modules if m.startswith('apiserver_stub.webhooks.egress.')])"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output == "['apiserver_stub.webhooks.egress.selector']\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: EgressSelectorConfiguration\napiVersion: apiserver.k8s.io/v1\n", "apiVersion"),
        ("kind: TracingConfiguration\napiVersion: apiserver.k8s.io/v1beta1\n", "kind"),
        (
            "kind: EgressSelectorConfiguration\napiVersion: apiserver.k8s.io/v1beta1\negressSelections:\n- {nam: a}\n",
            "egressSelections[0]",
        ),
        ("- a", "holds no EgressSelectorConfiguration"),
    ],
)
def test_malformed_document_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "f").write_text(text)
    with pytest.raises(ConfigFileError, match="f") as caught:
        egress_selector(str(tmp_path / "f"), None, LOG)
    assert message in str(caught.value)


def test_invalid_certificate_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("nothing")
    tls = dict.fromkeys(("clientCert", "clientKey"), f"{tmp_path}/x")
    connection = over("HTTPConnect", tcp={"url": "https://a", "tlsConfig": tls})
    with pytest.raises(CannotStart, match=r"egress.yaml: .*client-certificate"):
        egress_selector(written(tmp_path, [{"name": "cluster", "connection": connection}]), None, LOG)
    tls["caBundle"] = f"{tmp_path}/x"
    with pytest.raises(CannotStart, match="certificate-authority"):
        egress_selector(written(tmp_path, [{"name": "cluster", "connection": connection}]), None, LOG)


def test_empty_list_is_valid() -> None:
    errors = ErrorList()
    judge((), errors)
    judge((EgressSelection(name="cluster"),), errors)
    assert [cause.field for cause in errors.causes] == ["service.connection.protocol"]
