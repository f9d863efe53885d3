"""Users and programs in one cluster with kubectl and helm: authentication, permissions and impersonation."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.e2e.conftest import SHORT_LIVED, ClusterUp, running
from tests.e2e.test_cluster_up import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.needs("kubectl")]

HERE = Path(__file__).parent
PEOPLE = """\
joe-token,joe,uid-joe,"dev,ops"
deputy-token,deputy,uid-deputy
caretaker-token,caretaker,uid-caretaker
helmsman-token,helmsman,uid-helmsman
"""
SUPPORT = "example.org/support"
POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  userGroups: [system:serviceaccounts, system:nodes]
- level: Metadata
  resources: [{group: "", resources: [secrets]}]
- level: Request
  verbs: [create]
  namespaces: [watched]
- level: Metadata
  namespaces: [watched]
"""


class Person:
    """A user of kubectl with their own credentials."""

    def __init__(self, file: Path, cluster: ClusterUp, **user: Any) -> None:
        authority = str(cluster.folder / "ca.crt")
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": cluster.url, "certificate-authority": authority}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        self.kubeconfig = file
        file.write_text(yaml.safe_dump(config))

    def ask(self, *words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        command = (os.environ.get("KUBECTL", "kubectl"), f"--kubeconfig={self.kubeconfig}", *words)
        environment = {**os.environ, **SHORT_LIVED}
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, timeout=60, env=environment
        )

    def kubectl(self, *words: str, stdin: str = "") -> str:
        """The output of kubectl, which must succeed."""
        done = self.ask(*words, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout.strip()

    def error(self, *words: str, stdin: str = "") -> str:
        """The error of kubectl, which must fail."""
        done = self.ask(*words, stdin=stdin)
        assert done.returncode == 1, f"kubectl {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stderr.strip()

    def whoami(self, *words: str) -> dict[str, Any]:
        """The user that the server sees, without the credential id."""
        user: dict[str, Any] = json.loads(self.kubectl("auth", "whoami", "-o", "json", *words))["status"]["userInfo"]
        user.get("extra", {}).pop("authentication.kubernetes.io/credential-id", None)
        return {key: value for key, value in user.items() if value}

    def can_i(self, *words: str) -> bool:
        return self.ask("auth", "can-i", *words).stdout.strip() == "yes"


class People:
    """The users of one cluster."""

    def __init__(self, cluster: ClusterUp, folder: Path) -> None:
        self.cluster = cluster
        self._folder = folder

    def admin(self, *words: str, stdin: str = "") -> str:
        return self.cluster.kubectl(*words, stdin=stdin).strip()

    def person(self, name: str, **user: Any) -> Person:
        """A user with these credentials, or with the token of the file."""
        return Person(self._folder / f"{name}.kubeconfig", self.cluster, **(user or {"token": f"{name}-token"}))

    def audit_events(self, namespace: str) -> list[dict[str, Any]]:
        """The audit events of a namespace."""
        lines = (self._folder / "audit.log").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event.get("objectRef", {}).get("namespace") == namespace]

    def grant(self, namespace: str, name: str, rules: Sequence[dict[str, Any]], /, **subject: str) -> None:
        """Create a role and bind it to a subject, in a namespace, or in all for an empty one."""
        prefix = "" if namespace else "Cluster"
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        group = "rbac.authorization.k8s.io"
        head = {"apiVersion": f"{group}/v1", "metadata": metadata}
        role = {**head, "kind": f"{prefix}Role", "rules": list(rules)}
        reference = {"apiGroup": group, "kind": role["kind"], "name": name}
        binding = {**head, "kind": f"{role['kind']}Binding", "roleRef": reference, "subjects": [subject]}
        both = {"apiVersion": "v1", "kind": "List", "items": [role, binding]}
        self.admin("create", "-f", "-", stdin=json.dumps(both))


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    folder = tmp_path_factory.mktemp("access")
    (folder / "tokens").write_text(PEOPLE)
    (folder / "policy.yaml").write_text(POLICY)
    flags = (
        f"--apiserver-arg=--token-auth-file={folder / 'tokens'}",
        f"--apiserver-arg=--audit-policy-file={folder / 'policy.yaml'}",
        f"--apiserver-arg=--audit-log-path={folder / 'audit.log'}",
        "--managers=1",
    )
    with running(folder / "cluster", *flags) as cluster:
        yield People(cluster, folder)
        assert cluster.stop() == 0
        assert "a request failed" not in (cluster.folder / "apiserver.log").read_text()


def rule(verbs: str, resources: str, *names: str, group: str = "") -> dict[str, Any]:
    named = {"resourceNames": list(names)} if names else {}
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split(), **named}


def user(name: str) -> dict[str, str]:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}


def test_static_token_authenticates_without_permissions(people: People) -> None:
    joe = people.person("joe")
    assert joe.whoami() == {"username": "joe", "uid": "uid-joe", "groups": ["dev", "ops", "system:authenticated"]}
    assert not joe.can_i("get", "pods")
    assert joe.can_i("create", "selfsubjectreviews.authentication.k8s.io")
    assert "ok" in joe.kubectl("get", "--raw", "/readyz")
    assert 'User "joe" cannot list resource "pods" in API group "" in the namespace "default"' in joe.error(
        "get", "pods"
    )
    assert "Unauthorized" in people.person("nobody", token="joe-token2").error("get", "pods")


def test_service_account_permissions_are_limited_by_binding(people: People) -> None:
    people.admin("create", "namespace", "shop")
    people.admin("create", "namespace", "bank")
    people.admin("create", "serviceaccount", "robot", "-n", "shop")
    reader = {"kind": "ServiceAccount", "namespace": "shop", "name": "robot"}
    people.grant("shop", "reader", [rule("get list", "pods"), rule("get", "secrets", "mine")], **reader)
    robot = people.person("robot", token=people.admin("create", "token", "robot", "-n", "shop"))
    assert robot.whoami()["username"] == "system:serviceaccount:shop:robot"
    assert robot.kubectl("get", "pods", "-n", "shop", "-o", "name") == ""
    for words in (
        ("get", "pods", "-n", "bank"),
        ("get", "pods", "-A"),
        ("get", "secrets", "-n", "shop"),
        ("get", "secret", "other", "-n", "shop"),
        ("run", "p", "--image=i", "-n", "shop"),
        ("delete", "pod", "p", "-n", "shop"),
        ("get", "pods", "-n", "shop", "--as=kubernetes-admin", "--as-group=system:masters"),
        ("create", "token", "robot", "-n", "shop"),
    ):
        assert "is forbidden" in robot.error(*words), words
    assert '"mine" not found' in robot.error("get", "secret", "mine", "-n", "shop")
    people.admin("delete", "rolebinding", "reader", "-n", "shop")
    assert "is forbidden" in robot.error("get", "pods", "-n", "shop")


def test_user_authenticates_with_signed_certificate(people: People) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    names = [(NameOID.COMMON_NAME, "carla"), (NameOID.ORGANIZATION_NAME, "crew")]
    subject = x509.Name([x509.NameAttribute(oid, name) for oid, name in names])
    asked = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    pem = base64.b64encode(asked.public_bytes(serialization.Encoding.PEM)).decode()
    signer = "kubernetes.io/kube-apiserver-client"
    tree = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "carla"},
        "spec": {"request": pem, "signerName": signer, "usages": ["client auth"]},
    }
    group = "certificates.k8s.io"
    approves = [rule("get update", "certificatesigningrequests certificatesigningrequests/approval", group=group)]
    people.grant("", "approves", approves, **user("caretaker"))
    people.admin("create", "-f", "-", stdin=json.dumps(tree))
    caretaker = people.person("caretaker")
    refusal = caretaker.error("certificate", "approve", "carla")
    assert f'user not permitted to approve requests with signerName "{signer}"' in refusal
    people.grant("", "signer", [rule("approve", "signers", signer, group=group)], **user("caretaker"))
    caretaker.kubectl("certificate", "approve", "carla")
    path = "jsonpath={.status.certificate}"
    wait_for(lambda: bool(people.admin("get", "csr", "carla", "-o", path)))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    certificate = people.admin("get", "csr", "carla", "-o", path)
    shown = {"client-certificate-data": certificate, "client-key-data": base64.b64encode(private).decode()}
    carla = people.person("carla", **shown)
    assert carla.whoami() == {"username": "carla", "groups": ["crew", "system:authenticated"]}
    assert not carla.can_i("list", "nodes")
    crew = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "crew"}
    people.grant("", "crew", [rule("list", "nodes")], **crew)
    assert carla.kubectl("get", "nodes", "-o", "name") == ""


def test_user_may_impersonate_only_named_users(people: People) -> None:
    deputy = people.person("deputy")
    assert "cannot impersonate" in deputy.error("get", "nodes", "--as=joe")
    people.grant("", "deputy", [rule("impersonate", "users", "joe", "chief")], **user("deputy"))
    assert deputy.whoami("--as=joe") == {"username": "joe", "groups": ["system:authenticated"]}
    for more in (
        ("--as=caretaker",),
        ("--as=joe", "--as-group=ops"),
        ("--as=joe", "--as-group=system:masters"),
        ("--as=joe", "--as-uid=uid-joe"),
        ("--as=system:serviceaccount:default:default",),
        ("--as=kubernetes-admin",),
    ):
        assert "cannot impersonate" in deputy.error("get", "--raw=/version", *more), more
    extra = people.person("extra", **{"token": "deputy-token", "as": "joe", "as-user-extra": {SUPPORT: ["case-7"]}})
    assert "cannot impersonate" in extra.error("get", "nodes")
    rules = [
        rule("impersonate", "groups", "ops"),
        rule("impersonate", "uids", "uid-joe", group="authentication.k8s.io"),
        rule("impersonate", f"userextras/{SUPPORT}", "case-7", group="authentication.k8s.io"),
    ]
    people.grant("", "deputy-more", rules, **user("deputy"))
    whole = {"username": "joe", "groups": ["ops", "system:authenticated"]}
    assert deputy.whoami("--as=joe", "--as-group=ops") == whole
    assert deputy.whoami("--as=joe", "--as-group=ops", "--as-uid=uid-joe") == {**whole, "uid": "uid-joe"}
    assert extra.whoami()["extra"] == {SUPPORT: ["case-7"]}
    other = people.person("other", **{"token": "deputy-token", "as": "joe", "as-user-extra": {SUPPORT: ["case-8"]}})
    assert "cannot impersonate" in other.error("get", "nodes")


def test_impersonation_gives_only_rights_of_the_other_user(people: People) -> None:
    """Rights are not combined, and the impersonated user's right to impersonate does not apply."""
    people.grant("", "first", [rule("impersonate", "users", "second"), rule("list", "nodes")], **user("caretaker"))
    people.grant("", "second", [rule("impersonate", "users", "third")], **user("second"))
    people.grant("", "third", [rule("list", "namespaces")], **user("third"))
    first = people.person("caretaker")
    assert first.can_i("list", "nodes")
    assert 'User "second" cannot list resource "nodes"' in first.error("get", "nodes", "--as=second")
    assert first.can_i("impersonate", "users/third", "--as=second")
    assert "cannot impersonate" in first.error("get", "namespaces", "--as=third")


def test_user_cannot_grant_rights_they_lack(people: People) -> None:
    people.admin("create", "namespace", "tower")
    group = "rbac.authorization.k8s.io"
    writes = rule("create get update patch delete", "roles rolebindings", group=group)
    people.grant("tower", "writes", [writes, rule("get list", "pods")], **user("helmsman"))
    helmsman, everything = people.person("helmsman"), json.dumps({"rules": [rule("*", "*", group="*")]})
    here, all_verbs = ("-n", "tower"), '[{"op":"replace","path":"/rules/0/verbs","value":["*"]}]'
    helmsman.kubectl("create", "role", "looks", "--verb=get", "--resource=pods", *here)
    for words in (
        ("create", "role", "takes", "--verb=delete", "--resource=pods", *here),
        ("create", "rolebinding", "root", "--clusterrole=cluster-admin", "--user=helmsman", *here),
        (
            "patch",
            "role",
            "looks",
            "--type=json",
            "-p",
            all_verbs,
            *here,
        ),
        ("patch", "role", "writes", "--type=merge", "-p", everything, *here),
        ("create", "clusterrolebinding", "root", "--clusterrole=cluster-admin", "--user=helmsman"),
    ):
        assert "forbidden" in helmsman.error(*words), words
    manifest = {
        "apiVersion": f"{group}/v1",
        "kind": "Role",
        "metadata": {"name": "looks", "namespace": "tower"},
        "rules": [rule("get watch", "pods secrets")],
    }
    for way in (("apply", "--server-side", "--force-conflicts"), ("auth", "reconcile"), ("replace",)):
        assert "forbidden" in helmsman.error(*way, "-f", "-", stdin=json.dumps(manifest)), way
    helmsman.kubectl("create", "rolebinding", "looks", "--role=looks", "--user=joe", *here)
    assert people.person("joe").can_i("get", "pods", *here)
    people.grant("tower", "binds", [rule("bind", "clusterroles", "edit", group=group)], **user("helmsman"))
    helmsman.kubectl("create", "rolebinding", "edits", "--clusterrole=edit", "--user=joe", *here)
    assert people.person("joe").can_i("create", "deployments", *here)
    assert "forbidden" in helmsman.error(
        "create", "rolebinding", "root", "--clusterrole=admin", "--user=helmsman", *here
    )


def test_custom_resource_can_be_added_to_view_role(people: People) -> None:
    people.admin("create", "namespace", "harbour")
    people.admin("create", "rolebinding", "views", "--clusterrole=view", "--user=joe", "-n", "harbour")
    joe, here = people.person("joe"), ("-n", "harbour")
    assert joe.can_i("list", "configmaps", *here)
    assert not joe.can_i("list", "secrets", *here)
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "boats", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [rule("get list watch", "boats", group="example.org")],
    }
    people.admin("create", "-f", "-", stdin=json.dumps(role))
    wait_for(lambda: "boats.example.org" in joe.kubectl("auth", "can-i", "--list", *here))
    people.admin("delete", "clusterrole", "boats")
    wait_for(lambda: "boats.example.org" not in joe.kubectl("auth", "can-i", "--list", *here))


def test_audit_log_names_users_and_contains_no_secret(people: People) -> None:
    people.admin("create", "namespace", "watched")
    people.grant("watched", "reads", [rule("get list", "configmaps")], **user("joe"))
    people.admin("create", "secret", "generic", "s", "--from-literal=key=kept-to-ourselves", "-n", "watched")
    people.admin("create", "configmap", "c", "--from-literal=key=shown", "-n", "watched")
    people.admin("get", "configmaps", "-n", "watched", "--as=joe")
    people.person("joe").error("delete", "configmap", "c", "-n", "watched")
    events = {
        (event["verb"], event["objectRef"]["resource"], event["user"]["username"]): event
        for event in people.audit_events("watched")
        if event["objectRef"]["resource"] in ("secrets", "configmaps")
    }
    secret = events["create", "secrets", "kubernetes-admin"]
    assert (secret["level"], secret["responseStatus"]["code"]) == ("Metadata", 201)
    assert "kept-to-ourselves" not in json.dumps(list(events.values()))
    assert base64.b64encode(b"kept-to-ourselves").decode() not in json.dumps(list(events.values()))
    made = events["create", "configmaps", "kubernetes-admin"]
    assert (made["level"], made["requestObject"]["data"]) == ("Request", {"key": "shown"})
    listed = events["list", "configmaps", "kubernetes-admin"]
    assert listed["impersonatedUser"]["username"] == "joe"
    assert listed["annotations"]["authorization.k8s.io/decision"] == "allow"
    assert 'RoleBinding "reads/watched"' in listed["annotations"]["authorization.k8s.io/reason"]
    refused = events["delete", "configmaps", "joe"]
    assert refused["responseStatus"]["code"] == 403
    assert refused["annotations"]["authorization.k8s.io/decision"] == "forbid"


@pytest.mark.needs("helm")
def test_helm_installs_with_edit_role_of_a_namespace(people: People) -> None:
    for namespace in ("sea", "lake"):
        people.admin("create", "namespace", namespace)
    people.admin("create", "rolebinding", "edits", "--clusterrole=edit", "--user=helmsman", "-n", "sea")
    kubeconfig = people.person("helmsman").kubeconfig

    def install(namespace: str) -> Any:
        command = (sys.executable, str(HERE / "helm_chart.py"), str(kubeconfig), namespace, str(HERE / "shop"))
        done = subprocess.run((*command, '{"a": {}}'), capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["a"]

    assert "kind: Deployment" in install("sea")["manifest"]
    assert people.admin("get", "deployments", "-n", "sea", "-o", "name") == "deployment.apps/shop"
    refusal = install("lake")["error"]
    assert 'User \\"helmsman\\" cannot' in refusal or 'User "helmsman" cannot' in refusal
    assert people.admin("get", "deployments,secrets", "-n", "lake", "-o", "name") == ""
