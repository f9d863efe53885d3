"""The findings of a spec do not depend on the specs checked before it."""

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.common.error_list import MOST, ErrorList
from apiserver_stub.kinds.memo import DRAWN_VOLUME, LONGEST, Memo, SoundSpecs, without_free_text
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.kinds.rules.pod_spec import _SOUND, pod_spec
from apiserver_stub.kinds.validate import validate
from apiserver_stub.kinds.values.trees import deep_copy
from apiserver_stub.kinds.warnings import warnings_of
from apiserver_stub.kinds.warnings.pods import of_template
from apiserver_stub.patch.typed_objects import type_of


def spec(volume: str = f"{DRAWN_VOLUME}x7k2p", **more: Any) -> dict[str, Any]:
    mounts = [{"name": volume, "mountPath": "/token", "readOnly": True}]
    container = {
        "name": "main", "image": "registry.example/app:1", "volumeMounts": mounts,
        "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent",
    }  # fmt: skip
    volumes = [{"name": volume, "emptyDir": {}}]
    return {"containers": [container], "volumes": volumes, "restartPolicy": "Always", "dnsPolicy": "Default", **more}


def problems(tree: dict[str, Any], *claimed: str) -> list[tuple[str, str]]:
    errors = ErrorList()
    pod_spec(tree, (None, "spec"), errors, iter(claimed))
    return [(cause.field, cause.message) for cause in errors.causes]


def test_valid_specs_are_recognized_by_content() -> None:
    specs = SoundSpecs()
    specs.find(spec()).sound = True
    assert specs.find(deep_copy(spec())).sound
    assert not specs.find(spec(hostNetwork=True)).sound
    assert not specs.find(spec(), ("data",)).sound
    assert not SoundSpecs().find(spec()).sound


def test_generated_token_volume_name_is_ignored() -> None:
    specs = SoundSpecs()
    specs.find(spec()).sound = True
    assert specs.find(spec(f"{DRAWN_VOLUME}bcd45")).sound


FREE = {"image": "other:2", "command": ["b", "$(A)"], "args": ["-v"], "env": [{"name": "A", "value": "z"}]}
JUDGED: dict[str, Any] = {
    "no image": {"image": ""},
    "an image with a space around it": {"image": " a"},
    "no command": {"command": None},
    "an empty list of arguments": {"args": []},
    "another variable": {"env": [{"name": "B", "value": "y"}]},
    "one more variable": {"env": [{"name": "A", "value": "y"}, {"name": "B", "value": "y"}]},
    "a variable without a value": {"env": [{"name": "A"}]},
    "a variable without a name": {"env": [{"value": "y"}]},
    "a reference to another variable": {"env": [{"name": "A", "value": "$(A)"}]},
    "a variable from elsewhere": {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
    "a variable of two sorts": {"env": [{"name": "A", "value": "y", "valueFrom": {}}]},
    "another policy": {"imagePullPolicy": "Always"},
}


def spec_with(field: str = "containers", **texts: Any) -> dict[str, Any]:
    """Return a spec with a second container that has these fields."""
    fields = {"name": "more", "image": "i:1", "command": ["a"], "args": ["b"], "env": [{"name": "A", "value": "y"}]}
    container = {name: value for name, value in (fields | texts).items() if value is not None}
    made = spec()
    return made | {field: [*made.get(field, ()), container]}


@pytest.mark.parametrize("field", ["containers", "initContainers", "ephemeralContainers"])
def test_free_text_fields_are_ignored(field: str) -> None:
    specs = SoundSpecs()
    specs.find(spec_with(field)).sound = True
    assert specs.find(spec_with(field, **FREE)).sound
    assert [name for name, texts in JUDGED.items() if specs.find(spec_with(field, **texts)).sound] == []


def test_free_text_is_removed_from_a_copy() -> None:
    tree = spec_with(**FREE)
    data = without_free_text(tree)
    assert tree == spec_with(**FREE)
    assert all(text not in data for text in (b"other:2", b"-v", b"$(A)", b"z"))


VALUES = st.sampled_from(["", "y", "z", "$(A)", "a $(A)"])
IMAGES = st.sampled_from(["", " ", "i:1", "i:2", " i:1", "i:1 "])
WORDS = st.sampled_from([[], ["a"], ["b", "$(A)"]])
SOURCES = st.sampled_from([{}, {"fieldRef": {"fieldPath": "metadata.name"}}, {"fieldRef": {"fieldPath": "x"}}])
VARIABLES = st.fixed_dictionaries(
    {"name": st.sampled_from(["A", "A", "=", ""]), "value": VALUES}, optional={"valueFrom": SOURCES}
)
CONTAINERS = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b"]), "env": st.lists(VARIABLES, min_size=2, max_size=3)},
    optional={"image": IMAGES, "command": WORDS, "args": WORDS},
)
LISTS = {
    name: st.lists(CONTAINERS, min_size=1, max_size=2)
    for name in ("containers", "initContainers", "ephemeralContainers")
}
POD = built_in().find("", "v1", "pods")


@settings(max_examples=300, deadline=None)
@given(st.fixed_dictionaries({}, optional=LISTS), st.data())
def test_findings_do_not_depend_on_free_text(one: dict[str, Any], data: st.DataObject) -> None:
    other = deep_copy(one)
    for container in itertools.chain(*other.values()):
        for name, texts in (("image", IMAGES), ("command", WORDS), ("args", WORDS)):
            if name in container:
                container[name] = data.draw(texts)
        for variable in container["env"]:
            variable["value"] = data.draw(VALUES)
    if without_free_text(one) == without_free_text(other):
        assert findings_of(one) == findings_of(other)


def findings_of(tree: dict[str, Any]) -> Any:
    """Return the problems, warnings and ownership of a spec, validated for the first time."""
    assert POD is not None
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": deep_copy(tree)}
    before = deep_copy(pod)
    causes = [(cause.reason, cause.field) for cause in validate(POD, pod, None)]
    warnings = warnings_of(POD, pod, None)
    _SOUND._findings.clear()
    assert pod == before
    return causes, warnings, type_of(POD.schema).initial(pod)


@pytest.mark.parametrize("name", ["x7k2", "x7k2pp", "X7k2p", "x7-2p", "x7k2\u00fc", "", 'x"', "another"])
def test_only_generated_names_are_ignored(name: str) -> None:
    specs = SoundSpecs()
    specs.find(spec()).sound = True
    assert not specs.find(spec(DRAWN_VOLUME + name)).sound
    assert not specs.find(spec(name)).sound


def test_mount_of_another_volume_is_reported() -> None:
    assert problems(spec()) == []
    broken = spec()
    broken["containers"][0]["volumeMounts"][0]["name"] = f"{DRAWN_VOLUME}bcd45"
    assert [field for field, _ in problems(broken)] == ["spec.containers[0].volumeMounts[0].name"]


def test_invalid_spec_is_reported_each_time() -> None:
    broken = spec(activeDeadlineSeconds=0, hostname="No Name")
    assert problems(broken) == problems(broken)
    assert {field for field, _ in problems(broken)} == {"spec.activeDeadlineSeconds", "spec.hostname"}


def test_claim_template_volumes_are_part_of_the_key() -> None:
    mounting = spec()
    mounting["volumes"] = []
    name = mounting["containers"][0]["volumeMounts"][0]["name"]
    assert problems(mounting, name) == problems(mounting, name) == []
    assert problems(mounting) == problems(mounting, "other") != []


def test_spec_is_not_cached_valid_if_problems_are_cut_off() -> None:
    errors = ErrorList()
    for index in range(MOST):
        errors.required((None, index))
    broken = spec(activeDeadlineSeconds=-1)
    pod_spec(broken, (None, "spec"), errors)
    assert [field for field, _ in problems(broken)] == ["spec.activeDeadlineSeconds"]


def test_warnings_are_returned_each_time() -> None:
    pod = {"metadata": {}, "spec": spec(hostAliases=[{"ip": "010.0.0.1"}], terminationGracePeriodSeconds=-1)}
    warnings = of_template(pod, at := (None, "template"))
    assert len(warnings) == 2
    assert of_template(pod, at) == warnings
    assert of_template({"metadata": {}, "spec": spec()}, at) == of_template({"metadata": {}, "spec": spec()}, at)


def test_large_specs_are_not_cached() -> None:
    specs = SoundSpecs()
    large = spec(hostname="x" * 20_000)
    specs.find(large).sound = True
    assert not specs.find(large).sound


def test_cache_is_limited_in_entries_and_key_size() -> None:
    findings = Memo(list[int], most=2)
    for data in (b"a", b"b", b"a", b"c", b"x" * (LONGEST + 1)):
        findings.of(data).append(1)
    kept = {data: len(findings.of(data)) for data in (b"a", b"c", b"x" * (LONGEST + 1))}
    assert kept == {b"a": 2, b"c": 1, b"x" * (LONGEST + 1): 0}
    assert findings.of(b"b") == []
    assert findings.of(b"a", "beside") == []


def test_cleared_cache_is_empty() -> None:
    findings = Memo(list[int], most=2)
    findings.of(b"a").append(1)
    findings.clear()
    assert findings.of(b"a") == []
