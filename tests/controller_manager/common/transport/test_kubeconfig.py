"""Client configuration from kubeconfigs, flags and pods; errors contain no secrets."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from controller_manager.common.transport.config import ClientIdentity, ExecPlugin
from controller_manager.common.transport.kubeconfig import from_flags, in_cluster, load
from controller_manager.common.transport.transport import ConfigError


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def document(cluster: Any = None, user: Any = None, name: str = "main", **context: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "preferences": {},
        "clusters": [{"name": name, "cluster": cluster or {"server": "https://one.example:6443"}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, **context}}],
    }


def write(path: Path, tree: Any) -> Path:
    path.write_text(tree if isinstance(tree, str) else yaml.safe_dump(tree))
    return path


def test_all_kubeconfig_fields_are_read(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("CA")
    cluster = {
        "server": "https://one.example:6443/base",
        "certificate-authority": "ca.crt",
        "tls-server-name": "inside.example",
        "proxy-url": "http://proxy.example",
    }
    user = {"client-certificate-data": b64("C"), "client-key": "keys/k.pem", "token": None}
    found = load(write(tmp_path / "config", document(cluster, user, namespace="ns")))
    assert (found.server, found.ca, found.tls_server_name) == ("https://one.example:6443/base", b"CA", "inside.example")
    assert (found.proxy_url, found.namespace, found.insecure) == ("http://proxy.example", "ns", False)
    assert found.identity == ClientIdentity(certificate=b"C", key_file=str(tmp_path / "keys/k.pem"))


def test_data_precedes_files_and_master_precedes_server(tmp_path: Path) -> None:
    cluster = {"server": "https://x", "certificate-authority": "missing", "certificate-authority-data": b64("CA")}
    found = load(write(tmp_path / "config", document(cluster, {"tokenFile": "token"})), master="https://other:1")
    assert (found.ca, found.server) == (b"CA", "https://other:1")
    assert found.identity == ClientIdentity(token_file=str(tmp_path / "token"))


def test_exec_plugin_is_read(tmp_path: Path) -> None:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./get-token",
        "args": ["-x"],
        "env": [{"name": "A", "value": "b"}],
        "interactiveMode": "Never",
        "provideClusterInfo": True,
        "installHint": "get it",
    }
    found = load(write(tmp_path / "config", document(user={"exec": plugin}))).identity.plugin
    assert found == ExecPlugin(
        command=str(tmp_path / "get-token"),
        args=("-x",),
        env=(("A", "b"),),
        interactive_mode="Never",
        provide_cluster_info=True,
        install_hint="get it",
    )
    plain = {"apiVersion": "client.authentication.k8s.io/v1", "command": "get-token", "args": None}
    found = load(write(tmp_path / "config", document(user={"exec": plain}))).identity.plugin
    assert found == ExecPlugin(command="get-token")


def test_first_of_several_kubeconfigs_wins_missing_are_skipped(tmp_path: Path) -> None:
    write(tmp_path / "one", document({"server": "https://one"}))
    two = document({"server": "https://two"})
    two["clusters"].append({"name": "other", "cluster": {"server": "https://three"}})
    two["contexts"].append({"name": "other", "context": {"cluster": "other"}})
    write(tmp_path / "two", two)
    environ = {"KUBECONFIG": f"{tmp_path}/none:{tmp_path}/one::{tmp_path}/two"}
    assert load(environ=environ).server == "https://one"
    assert load(environ=environ, context="other").server == "https://three"


def test_default_path_is_the_home_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube" / "config", document())
    assert load(environ={"HOME": str(tmp_path)}).server == "https://one.example:6443"
    with pytest.raises(ConfigError, match=r"/nowhere/\.kube/config do not exist"):
        load(environ={"HOME": "/nowhere"})


BAD_EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "command": "x"}


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        ("a: [secret", "is no YAML: line 1"),
        ("\x00", "is no YAML"),
        ("clusters: &secret [*secret]", "is no YAML: it stands for more"),
        ("- a", "is no kubeconfig: Expected `object`"),
        ({"clusters": [{"name": 3}]}, r"Expected `str`, got `int` - at `\$\.clusters\[0\]\.name`"),
        ({}, "current-context is not set"),
        ({"current-context": "x"}, "there is no context 'x'"),
        (document({"server": "ftp://x"}), r"clusters\[main\]\.cluster\.server is not the http or https URL"),
        (document({"server": "https://x:port"}), "server is not"),
        (document({"server": "https://u:secret@x"}), "server is not"),
        (document({"certificate-authority-data": "%"}), "certificate-authority-data is not base64"),
        (document({"server": "https://x", "certificate-authority": "no.crt"}), "no.crt can't be read"),
        (
            document({"server": "https://x", "certificate-authority-data": b64("x"), "insecure-skip-tls-verify": True}),
            "insecure-skip-tls-verify contradicts",
        ),
        (document(cluster=None, user={"username": "a", "password": "secret"}), "basic authentication"),
        (document(user={"password": "secret"}), r"users\[main\]\.user\.password asks for basic authentication"),
        (document(user={"as-uid": "1"}), r"users\[main\]\.user\.as-uid needs a user to act as"),
        (document(user={"as-groups": ["a"]}), "as-groups needs a user to act as"),
        (document(user={"as-user-extra": {"a": ["b"]}}), "as-user-extra needs a user to act as"),
        (document(user={"as": "a\nb"}), "must not hold control characters"),
        (document(user={"as": "a", "as-user-extra": {"k": ["\r"]}}), "must not hold control characters"),
        (document({"server": "https://x", "proxy-url": "socks5://proxy"}), "proxy-url is not a http or https URL"),
        ({**document(), "kind": "Other"}, "kind and apiVersion are not Config and v1"),
        ({**document(), "users": [{"name": "a"}, {"name": "a"}]}, "users holds several entries of one name"),
        (document(user={"auth-provider": {"name": "gcp"}}), "auth-provider is not supported"),
        (document(user={"client-certificate-data": b64("secret")}), "client-key must be given together"),
        (document(user={"client-key-data": "secret!"}), "client-key-data is not base64"),
        (document(user={"token": ["secret"]}), r"got `array` - at `\$\.users\[0\]\.user\.token`"),
        (document(user={"token": "secret\n"}), r"users\[main\]\.user\.token does not hold one line"),
        (document(user={"exec": {**BAD_EXEC, "apiVersion": "v0"}}), "exec.apiVersion is not one of"),
        (document(user={"exec": {**BAD_EXEC, "interactiveMode": "Always"}}), "exec.interactiveMode"),
        ({**document(), "clusters": []}, r"contexts\[main\]\.context\.cluster names no cluster: 'main'"),
        ({**document(), "users": None}, r"contexts\[main\]\.context\.user names no user: 'main'"),
    ],
)
def test_malformed_kubeconfig_is_refused_with_file_and_field(tmp_path: Path, tree: Any, problem: str) -> None:
    path = write(tmp_path / "config", tree)
    with pytest.raises(ConfigError, match=problem) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_kubeconfig_as_fields_become_impersonation_headers(tmp_path: Path) -> None:
    user = {"token": "t", "as": "jane", "as-uid": "7", "as-groups": ["a,b", "c"], "as-user-extra": {"X/y": ["1", "2"]}}
    identity = load(write(tmp_path / "config", document(user=user))).identity
    assert identity.impersonate == (
        ("impersonate-user", "jane"),
        ("impersonate-uid", "7"),
        ("impersonate-group", "a,b"),
        ("impersonate-group", "c"),
        ("impersonate-extra-x%2fy", "1"),
        ("impersonate-extra-x%2fy", "2"),
    )


# Every field of clusters, users and contexts in client-go's clientcmd/api/v1, except refused ones.
CLUSTER_FIELDS = {
    "server": "https://x",
    "tls-server-name": "y",
    "insecure-skip-tls-verify": True,
    "certificate-authority": "",
    "certificate-authority-data": "",
    "proxy-url": "http://p",
    "disable-compression": True,
    "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"any": 1}}],
}
EXEC_FIELDS = {
    "command": "get-token",
    "args": [],
    "env": [{"name": "a", "value": "b"}],
    "apiVersion": "client.authentication.k8s.io/v1",
    "installHint": "",
    "provideClusterInfo": True,
    "interactiveMode": "Never",
}
USER_FIELDS = {
    **dict.fromkeys(("client-certificate", "client-key", "token", "tokenFile", "username", "password"), ""),
    **dict.fromkeys(("client-certificate-data", "client-key-data"), ""),
    "as": "jane",
    "as-uid": "",
    "as-groups": [],
    "as-user-extra": {},
    "auth-provider": None,
    "exec": EXEC_FIELDS,
    "extensions": [{"name": "a", "extension": {"any": 1}}],
}


def test_kubeconfig_with_every_documented_field_logs_no_warning(tmp_path: Path) -> None:
    tree = document(CLUSTER_FIELDS, USER_FIELDS, namespace="ns", extensions=[])
    with capture_logs() as lines:
        found = load(write(tmp_path / "config", {**tree, "preferences": {"colors": True}, "extensions": []}))
    assert lines == []
    assert found.identity.plugin is not None
    assert found.identity.plugin.cluster_info == {"disable-compression": True, "config": {"any": 1}}


def test_kubeconfig_with_unknown_fields_logs_their_paths(tmp_path: Path) -> None:
    tree = document(
        {"server": "https://x", "certificateAuthority": "secret"}, {"exec": {**BAD_EXEC, "stdin": "secret"}}
    )
    tree["contexts"][0]["context"]["users"] = "secret"
    with capture_logs() as lines:
        load(write(tmp_path / "config", {**tree, "clutsers": "secret"}))
    (line,) = lines
    assert line["log_level"] == "warning"
    assert sorted(line["fields"]) == [
        "clusters[0].cluster.certificateAuthority",
        "clutsers",
        "contexts[0].context.users",
        "users[0].user.exec.stdin",
    ]
    assert "secret" not in str(line)


def test_missing_kubeconfig_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="config can't be read: No such file"):
        load(tmp_path / "config")


def pod(root: Path) -> None:
    for name, text in (("token", "t"), ("ca.crt", "CA"), ("namespace", "kube-system\n")):
        (root / name).write_text(text)


def test_in_cluster_config_is_read(tmp_path: Path) -> None:
    pod(tmp_path)
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    found = in_cluster(environ, tmp_path)
    assert (found.server, found.ca, found.namespace) == ("https://10.0.0.1:443", b"CA", "kube-system")
    assert found.identity == ClientIdentity(token_file=str(tmp_path / "token"))
    six = {**environ, "KUBERNETES_SERVICE_HOST": "fd00::1"}
    assert in_cluster(six, tmp_path).server == "https://[fd00::1]:443"


def test_outside_a_pod_in_cluster_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="KUBERNETES_SERVICE_HOST"):
        in_cluster({}, tmp_path)
    with pytest.raises(ConfigError, match="token can't be read"):
        in_cluster({"KUBERNETES_SERVICE_HOST": "x", "KUBERNETES_SERVICE_PORT": "1"}, tmp_path)


def test_kubeconfig_and_master_flags_are_combined(tmp_path: Path) -> None:
    path = str(write(tmp_path / "config", document()))
    assert from_flags(path).server == "https://one.example:6443"
    assert from_flags(path, "other:8443").server == "http://other:8443"
    assert from_flags("", "127.0.0.1:8080").server == "http://127.0.0.1:8080"
    assert from_flags("", "https://x").identity == ClientIdentity()
    with pytest.raises(ConfigError, match="--master"):
        from_flags("", "https://")
    with pytest.raises(ConfigError, match="KUBERNETES_SERVICE_HOST"):
        from_flags("", environ={})


def test_without_flags_kubeconfig_variable_is_used(tmp_path: Path) -> None:
    one = str(write(tmp_path / "one", document({"server": "https://one"})))
    two = str(write(tmp_path / "two", document({"server": "https://two"})))
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    environ = {**pod, "KUBECONFIG": f"{tmp_path}/none:{one}:{two}"}
    assert from_flags("", environ=environ).server == "https://one"
    assert from_flags(two, environ=environ).server == "https://two"
    assert from_flags("", "https://other", environ=environ).server == "https://other"
    with pytest.raises(ConfigError, match="none do not exist"):
        from_flags("", environ={**pod, "KUBECONFIG": f"{tmp_path}/none"})
