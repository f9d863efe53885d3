"""The chart, rendered and checked by Helm's own engine and accepted by the API server; its rules
checked by promtool.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller_manager.app.catalog import AnySpec, choose, installed
from controller_manager.app.election import ElectionOptions, locks
from controller_manager.app.permissions import reads
from controller_manager.app.program import flag_set
from controller_manager.framework import PolicyRule

pytestmark = [pytest.mark.e2e, pytest.mark.needs("helm")]

HERE = Path(__file__).parent
CHART = HERE.parents[1] / "charts" / "cluster-controller-manager"
OPERATOR = ("servicemonitor.yaml", "prometheusrule.yaml")
DIGEST = f"sha256:{'ab' * 32}"
OWN = """
from controller_manager.framework import PODS, For, Options, PolicyRule, ControllerSpec

RULES = (PolicyRule(groups=("",), resources=("pods",), verbs=("patch",)),)
GREETER = "greeter-controller"
SPECS = (ControllerSpec(name=GREETER, reconciler=print, options=Options, watches=(For(PODS),), rbac=RULES),)
"""
EVERYTHING = {
    "controllers": ["*", "-ttl-controller"],
    "replicas": 3,
    "antiAffinity": "required",
    "useServiceAccountCredentials": True,
    "leaseName": "kube-controller-manager",
    "extraArgs": ["--concurrent-namespace-syncs=20"],
    "tls": {"secretName": "serving"},
    "signing": {"secretName": "authority"},
    "podLabels": {"team": "platform"},
    "podAnnotations": {"note": "hello"},
    "image": {"name": "manager", "tag": 7, "pullSecrets": [{"name": "pull"}]},
    "serviceAccount": {"annotations": {"a": "b"}},
    "prometheus": {"serviceAccount": {"name": "prometheus-k8s"}},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True},
    "dashboard": {"enabled": True},
    "networkPolicy": {
        "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "egress": [{"ports": [{"port": 6443, "protocol": "TCP"}]}],
    },
}
CASES = {
    "idle": {},
    "plain": {"controllers": ["*"]},
    "beside": {
        "controllers": ["namespace-controller"],
        "leaseName": "kube-controller-manager",
        "networkPolicy": {"enabled": False},
    },
    "gated": {
        "controllers": ["-ttl", "*", "scheduler", "ttl-controller", "nodeipam"],
        "featureGates": {"AllAlpha": True, "AllBeta": True, "DRAResourcePoolStatus": False, "APIServerIdentity": True},
        "extraArgs": ["--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/8"],
    },
    "ungated": {
        "controllers": ["*", "selinux-warning-controller"],
        "featureGates": {"AllBeta": False},
        "extraArgs": ["--allocate-node-cidrs=false"],
    },
    "hidden-controllers": {"controllers": ["*"], "extraArgs": ["--controllers=ttl-controller"]},
    "hidden-gates": {"controllers": ["*"], "extraArgs": ["--feature-gates=AllAlpha=true"]},
    "full": EVERYTHING,
    "single": {"replicas": 1, "controllers": ["*"]},
    "shared": {
        "controllers": ["*"],
        "leaderElectPerController": True,
        "controllerShards": {"deployment-controller": 4, "job-controller": 2},
    },
    "badly-pinned": {"image": {"digest": "latest"}},
    "wrong": {"replicas": "two"},
    "unknown": {"replica": 2},
}

EVENTS = PolicyRule(("",), ("events",), ("create", "patch", "update"))
INFO = 1  # helm remarks on a chart without an icon

Releases = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart, with the operator's objects as text in a ConfigMap: the server knows no custom resources."""
    copy = tmp_path_factory.mktemp("chart") / CHART.name
    shutil.copytree(CHART, copy)
    for name in OPERATOR:
        text = (copy / "templates" / name).read_text()
        (copy / "templates" / name).write_text(f'{{{{- define "{name}" }}}}\n{text}{{{{- end }}}}\n')
    data = "".join(f'  {name}: |-\n    {{{{- include "{name}" . | nindent 4 }}}}\n' for name in OPERATOR)
    shown = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{{{ .Release.Name }}}}-operator\ndata:\n{data}"
    (copy / "templates" / "operator.yaml").write_text(shown)
    return copy


@pytest.fixture(scope="module")
def custom_values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The printed values for an author's module."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "greeter.py").write_text(OWN)
    command = [sys.executable, "-m", "controller_manager.app.permissions", "greeter"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    found: dict[str, Any] = yaml.safe_load(done.stdout)
    return found


@pytest.fixture(scope="module")
def releases(server: Any, chart: Path, custom_values: dict[str, Any]) -> Releases:
    cases = {**CASES, "own": {**custom_values, "command": ["greeter"], "image": {"name": "greeter", "digest": DIGEST}}}
    command = [sys.executable, str(HERE / "helm_chart.py"), str(server.kubeconfig), "kube-system", str(chart)]
    done = subprocess.run([*command, json.dumps(cases)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: Releases = json.loads(done.stdout)
    return found


def objects(rendered: Releases, release: str) -> dict[tuple[str, str], Any]:
    assert "error" not in rendered[release], rendered[release]
    trees = [tree for tree in yaml.safe_load_all(rendered[release]["manifest"]) if tree]
    return {(tree["kind"], tree["metadata"]["name"]): tree for tree in trees}


def rules_of(role: Any) -> list[tuple[Iterable[str], Iterable[str], Iterable[str]]]:
    return [(tuple(one["apiGroups"]), tuple(one["resources"]), tuple(one["verbs"])) for one in role["rules"]]


def permissions(rendered: Releases, release: str, name: str) -> dict[str, list[Any]]:
    """The rules of the roles of that name, by namespace."""
    trees = [tree for tree in yaml.safe_load_all(rendered[release]["manifest"]) if tree]
    roles = [tree for tree in trees if tree["kind"].endswith("Role") and tree["metadata"]["name"] == name]
    return {role["metadata"].get("namespace", ""): rules_of(role) for role in roles}


def declared_rules(rules: Iterable[PolicyRule]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for rule in rules:
        found.setdefault(rule.namespace, []).append((rule.groups, rule.resources, rule.verbs))
    return found


def test_helm_lint_reports_no_problem(releases: Releases) -> None:
    lint = releases["lint"]
    assert lint["TotalChartsLinted"] == 1
    assert not lint["Errors"]
    assert [one["Severity"] for one in lint["Messages"]] == [INFO]


def test_server_stores_rendered_objects(releases: Releases, kubectl: Callable[..., str]) -> None:
    for kind, name in objects(releases, "plain"):
        assert kubectl("get", kind.lower(), name, "-n", "kube-system", "-o", "name").strip()


def test_plain_release_runs_replicas_without_privileges(releases: Releases) -> None:
    found = objects(releases, "plain")
    deployment = found["Deployment", "plain"]["spec"]
    pod, (container,) = deployment["template"]["spec"], deployment["template"]["spec"]["containers"]
    assert deployment["replicas"] == 2
    spread = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [one["podAffinityTerm"]["topologyKey"] for one in spread] == [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    ]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert {one: container[one]["httpGet"]["path"] for one in ("startupProbe", "livenessProbe", "readinessProbe")} == {
        "startupProbe": "/livez",
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
    }
    assert found["PodDisruptionBudget", "plain"]["spec"]["maxUnavailable"] == 1
    assert not any(kind == "ConfigMap" and name.endswith("dashboard") for kind, name in found)


def test_default_release_runs_no_upstream_controllers(releases: Releases) -> None:
    found = objects(releases, "idle")
    assert found["Deployment", "idle"]["spec"]["replicas"] == 0
    assert ("PodDisruptionBudget", "idle") not in found
    notes = releases["idle"]["notes"]
    assert "Nothing runs yet" in notes
    assert "--controllers=*,-namespace-controller" in notes
    assert "--set 'controllers={" in notes


def test_notes_name_conflicting_components(releases: Releases) -> None:
    assert "A kube-controller-manager of this cluster must not run * as well" in releases["plain"]["notes"]
    assert "It competes with kube-controller-manager for one lease" in releases["beside"]["notes"]
    assert "kube-controller-manager" not in releases["own"]["notes"]


def test_custom_program_runs_with_its_own_permissions(releases: Releases) -> None:
    found = objects(releases, "own")
    assert found["Deployment", "own"]["spec"]["replicas"] == 2
    (container,) = found["Deployment", "own"]["spec"]["template"]["spec"]["containers"]
    assert (container["command"], container["image"]) == (["greeter"], f"greeter@{DIGEST}")
    assert "--controllers=*" in container["args"]
    assert rules_of(found["ClusterRole", "own-controllers"]) == [(("",), ("pods",), ("patch",))]
    assert rules_of(found["ClusterRole", "own"])[-1] == (("",), ("pods",), ("get", "list", "watch"))


@pytest.mark.parametrize("release", ["plain", "full"])
def test_rendered_command_line_is_accepted_by_the_manager(releases: Releases, release: str) -> None:
    (container,) = objects(releases, release)["Deployment", release]["spec"]["template"]["spec"]["containers"]
    settings = flag_set(installed()).parse(container["args"]).settings()
    assert settings["leader-elect-resource-namespace"] == "kube-system"
    assert settings["leader-elect-resource-name"] == (EVERYTHING["leaseName"] if release == "full" else release)


def running(rendered: Releases, release: str) -> list[AnySpec]:
    """The controllers of a manager with the command line of a release, without a cloud."""
    (container,) = objects(rendered, release)["Deployment", release]["spec"]["template"]["spec"]["containers"]
    return [spec for spec in choose(installed(), flag_set(installed()).parse(container["args"])) if not spec.cloud]


def by_group(rules: Iterable[tuple[Iterable[str], Iterable[str], Iterable[str]]]) -> dict[str, set[str]]:
    return {group: set(resources) for groups, resources, _ in rules for group in groups}


@pytest.mark.parametrize("release", ["plain", "beside", "gated", "ungated"])
def test_combined_role_equals_declared_permissions(releases: Releases, release: str) -> None:
    found, specs = objects(releases, release), running(releases, release)
    declared = declared_rules([rule for spec in specs for rule in spec.rbac])
    assert permissions(releases, release, f"{release}-controllers") == {"": [], **declared}
    own, reviews = 1, 2
    informers = rules_of(found["ClusterRole", release])[own + reviews :]
    assert by_group(informers) == by_group((rule.groups, rule.resources, rule.verbs) for rule in reads(specs))
    assert not any(name.startswith(f"{release}:") for _, name in found)


def test_roles_of_gated_controllers_follow_gates_and_flags(releases: Releases) -> None:
    gated, plain = ({spec.name for spec in running(releases, release)} for release in ("gated", "plain"))
    assert {"node-ipam-controller", "storageversion-garbage-collector-controller", "scheduler"} <= gated - plain
    rules = permissions(releases, "gated", "gated-controllers")[""]
    assert any("devicetaintrules/status" in resources for _, resources, _ in rules)


def test_idle_release_has_no_roles_of_controllers(releases: Releases) -> None:
    assert permissions(releases, "idle", "idle-controllers") == {"": []}


def test_arguments_that_roles_cannot_follow_are_rejected(releases: Releases) -> None:
    for release in ("hidden-controllers", "hidden-gates"):
        assert "extraArgs" in releases[release]["error"]


def test_network_policy_allows_only_the_secure_port(releases: Releases) -> None:
    plain = objects(releases, "plain")["NetworkPolicy", "plain"]["spec"]
    assert plain["ingress"] == [{"ports": [{"port": "https", "protocol": "TCP"}]}]
    assert plain["policyTypes"] == ["Ingress"]
    pod = objects(releases, "plain")["Deployment", "plain"]["spec"]["template"]["metadata"]
    assert plain["podSelector"]["matchLabels"].items() <= pod["labels"].items()
    full = objects(releases, "full")["NetworkPolicy", "full"]["spec"]
    assert full["ingress"][0]["from"] == EVERYTHING["networkPolicy"]["from"]
    assert (full["policyTypes"], full["egress"]) == (["Ingress", "Egress"], EVERYTHING["networkPolicy"]["egress"])
    assert ("NetworkPolicy", "beside") not in objects(releases, "beside")


def test_separate_controllers_have_own_accounts_and_roles(releases: Releases) -> None:
    found, specs = objects(releases, "full"), running(releases, "full")
    assert ("ClusterRole", "full-controllers") not in found
    assert {name for kind, name in found if kind == "ClusterRole" and ":" in name} == {
        f"full:{one.name}" for one in specs
    }
    for spec in specs:
        declared = declared_rules([EVENTS, *spec.rbac])
        assert permissions(releases, "full", f"full:{spec.name}") == declared
        (subject,) = found["ClusterRoleBinding", f"full:{spec.name}"]["subjects"]
        assert (subject["kind"], subject["namespace"]) == ("ServiceAccount", "kube-system")
    _, tokens = found["Role", "full-accounts"]["rules"]
    assert (tokens["resources"], tokens["verbs"]) == (["serviceaccounts/token"], ["create"])
    assert tokens["resourceNames"] == sorted({spec.account for spec in specs} - {""})


def test_sharing_replicas_may_write_only_their_leases(releases: Releases) -> None:
    found = objects(releases, "shared")
    (container,) = found["Deployment", "shared"]["spec"]["template"]["spec"]["containers"]
    parsed = flag_set(installed()).parse(container["args"])
    every = {lock.name for lock in locks(parsed[ElectionOptions], running(releases, "shared"))}
    (names,) = [set(one["resourceNames"]) for one in found["Role", "shared"]["rules"] if "update" in one["verbs"]]
    assert {f"shared-{name}" for name in every} | {"shared", "shared-replica-0"} <= names
    assert all(name.startswith("shared") for name in names)
    assert "shared-deployment-controller-shard-3" in names
    assert "shared-deployment-controller" not in names
    assert any(one["verbs"] == ["list"] for one in found["Role", "shared"]["rules"])


def test_every_binding_names_a_role_of_the_release(releases: Releases) -> None:
    for release in ("plain", "full"):
        found = objects(releases, release)
        bound = {
            (tree["roleRef"]["kind"], tree["roleRef"]["name"])
            for (kind, _), tree in found.items()
            if kind.endswith("Binding")
        }
        assert bound - set(found) == {("Role", "extension-apiserver-authentication-reader")}


def test_full_release_has_all_requested_parts(releases: Releases) -> None:
    found = objects(releases, "full")
    pod = found["Deployment", "full"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert pod["metadata"]["labels"]["team"] == "platform"
    assert (container["image"], pod["spec"]["imagePullSecrets"]) == ("manager:7", [{"name": "pull"}])
    assert "--tls-cert-file=/etc/cluster-controller-manager/tls/tls.crt" in container["args"]
    assert "--cluster-signing-key-file=/etc/cluster-controller-manager/signing/tls.key" in container["args"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted["signing"] == "/etc/cluster-controller-manager/signing"
    operator = found["ConfigMap", "full-operator"]["data"]
    monitor = yaml.safe_load(operator["servicemonitor.yaml"])
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["tlsConfig"]["serverName"]) == ("https", "full.kube-system.svc")
    service = found["Service", "full"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert endpoint["port"] == service["spec"]["ports"][0]["name"]
    (reader,) = found["ClusterRole", "full-metrics-reader"]["rules"]
    assert reader == {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    dashboard = json.loads(found["ConfigMap", "full-dashboard"]["data"]["cluster-controller-manager.json"])
    assert dashboard == json.loads((CHART / "dashboard.json").read_text())


def test_single_replica_has_no_disruption_budget(releases: Releases) -> None:
    assert ("PodDisruptionBudget", "single") not in objects(releases, "single")


def test_invalid_and_unknown_values_are_rejected(releases: Releases) -> None:
    assert "replicas" in releases["wrong"]["error"]
    assert "replica" in releases["unknown"]["error"]
    assert "digest" in releases["badly-pinned"]["error"]


@pytest.mark.needs("promtool")
def test_promtool_accepts_rendered_alerts(releases: Releases, tmp_path: Path) -> None:
    rule = yaml.safe_load(objects(releases, "full")["ConfigMap", "full-operator"]["data"]["prometheusrule.yaml"])
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(rule["spec"]))
    assert 'job="full"' in file.read_text()
    runbooks = yaml.safe_load((CHART / "values.yaml").read_text())["prometheusRule"]["runbooks"]
    assert (CHART.parents[1] / runbooks).is_file()
    for one in rule["spec"]["groups"][0]["rules"]:
        assert one["annotations"]["runbook_url"] == f"{runbooks}#{one['alert'].lower()}"
    done = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.needs("promtool")
def test_alerts_fire_as_expected() -> None:
    done = subprocess.run(
        ["promtool", "test", "rules", HERE / "alerts_test.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
