"""Files of --admission-control-config-file: those that kube-apiserver 1.36 accepts (recorded), and the errors for
others.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.admission import AdmissionConfiguration, AdmissionParts, enabled
from apiserver_stub.common.config_file import ConfigDocument, ConfigFileError
from apiserver_stub.common.flags import FLAGS, AdmissionOptions
from controller_manager.common.options.parse import FlagError

RECORDED = [json.loads(line) for line in (Path(__file__).parent / "data" / "configuration.jsonl").open()]
STRICTER = {
    "doc/multi": "what comes behind a document would not be read",
    "doc/multi-second-bad": "the same",
    "doc/path-empty-file": "an empty file has no kind",
    "EventRateLimit/qps-whole-float": "a number with a fraction, if only of zero, is no count",
    **dict.fromkeys(
        [
            f"PodNodeSelector/{name}"
            for name in (
                "bad-selector", "bad-selector-op", "value-number", "list", "string", "inline-list", "inline-string",
                "path-not-yaml", "path-root-list", "path-empty", "path-multi",
            )
        ],
        "kube-apiserver goes on without what it cannot read, and refuses each pod with 500 for a selector that is none",
    ),
}  # fmt: skip
"""Files that kube-apiserver accepts and this server rejects, with the reason."""
PS = "{apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {enforce: X}}"


def start(parts: AdmissionParts, folder: Path, files: dict[str, str], flags: list[str]) -> None:
    """Create the plugins of a server with these files and flags."""
    for name, text in files.items():
        (folder / name).write_text(text.replace("@DIR@", str(folder)))
    options = FLAGS.parse([flag.replace("@DIR@", str(folder)) for flag in flags])
    wanted = options[AdmissionOptions]
    configuration = AdmissionConfiguration.read(wanted.admission_control_config_file, wanted.enabled)
    enabled(replace(parts, options=options, configuration=configuration))


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: row["id"])
def test_config_files_are_accepted_like_kube_apiserver(
    row: dict[str, Any], parts: AdmissionParts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if row["verdict"] == "accepted" and row["id"] not in STRICTER:
        start(parts, tmp_path, row["files"], row["flags"])
        return
    with pytest.raises((ValueError, FlagError), match=r"\S") as refusal:
        start(parts, tmp_path, row["files"], row["flags"])
    if row["files"] and "needs a configuration" not in str(refusal.value):
        assert str(tmp_path) in str(refusal.value)


@pytest.mark.parametrize(
    ("plugins", "message"),
    [
        ("[{name: PodSecurity, path: b.yaml}]", "a.yaml: plugins[0].path: {}/b.yaml can't be read: No such file"),
        ("[{}, {name: PodSecurity, configuration: {a: 1}}]", "a.yaml: plugins[1].configuration.kind: must be PodSec"),
        ("[{name: PodSecurity, configuration: []}]", "a.yaml: plugins[0].configuration holds no PodSecurityConfig"),
        (f"[{{name: PodSecurity, configuration: {PS}}}]", 'plugins[0].configuration.defaults.enforce: Invalid value'),
        ("[{name: 1}]", "a.yaml: plugins[0].name: "),
        ("[{names: a}]", "a.yaml: plugins[0]: Object contains unknown field"),
    ],
)  # fmt: skip
def test_config_errors_name_file_and_field(plugins: str, message: str, parts: AdmissionParts, tmp_path: Path) -> None:
    head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"
    with pytest.raises(ConfigFileError) as refusal:
        start(
            parts, tmp_path, {"a.yaml": f"{head}plugins: {plugins}"}, ["--admission-control-config-file=@DIR@/a.yaml"]
        )
    assert message.format(tmp_path) in str(refusal.value)


class Lenient(ConfigDocument, forbid_unknown_fields=False):
    """A document that allows unknown fields."""

    api_version: str = "v"
    kind: str = "Lenient"
    limit_of_all: int = 0


@pytest.mark.parametrize(
    ("form", "text", "limit"),
    [
        ({"v": Lenient}, "{apiVersion: v, kind: Lenient, limitOfAll: 1, more: 2}", 1),
        ({"v": Lenient}, "{apiVersion: v, kind: Lenient, LimitOfAll: 1}", 0),
        ({"": Lenient}, "{LIMITOFALL: 1}", 1),
        ({"": Lenient}, "{limitOfAll: null}", 0),
    ],
)
def test_plugin_configuration_is_decoded_as_type(
    form: dict[str, type[Lenient]], text: str, limit: int, tmp_path: Path
) -> None:
    head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"
    (tmp_path / "a.yaml").write_text(f"{head}plugins: [{{name: P, configuration: {text}}}, {{name: Q}}]")
    configuration = AdmissionConfiguration.read(str(tmp_path / "a.yaml"), {"P", "Q"})
    found = configuration.document("P", form)
    assert found is not None
    assert found.limit_of_all == limit
    assert configuration.document("Q", form) is None


def test_deprecated_flag_lists_all_plugins(parts: AdmissionParts) -> None:
    def names(*flags: str) -> list[str]:
        return [plugin.name for plugin in enabled(replace(parts, options=FLAGS.parse(flags))) if plugin.name]

    assert names("--admission-control=PodSecurity,Priority") == ["PodSecurity", "Priority"]
    assert names("--admission-control=Priority", "--admission-control=PodSecurity") == ["PodSecurity", "Priority"]
    assert names("--admission-control=") == []
    with pytest.raises(FlagError, match="--admission-control names all plugins"):
        FLAGS.parse(["--admission-control=Priority", "--enable-admission-plugins=Priority"])
    with pytest.raises(FlagError, match="there is no admission plugin 'Nonsense'"):
        FLAGS.parse(["--admission-control=Nonsense"])
