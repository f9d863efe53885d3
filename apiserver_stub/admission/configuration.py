"""Reads the file of `--admission-control-config-file` (AdmissionConfiguration): one document per configured plugin.

| entry of the plugin                   | its document                                                        |
|---------------------------------------|---------------------------------------------------------------------|
| none, or only its name                | none                                                                |
| `configuration`                       | that value; `path` is ignored                                       |
| `path`                                | that file, relative to the folder of this file                      |
| the same name more than once          | that of the first entry                                             |
| (`imagePolicy`, or                    | the file itself, for the two plugins whose own format is older than |
| `podNodeSelectorPluginConfig` in it)  | AdmissionConfiguration                                              |

Entries of disabled and unknown plugins are ignored.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar

import msgspec

from apiserver_stub.common.config_file import (
    ConfigDocument,
    ConfigFileError,
    ConfigModel,
    convert_tree,
    in_case,
    parse_tree,
    read_bytes,
    refuse_causes,
)
from apiserver_stub.common.error_list import ErrorList
from controller_manager.common.api.platform import GROUP_DOMAIN

T = TypeVar("T", bound=msgspec.Struct)

KIND = "AdmissionConfiguration"
V1 = f"apiserver.config.{GROUP_DOMAIN}/v1"
API_VERSIONS = (V1, f"apiserver.{GROUP_DOMAIN}/v1alpha1")
_ITSELF = {"imagePolicy", "podNodeSelectorPluginConfig"}
_OLDEST = ("ImagePolicyWebhook", "PodNodeSelector")
ANY_VERSION = ""
"""Stands for the API version of a document without one. Its field names match in any case, as in Go."""


class PluginConfiguration(ConfigModel):
    """The entry of one plugin."""

    name: str = ""
    path: str = ""
    configuration: Any = None


class AdmissionConfigurationFile(ConfigDocument):
    """The whole file."""

    kind: str = KIND
    plugins: tuple[PluginConfiguration | None, ...] = ()


class PolicyConfiguration(ConfigDocument):
    """The document of a policy plugin. The feature of policies in files is off by default and not implemented."""

    static_manifests_dir: str = ""


def no_manifests(configuration: PolicyConfiguration) -> ErrorList:
    """Return that policies in files are wanted, if they are."""
    errors = ErrorList()
    if configuration.static_manifests_dir:
        errors.forbidden((None, "staticManifestsDir"), "needs the feature ManifestBasedAdmissionControlConfig")
    return errors


@dataclass(frozen=True, slots=True)
class _Source:
    """The location of a plugin's document: a file, and the field `within` it, if it is not the whole file."""

    path: Path
    within: str
    tree: Any = None
    data: bytes = b""

    def read(self, types: Mapping[str, type[T]]) -> T:
        """Return the document as the type for its version."""
        tree = self.tree
        if not self.within:
            is_strict = all(form.__struct_config__.forbid_unknown_fields for form in types.values())
            tree = parse_tree(self.data, self.path, unique_keys=is_strict)
        form = types.get(ANY_VERSION)
        if form is not None:
            tree = in_case(tree, form)
        else:
            form = self._form(tree, types)
        return convert_tree(tree, form, str(self.path), self.within)

    def _form(self, tree: Any, types: Mapping[str, type[T]]) -> type[T]:
        kinds = {version: _kind(form) for version, form in types.items()}
        names = dict.fromkeys(kinds.values())
        if not isinstance(tree, dict):
            raise ConfigFileError(f"{self.path}: {self.within or 'the file'} holds no {' or '.join(names)}")
        kind, version = tree.get("kind"), tree.get("apiVersion")
        if kind not in names:
            raise self._wrong("kind", names)
        if not isinstance(version, str) or kinds.get(version) != kind:
            raise self._wrong("apiVersion", [one for one in kinds if kinds[one] == kind])
        return types[version]

    def _wrong(self, field: str, allowed: Collection[str]) -> ConfigFileError:
        at = f"{self.within}.{field}" if self.within else field
        return ConfigFileError(f"{self.path}: {at}: must be {' or '.join(allowed)}")


class AdmissionConfiguration:
    """The documents of plugins, each read when its plugin is made."""

    def __init__(self, sources: Mapping[str, _Source] = MappingProxyType({})) -> None:
        self._sources = sources

    @classmethod
    def read(cls, file: str, enabled: Collection[str]) -> Self:
        """Return the configuration of the `enabled` plugins; empty without a file. Raises `ConfigFileError`."""
        if not file:
            return cls()
        path = Path(file)
        data = read_bytes(path)
        tree = parse_tree(data, path)
        if _is_oldest(tree):
            return cls({name: _Source(path, "", data=data) for name in _OLDEST if name in enabled})
        whole = _Source(path, "", data=data).read(dict.fromkeys(API_VERSIONS, AdmissionConfigurationFile))
        sources: dict[str, _Source] = {}
        for index, plugin in enumerate(whole.plugins):
            if plugin is not None and plugin.name in enabled and plugin.name not in sources:
                sources[plugin.name] = _source(plugin, path, f"plugins[{index}]")
        return cls({name: source for name, source in sources.items() if source is not _NOTHING})

    def document(
        self, plugin: str, types: Mapping[str, type[T]], check: Callable[[T], ErrorList] | None = None
    ) -> T | None:
        """Return the document of a plugin; None if there is none.

        `types` maps API versions (or `ANY_VERSION`) to types; the `kind` of a type is the default of that field. A type
        that allows unknown fields ignores them. `check` returns validation errors. Raises `ConfigFileError`, which
        names file and field.
        """
        source = self._sources.get(plugin)
        if source is None:
            return None
        found = source.read(types)
        if check is not None:
            refuse_causes(source.path, check(found).causes, source.within)
        return found

    def place(self, plugin: str, field: str) -> str:
        """Return how errors call a field of the document of a plugin, which has one: with the file."""
        source = self._sources[plugin]
        return f"{source.path}: {source.within}.{field}" if source.within else f"{source.path}: {field}"


_NOTHING = _Source(Path(), "")


def _source(plugin: PluginConfiguration, file: Path, at: str) -> _Source:
    if plugin.configuration is not None:
        return _Source(file, f"{at}.configuration", plugin.configuration)
    if not plugin.path:
        return _NOTHING
    path = file.parent / plugin.path
    try:
        return _Source(path, "", data=read_bytes(path))
    except ConfigFileError as error:
        raise ConfigFileError(f"{file}: {at}.path: {error}") from None


def _is_oldest(tree: Any) -> bool:
    """Return whether a file is one of those that are older than their kind."""
    return isinstance(tree, dict) and tree.get("kind") != KIND and not _ITSELF.isdisjoint(tree)


def _kind(form: type[msgspec.Struct]) -> str:
    """Return the kind of a document type: the default of that field."""
    field = next(field for field in msgspec.structs.fields(form) if field.name == "kind")
    made = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return str(made)
