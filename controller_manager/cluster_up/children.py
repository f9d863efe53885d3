"""The child processes of a cluster and their command lines."""

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from controller_manager.cluster_up.options import Arguments, ClusterOptions
from controller_manager.common.base.tethered import LOADED

API_SERVER = "apiserver"
_MANAGER_PARTS = "controller_manager.app.loaded"
_CHOOSING = ("--enable-admission-plugins", "--disable-admission-plugins", "--admission-control=")


class Child(msgspec.Struct, frozen=True):
    """A process of the cluster, with the port of its readiness probe."""

    name: str
    command: tuple[str, ...]
    port: int
    log: Path


def children_of(options: ClusterOptions, folder: Path) -> Iterator[Child]:
    """Yield the API server, then the managers. All store their files in the folder."""
    yield _child(API_SERVER, options.api_port, folder, ("apiserver_stub", *_server_arguments(options, folder)))
    for number in range(options.managers):
        name, port = f"manager-{number}", options.manager_port + number
        program = (f"{LOADED}{_MANAGER_PARTS}", "controller_manager")
        given = _manager_arguments(options, folder, name, port)
        yield _child(name, port, folder, (*program, *given, *options.manager_arg))


def pod_runners(options: ClusterOptions) -> Arguments:
    """Return the manager flags that make pods run; empty if the user has set `--controllers`."""
    if any(argument.startswith("--controllers") for argument in options.manager_arg):
        return ()
    # Needed even with 0 nodes, to delete nodes of an earlier start.
    names = ("scheduler",) * options.scheduler + ("virtual-node-controller",)
    return (f"--controllers=*,{','.join(names)}", f"--virtual-nodes={options.nodes}")


def _child(name: str, port: int, folder: Path, arguments: Arguments) -> Child:
    command = (sys.executable, "-m", "controller_manager.common.base.tethered", *arguments)
    return Child(name, command, port, folder / f"{name}.log")


def _server_arguments(options: ClusterOptions, folder: Path) -> Arguments:
    decided = any(argument.startswith("--authorization-") for argument in options.apiserver_arg)
    chosen = any(argument.startswith(_CHOOSING) for argument in options.apiserver_arg)
    # Without managers there are no default service accounts, so pods must not require one.
    plugins = "NodeRestriction,ServiceAccount" if options.managers else "NodeRestriction"
    return (
        f"--data-dir={folder}",
        f"--secure-port={options.api_port}",
        "--bind-address=127.0.0.1",
        *((f"--workers={options.api_workers}",) if options.api_workers > 1 else ()),
        *(() if decided else ("--authorization-mode=Node,RBAC",)),
        *(() if chosen else (f"--enable-admission-plugins={plugins}",)),
        *options.apiserver_arg,
    )


def _manager_arguments(options: ClusterOptions, folder: Path, name: str, port: int) -> Arguments:
    kubeconfig = folder / f"{name}.kubeconfig"
    return (
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--cert-dir={folder / name}",
        f"--client-ca-file={folder / 'client-ca.crt'}",
        f"--root-ca-file={folder / 'ca.crt'}",
        f"--service-account-private-key-file={folder / 'sa.key'}",
        "--use-service-account-credentials=true",
        "--kube-api-qps=-1",  # no other clients need protection, and the API server rejects overload
        "--adaptive-api-throttling",
        "--kube-api-content-type=application/json",  # protobuf costs more CPU on both sides
        *_signing_arguments(folder, options.manager_arg),
        *pod_runners(options),
    )


def _signing_arguments(folder: Path, more: Arguments) -> Arguments:
    """Return the signer flags, unless the user has set others.

    Each signer uses the authority that verifies its certificates: the API server trusts only `client-ca` for clients.
    """
    if any(argument.startswith("--cluster-signing-") and "-file" in argument for argument in more):
        return ()
    signers = {
        "kube-apiserver-client": "client-ca",
        "kubelet-client": "client-ca",
        "kubelet-serving": "signing-ca",
        "legacy-unknown": "signing-ca",
    }
    return tuple(
        f"--cluster-signing-{signer}-{kind}-file={folder / authority}.{suffix}"
        for signer, authority in signers.items()
        for kind, suffix in (("cert", "crt"), ("key", "key"))
    )
