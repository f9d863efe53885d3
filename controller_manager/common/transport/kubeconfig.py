"""Client configuration from kubeconfig files (several are merged), from flags, or from the pod that the process runs
in.
"""

import base64
import binascii
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import inspect

from controller_manager.common.api.model import Model
from controller_manager.common.base.log import get_logger
from controller_manager.common.transport.config import ClientConfig, ClientIdentity, ExecPlugin, Impersonation
from controller_manager.common.transport.transport import ConfigError

T = TypeVar("T")


class NamedExtension(Model):
    """`extensions[]`; only the one for exec plugins is used."""

    name: str
    extension: Any = None


class ClusterEntry(Model, rename="kebab"):
    """`clusters[].cluster`. `disable-compression` has no effect, since we never request compression."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    disable_compression: bool = False
    extensions: tuple[NamedExtension, ...] = ()


class ExecEnv(Model):
    """`users[].user.exec.env[]`."""

    name: str
    value: str = ""


class Exec(Model):
    """`users[].user.exec`."""

    command: str
    api_version: str
    args: tuple[str, ...] = ()
    env: tuple[ExecEnv, ...] = ()
    interactive_mode: str = "IfAvailable"
    provide_cluster_info: bool = False
    install_hint: str = ""


class UserEntry(Model, rename="kebab"):
    """`users[].user`."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    impersonate: str = msgspec.field(default="", name="as")
    impersonate_uid: str = msgspec.field(default="", name="as-uid")
    impersonate_groups: tuple[str, ...] = msgspec.field(default=(), name="as-groups")
    impersonate_extra: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict, name="as-user-extra")
    exec: Exec | None = None
    username: str = ""
    password: str = ""
    auth_provider: Mapping[str, Any] | None = None
    extensions: tuple[NamedExtension, ...] = ()


class ContextEntry(Model):
    """`contexts[].context`."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""
    extensions: tuple[NamedExtension, ...] = ()


class _NamedCluster(Model):
    name: str
    cluster: ClusterEntry = ClusterEntry()


class _NamedUser(Model):
    name: str
    user: UserEntry = UserEntry()


class _NamedContext(Model):
    name: str
    context: ContextEntry = ContextEntry()


class _File(Model, rename="kebab"):
    kind: str = "Config"
    api_version: str = msgspec.field(default="v1", name="apiVersion")
    preferences: Mapping[str, Any] = msgspec.field(default_factory=dict)
    extensions: tuple[NamedExtension, ...] = ()
    current_context: str = ""
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()


class Located(msgspec.Struct, Generic[T], frozen=True):
    """An entry and its file; paths in the entry are relative to the file's folder."""

    value: T
    file: Path
    field: str

    def error(self, field: str, problem: str) -> ConfigError:
        """Return an error about a field of the entry."""
        return ConfigError(f"{self.file}: {self.field}.{field} {problem}")


class Merged(msgspec.Struct, frozen=True):
    """Merged files: of entries with the same name, the first one is used."""

    current_context: str
    clusters: Mapping[str, Located[ClusterEntry]]
    users: Mapping[str, Located[UserEntry]]
    contexts: Mapping[str, Located[ContextEntry]]


def read(paths: Sequence[Path]) -> Merged:
    """Read and merge files. Raises `ConfigError` naming the file and the field."""
    current = ""
    clusters: dict[str, Located[ClusterEntry]] = {}
    users: dict[str, Located[UserEntry]] = {}
    contexts: dict[str, Located[ContextEntry]] = {}
    for path in paths:
        file = _parse(path)
        current = current or file.current_context
        for cluster in file.clusters:
            clusters.setdefault(cluster.name, Located(cluster.cluster, path, f"clusters[{cluster.name}].cluster"))
        for user in file.users:
            users.setdefault(user.name, Located(user.user, path, f"users[{user.name}].user"))
        for context in file.contexts:
            contexts.setdefault(context.name, Located(context.context, path, f"contexts[{context.name}].context"))
    return Merged(current, clusters, users, contexts)


def _parse(path: Path) -> _File:
    from controller_manager.common.base.plain_yaml import (  # for which --help has no use
        NotPlain,
        read_yaml,
        without_nulls,
    )

    try:
        tree = without_nulls(read_yaml(path.read_bytes()) or {})
        file = msgspec.convert(tree, _File)
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error
    except NotPlain as error:
        raise ConfigError(f"{path} is no YAML: {error}") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path} is no kubeconfig: {error}") from None
    if (file.kind, file.api_version) != ("Config", "v1"):
        raise ConfigError(f"{path} is no kubeconfig: kind and apiVersion are not Config and v1")
    for field, entries in (("clusters", file.clusters), ("users", file.users), ("contexts", file.contexts)):
        names = [entry.name for entry in entries]
        if len(set(names)) < len(names):
            raise ConfigError(f"{path}: {field} holds several entries of one name")
    if unknown := list(_unknown_fields(tree, inspect.type_info(_File), "")):
        get_logger("kubeconfig").warning("ignoring unknown fields of a kubeconfig", file=str(path), fields=unknown)
    return file


def _unknown_fields(value: object, of: inspect.Type, path: str) -> Iterator[str]:
    """Yield the paths of fields in a converted tree that the type does not have."""
    match value, of:
        case dict(), inspect.StructType():
            known = {field.encode_name: field.type for field in of.fields}
            for name, member in value.items():
                at = f"{path}.{name}" if path else str(name)
                if name in known:
                    yield from _unknown_fields(member, known[name], at)
                else:
                    yield at
        case list(), inspect.VarTupleType():
            for index, item in enumerate(value):
                yield from _unknown_fields(item, of.item_type, f"{path}[{index}]")
        case _, inspect.UnionType():
            for member_type in of.types:
                yield from _unknown_fields(value, member_type, path)


SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"
_PROXIES = ("http", "https")
_PLUGIN_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


def from_flags(path: str, master: str = "", *, environ: Mapping[str, str] = os.environ) -> ClientConfig:
    """Return the configuration of `--clusterconfig` and `--master`. If both are empty, return the current context of
    the files in `$KUBECONFIG`, or without that variable the pod's service account. Raises `ConfigError`.
    """
    if path:
        return load(path, master=master)
    if master:
        return ClientConfig(server=_server(master, "--master", secure=False))
    return load(environ=environ) if environ.get("KUBECONFIG") else in_cluster(environ)


def load(
    path: str | Path | None = None,
    *,
    context: str = "",
    master: str = "",
    environ: Mapping[str, str] = os.environ,
) -> ClientConfig:
    """Return the configuration of a context, from a file, or else from `$KUBECONFIG` or `~/.kube/config`.

    `master` replaces the server. Raises `ConfigError` naming the file and the field.
    """
    files = [Path(path)] if path else _usual_files(environ)
    merged = read(files)
    listed = ", ".join(map(str, files))
    name = context or merged.current_context
    if not name and len(merged.clusters) == 1 and not merged.contexts:
        chosen = Located(ContextEntry(cluster=next(iter(merged.clusters))), files[0], "contexts[]")
    elif name in merged.contexts:
        chosen = merged.contexts[name]
    else:
        raise ConfigError(f"{listed}: " + (f"there is no context {name!r}" if name else "current-context is not set"))
    cluster = merged.clusters.get(chosen.value.cluster)
    if cluster is None:
        raise chosen.error("cluster", f"names no cluster: {chosen.value.cluster!r}")
    user = merged.users.get(chosen.value.user) if chosen.value.user else None
    if user is None and chosen.value.user:
        raise chosen.error("user", f"names no user: {chosen.value.user!r}")
    identity = _identity(user) if user else ClientIdentity()
    return _config(cluster, identity, chosen.value.namespace, master)


def identities(path: Path) -> tuple[Mapping[str, ClientIdentity], str]:
    """Return the users of a file by name, and the name of the current context's user (empty without one). Raises
    `ConfigError` naming the file and the field.
    """
    merged = read([path])
    context = merged.contexts.get(merged.current_context)
    return {name: _identity(user) for name, user in merged.users.items()}, context.value.user if context else ""


def in_cluster(environ: Mapping[str, str] = os.environ, root: Path = SERVICE_ACCOUNT) -> ClientConfig:
    """Return the configuration of a pod; its token and CA file are reloaded at least once a minute."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ConfigError(
            "no client configuration is given: pass --kubeconfig or set KUBECONFIG; KUBERNETES_SERVICE_HOST and "
            "KUBERNETES_SERVICE_PORT of a pod are not set either"
        )
    token, authority, namespace = root / "token", root / "ca.crt", root / "namespace"
    if not token.is_file():
        raise ConfigError(f"{token} can't be read: there is no such file")
    return ClientConfig(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        ca=authority.read_bytes() if authority.is_file() else b"",
        ca_file=str(authority) if authority.is_file() else "",
        namespace=namespace.read_text().strip() if namespace.is_file() else "",
        identity=ClientIdentity(token_file=str(token)),
    )


def _usual_files(environ: Mapping[str, str]) -> list[Path]:
    listed = [Path(name) for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    usual = listed or [Path(environ.get("HOME", "/"), ".kube", "config")]
    found = [path for path in usual if path.exists()]
    if not found:
        raise ConfigError(f"there is no client configuration: {', '.join(map(str, usual))} do not exist")
    return found


def _config(found: Located[ClusterEntry], identity: ClientIdentity, namespace: str, master: str) -> ClientConfig:
    cluster = found.value
    authority = _data(found, "certificate-authority-data", cluster.certificate_authority_data)
    authority_file = "" if authority else _path(found, cluster.certificate_authority)
    if authority_file:
        authority = _file(found, "certificate-authority", authority_file)
    if authority and cluster.insecure_skip_tls_verify:
        raise found.error("insecure-skip-tls-verify", "contradicts certificate-authority")
    if cluster.proxy_url and urlsplit(cluster.proxy_url).scheme not in _PROXIES:
        raise found.error("proxy-url", "is not a http or https URL; other proxies are not supported")
    if identity.plugin is not None:
        identity = replace(identity, plugin=replace(identity.plugin, cluster_info=_cluster_info(cluster)))
    shows_certificate = bool(identity.certificate or identity.certificate_file)
    secure = bool(authority or cluster.insecure_skip_tls_verify or shows_certificate)
    where = "--master" if master else f"{found.file}: {found.field}.server"
    return ClientConfig(
        server=_server(master or cluster.server, where, secure=secure),
        ca=authority,
        ca_file=authority_file,
        insecure=cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name,
        proxy_url=cluster.proxy_url,
        namespace=namespace,
        identity=identity,
    )


def _cluster_info(cluster: ClusterEntry) -> Mapping[str, Any]:
    """Return the fields of a cluster that exec plugins get in addition to those of `ClientConfig`."""
    fields: dict[str, Any] = {"disable-compression": True} if cluster.disable_compression else {}
    config = next((each.extension for each in cluster.extensions if each.name == _EXEC_EXTENSION), None)
    return fields if config is None else {**fields, "config": config}


def _server(text: str, where: str, *, secure: bool) -> str:
    server = text if "://" in text else f"{'https' if secure else 'http'}://{text}"
    url = urlsplit(server)
    try:
        usable = url.scheme in ("http", "https") and bool(url.hostname) and (url.port or 1) > 0 and not url.username
    except ValueError:
        usable = False
    if not text or not usable:
        raise ConfigError(f"{where} is not the http or https URL of a server")
    return server


def _identity(found: Located[UserEntry]) -> ClientIdentity:
    user = found.value
    for field, value in (("username", user.username), ("password", user.password)):
        if value:
            raise found.error(field, "asks for basic authentication, which is not supported")
    if user.auth_provider is not None:
        raise found.error("auth-provider", "is not supported; an exec plugin does the same")
    if not user.token.isprintable():
        raise found.error("token", "does not hold one line of text")
    identity = ClientIdentity(
        token=user.token,
        token_file=_path(found, user.token_file),
        certificate=_data(found, "client-certificate-data", user.client_certificate_data),
        certificate_file="" if user.client_certificate_data else _path(found, user.client_certificate),
        key=_data(found, "client-key-data", user.client_key_data),
        key_file="" if user.client_key_data else _path(found, user.client_key),
        plugin=_plugin(found, user.exec) if user.exec else None,
        impersonation=_impersonation(found),
    )
    if bool(identity.certificate or identity.certificate_file) != bool(identity.key or identity.key_file):
        raise found.error("client-certificate", "and client-key must be given together")
    return replace(identity, plugin=None) if identity.token or identity.token_file else identity


def _impersonation(found: Located[UserEntry]) -> Impersonation | None:
    user = found.value
    rest = {
        "as-uid": bool(user.impersonate_uid),
        "as-groups": bool(user.impersonate_groups),
        "as-user-extra": bool(user.impersonate_extra),
    }
    if not user.impersonate:
        for field, given in rest.items():
            if given:
                raise found.error(field, "needs a user to act as, in the field as")
        return None
    asked = Impersonation(
        user.impersonate, user.impersonate_uid, user.impersonate_groups, tuple(user.impersonate_extra.items())
    )
    if any(_CONTROL.search(value) for _, value in asked.headers()):
        raise found.error("as", "and the fields that belong to it must not hold control characters")
    return asked


def _plugin(found: Located[UserEntry], plugin: Exec) -> ExecPlugin:
    if plugin.api_version not in _PLUGIN_VERSIONS:
        raise found.error("exec.apiVersion", f"is not one of {', '.join(_PLUGIN_VERSIONS)}")
    if plugin.interactive_mode not in ("Never", "IfAvailable"):
        raise found.error("exec.interactiveMode", "is neither Never nor IfAvailable, and there is no terminal here")
    # A command with a slash is a path relative to the file; others are looked up in $PATH.
    command = _path(found, plugin.command) if os.sep in plugin.command else plugin.command
    return ExecPlugin(
        command=command,
        args=plugin.args,
        env=tuple((variable.name, variable.value) for variable in plugin.env),
        api_version=plugin.api_version,
        interactive_mode=plugin.interactive_mode,
        provide_cluster_info=plugin.provide_cluster_info,
        install_hint=plugin.install_hint,
    )


def _path(found: Located[ClusterEntry] | Located[UserEntry], text: str) -> str:
    return str(found.file.parent.absolute() / text) if text else ""


def _file(found: Located[ClusterEntry], field: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise found.error(field, f"{path} can't be read: {error.strerror}") from error


def _data(found: Located[ClusterEntry] | Located[UserEntry], field: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise found.error(field, "is not base64") from None
