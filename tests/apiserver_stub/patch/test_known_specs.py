"""Specs that came before in applied configurations: nothing that is answered depends on what is known of them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from apiserver_stub.kinds.defaults import apply_defaults
from apiserver_stub.kinds.findings import Findings
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.kinds.validate import label_changes
from apiserver_stub.patch import apply
from apiserver_stub.patch.managed_fields import APPLY, UPDATE, Entries, FieldManager, Versions
from controller_manager.api.errors import ApiError

KINDS = built_in()
KIND = KINDS.find("apps", "v1", "deployments")
assert KIND is not None
Tree = dict[str, Any]


def config(image: str = "i", labels: Tree | None = None, container: Tree | None = None, **spec: Any) -> Tree:
    own = {"app": "a"}
    containers = [{"name": "c", "image": image, **(container or {})}]
    template = {"metadata": {"labels": own, "creationTimestamp": None}, "spec": {"containers": containers}}
    whole = {"selector": {"matchLabels": own}, "template": template, **spec}
    metadata = {"name": "d", "labels": labels or {}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": whole}


TWICE = {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}
# Who applies what, one after the other.
STEPS: list[tuple[str, Tree]] = [
    ("one", config()),
    ("one", config()),
    ("one", config(labels={"b": "c"})),
    ("one", config(replicas=3, strategy={"type": "Recreate"})),
    ("one", config(labels={"b": "c"})),
    ("two", config(image="j")),  # a conflict
    ("two", config(image="j")),
    ("two", {**config(), "spec": {"replicas": 5}}),
    ("one", config()),
    ("one", config(container={"args": ["a"], "env": [{"name": "A", "value": "1"}]})),
    ("one", config(image="k", container={"args": ["b", "c"], "env": [{"name": "A", "value": "2"}]})),
    ("one", config(image="k", container={"args": [], "env": [{"name": "A", "value": ""}]})),
    ("one", config(image="k", container={"args": None, "env": [{"name": "A", "value": "$(B)"}]})),
    ("one", config(image="", container={"command": ["x"], "env": None})),
    ("one", config(container={"image": None, "env": [None]})),  # ambiguous
    ("one", config(container={"env": [{"name": None, "value": "1"}]})),  # ambiguous
    ("one", config(container=TWICE)),  # ambiguous
    ("one", config(container=TWICE)),
    ("one", config(container={"env": [{"name": "A", "value": None}], "ports": [{"containerPort": 80}]})),
    ("one", config(container={"resources": {"limits": {"cpu": "1000m"}}})),
    ("one", config(container={"resources": {"limits": {"cpu": "1000m"}}}, labels={"x": "y"})),
    ("two", {**config(), "spec": {}}),
    ("two", {**config(), "spec": {"template": None}}),
    ("two", {**config(), "spec": {"template": {"spec": None}}}),
    ("two", {**config(), "spec": {"template": {"spec": {"containers": [None]}}}}),
    ("two", {**config(), "spec": None}),
    ("two", {name: value for name, value in config().items() if name != "spec"}),
    ("one", config()),
]


def answers(force: bool = False, steps: Sequence[tuple[str, Tree]] = STEPS) -> Iterator[Any]:
    live: Tree | None = None
    entries: Entries = []
    for number, (manager, applied) in enumerate(steps):
        request = apply.ApplyRequest(applied, KIND, FieldManager(manager, APPLY, KIND.api_version), force)
        before = repr(live), repr(applied)
        try:
            found = (
                apply.create(request, applied, f"{number:03}")
                if live is None
                else apply.change(request, live, entries, Versions(KINDS, KIND), f"{number:03}")
            )
        except ApiError as error:
            yield error.message
        else:
            assert (repr(live), repr(applied)) == before
            if found.label_changes is not None:
                assert live is not None
                assert found.label_changes == label_changes(found.tree, live)
            live, entries = found.tree, found.entries
            live["metadata"].setdefault("uid", "u")
            yield repr((live, entries))


@contextmanager
def nothing_known() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Findings, "of", lambda self, _data: self._make())
        patched.setattr(apply, "_other_texts", lambda *_: None)
        yield


@pytest.mark.parametrize("force", [False, True])
def test_answers_are_those_of_who_knows_nothing(force: bool) -> None:
    with nothing_known():
        wanted = list(answers(force))
    for known in (apply._applied_specs, apply._declared_specs):
        KIND.schema.derived(known).clear()
    for _ in range(3):
        assert list(answers(force)) == wanted


SPEC = {"selector": {"matchLabels": {"app": "a"}}, "template": {"metadata": {"labels": {"app": "a"}}}, "replicas": 1}
LAST = apply._LAST_APPLIED
KEPT = "what kubectl keeps"
# What is another besides texts in what is applied.
TWISTS: dict[str, Callable[[Tree], object]] = {
    "nothing": lambda _: None,
    "a label less": lambda one: one["metadata"]["labels"].pop("a"),
    "a label more": lambda one: one["metadata"]["labels"].update(c="1"),
    "no text": lambda one: one["metadata"]["labels"].update(a=None),
    "no labels": lambda one: one["metadata"].update(labels={}),
    "labels of null": lambda one: one["metadata"].update(labels=None),
    "a finalizer": lambda one: one["metadata"].update(finalizers=["x/y"]),
    KEPT: lambda one: one["metadata"]["annotations"].update({LAST: "{}"}),
    "a status": lambda one: one.update(status={"replicas": 1}),
    "a null": lambda one: one.update(spec={**SPEC, "paused": None}),
    "another spec": lambda one: one.update(spec={**SPEC, "replicas": 2}),
}


def twisted(one: str, two: str, twist: str) -> Tree:
    metadata = {"name": "d", "labels": {"a": one, "b": "1"}, "annotations": {"a": two, "b": "1"}}
    found = {**config(), "metadata": metadata, "spec": SPEC}
    TWISTS[twist](found)
    return found


STEP = st.tuples(
    st.sampled_from(["one"] * 5 + ["two", apply._KUBECTL]),
    st.builds(
        twisted,
        st.sampled_from("123"),
        st.sampled_from("12"),
        st.just("nothing") | st.just("nothing") | st.sampled_from(list(TWISTS)),
    ),
)


@settings(max_examples=300)
@example([(apply._KUBECTL, twisted(text, "1", KEPT)) for text in "1123"], False)
@given(st.lists(STEP, min_size=3, max_size=12), st.booleans())
def test_so_are_those_to_whoever_changes_texts(steps: list[tuple[str, Tree]], force: bool) -> None:
    with nothing_known():
        wanted = list(answers(force, steps))
    for known in (apply._applied_specs, apply._declared_specs):
        KIND.schema.derived(known).clear()
    assert list(answers(force, steps)) == wanted
    assert list(answers(force, steps)) == wanted


@pytest.mark.parametrize("text", ["labels", "annotations"])
def test_other_texts_leave_the_spec_as_it_is(text: str) -> None:
    """An applier that changes texts of its own shares all else with the object that is there."""
    live = config(replicas=1)
    live["metadata"][text] = {"a": "1", "theirs": "1"}
    apply_defaults(live, KIND)
    entries: Entries = []
    for number in range(4):
        applied = config(replicas=1)
        applied["metadata"][text] = {"a": str(number)}
        request = apply.ApplyRequest(applied, KIND, FieldManager("one", APPLY, KIND.api_version), force=True)
        before = repr(live)
        found = apply.change(request, live, entries, Versions(KINDS, KIND), f"at {number}")
        assert repr(live) == before
        assert found.tree["metadata"][text] == {"a": str(number), "theirs": "1"}
        assert [entry["time"] for entry in found.entries if entry["operation"] == APPLY] == [f"at {number}"]
        assert number == 0 or found.tree["spec"] is live["spec"]
        live, entries = found.tree, found.entries


def test_what_was_applied_is_left_alone() -> None:
    live: Tree = {**config(), "status": {"replicas": 1}}
    request = apply.ApplyRequest(config(replicas=2), KIND, FieldManager("one", APPLY, KIND.api_version), force=True)
    before = repr(request.config), repr(live)
    found = [apply.change(request, live, [], Versions(KINDS, KIND), "now").tree for _ in range(2)]
    assert found[0] == found[1]
    assert found[0]["spec"]["progressDeadlineSeconds"] == 600
    found[0]["spec"]["template"]["spec"]["containers"].clear()
    found[0]["metadata"]["labels"] = {"x": "y"}
    assert (repr(request.config), repr(live)) == before
    assert found[1]["spec"]["template"]["spec"]["containers"]


def test_an_update_before_is_kept_apart() -> None:
    live = config(replicas=1)
    apply_defaults(live, KIND)
    entries = [FieldManager("one", UPDATE, KIND.api_version).entry({"f:spec": {"f:replicas": {}}}, "then")]
    request = apply.ApplyRequest(config(replicas=1), KIND, FieldManager("one", APPLY, KIND.api_version))
    found = [apply.change(request, live, entries, Versions(KINDS, KIND), "now") for _ in range(2)]
    assert found[0] == found[1]
    assert [entry["operation"] for entry in found[0].entries] == [APPLY, UPDATE]


def test_what_is_declared_is_told_by_names_alone() -> None:
    author = FieldManager("one", APPLY, KIND.api_version)
    known = apply.AppliedSpec()
    for round_ in range(2 * apply._MOST_DECLARED):
        for labels in ({"a": str(round_)}, {f"b{round_}": "c"}):
            applied = config(labels=labels)
            entries = apply.create(apply.ApplyRequest(applied, KIND, author, False, known), applied, "then").entries
            assert entries[0]["fieldsV1"]["f:metadata"] == {"f:labels": {f"f:{name}": {} for name in labels}}
            assert len(known.declared) <= apply._MOST_DECLARED
    unnamed = config()
    del unnamed["metadata"]["name"]
    fields = [apply._declared(apply.ApplyRequest(one, KIND, author), known).fields for one in (config(), unnamed)]
    assert ["f:name" in one["f:metadata"] for one in fields] == [True, False]
