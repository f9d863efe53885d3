"""The form of kubeconfig files, and reading several of them as one; what they mean is `kubeconfig`'s business."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from controller_manager.api.model import Model
from controller_manager.base.plain_yaml import NotPlain, read_yaml
from controller_manager.transport.transport import ConfigError

T = TypeVar("T")


class Cluster(Model, rename="kebab"):
    """`clusters[].cluster`."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


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


class User(Model, rename="kebab"):
    """`users[].user`."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    exec: Exec | None = None
    username: str = ""
    auth_provider: Mapping[str, Any] | None = None


class Context(Model):
    """`contexts[].context`."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(Model):
    name: str
    cluster: Cluster = Cluster()


class _NamedUser(Model):
    name: str
    user: User = User()


class _NamedContext(Model):
    name: str
    context: Context = Context()


class _File(Model, rename="kebab"):
    current_context: str = ""
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """An entry and the file it stands in, against whose folder its paths are read."""

    value: T
    file: Path
    field: str

    def error(self, field: str, problem: str) -> ConfigError:
        """Return what is wrong with one field of the entry."""
        return ConfigError(f"{self.file}: {self.field}.{field} {problem}")


@dataclass(frozen=True, slots=True)
class Merged:
    """Several files as one: of entries with the same name the first one counts."""

    current_context: str
    clusters: Mapping[str, Found[Cluster]]
    users: Mapping[str, Found[User]]
    contexts: Mapping[str, Found[Context]]


def read(paths: Sequence[Path]) -> Merged:
    """Read and merge; raises `ConfigError` naming the file and the field."""
    current = ""
    clusters: dict[str, Found[Cluster]] = {}
    users: dict[str, Found[User]] = {}
    contexts: dict[str, Found[Context]] = {}
    for path in paths:
        file = _parse(path)
        current = current or file.current_context
        for cluster in file.clusters:
            clusters.setdefault(cluster.name, Found(cluster.cluster, path, f"clusters[{cluster.name}].cluster"))
        for user in file.users:
            users.setdefault(user.name, Found(user.user, path, f"users[{user.name}].user"))
        for context in file.contexts:
            contexts.setdefault(context.name, Found(context.context, path, f"contexts[{context.name}].context"))
    return Merged(current, clusters, users, contexts)


def _parse(path: Path) -> _File:
    try:
        return msgspec.convert(_without_nulls(read_yaml(path.read_bytes()) or {}), _File)
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error
    except NotPlain as error:
        raise ConfigError(f"{path} is no YAML: {error}") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path} is no kubeconfig: {error}") from None


def _without_nulls(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _without_nulls(value) for key, value in tree.items() if value is not None}
    return [_without_nulls(item) for item in tree] if isinstance(tree, list) else tree
