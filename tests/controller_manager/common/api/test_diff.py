"""An update keeps fields that the model does not have."""

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller_manager.common.api.diff import overlay
from controller_manager.common.api.model import EMPTY_RAW, Model, Object
from tests.pace import cpu_limit


# Like the built-in models, these omit fields that equal their default.
class Condition(Model, omit_defaults=True):
    type: str
    status: str = ""
    generation: int = 0


class Port(Model, omit_defaults=True):
    port: int = 0
    name: str = ""


class Template(Model, omit_defaults=True):
    labels: Mapping[str, str] | None = None
    ports: tuple[Port, ...] = ()


class Spec(Model, omit_defaults=True):
    replicas: int | None = None
    paused: bool = False
    policy: str = "Always"
    template: Template = Template()
    body: msgspec.Raw = msgspec.Raw(b"")
    by_name: Mapping[str, Port] = {}


class Status(Model, omit_defaults=True):
    ready: int = 0
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Widget(Object, omit_defaults=True):
    spec: Spec = Spec()
    status: Status | None = None


def change(original: Mapping[str, Any], **fields: Any) -> Any:
    data = msgspec.json.encode(original)
    before = Widget.decode(data)
    return msgspec.json.decode(overlay(data, before, msgspec.structs.replace(before, **fields)))


def test_unchanged_object_encodes_to_original_bytes() -> None:
    data = b'{"metadata":{"name":"a","x":1.0},"spec":{ "odd" : [1e3, 12345678901234567890123] }}'
    before = Widget.decode(data)
    assert overlay(data, before, before) == data


def test_numbers_beside_a_change_keep_their_text() -> None:
    data = b'{"spec":{"odd" : [1e3, 12345678901234567890123],"replicas":1}}'
    before = Widget.decode(data)
    after = msgspec.structs.replace(before, spec=msgspec.structs.replace(before.spec, replicas=2))
    assert overlay(data, before, after) == b'{"spec":{"odd":[1e3, 12345678901234567890123],"replicas":2}}'


def test_unknown_fields_survive_at_each_level() -> None:
    original = {"x": 1, "metadata": {"name": "a", "x": 2}, "spec": {"x": 3, "template": {"x": 4, "labels": {"a": "b"}}}}
    before = Widget.decode(msgspec.json.encode(original))
    template = msgspec.structs.replace(before.spec.template, labels={"a": "c", "d": "e"})
    got = change(original, spec=msgspec.structs.replace(before.spec, template=template))
    expected: dict[str, Any] = copy.deepcopy(original)
    expected["spec"]["template"]["labels"] = {"a": "c", "d": "e"}
    assert got == expected


def test_moved_items_keep_unknown_fields() -> None:
    conditions = [{"type": "A", "x": 1}, {"type": "B", "x": 2}, {"type": "A", "x": 3}]
    new = (Condition(type="B"), Condition(type="C"), Condition(type="A"), Condition(type="A"), Condition(type="A"))
    got = change({"status": {"conditions": conditions}}, status=Status(conditions=new))
    assert got["status"]["conditions"] == [
        {"type": "B", "x": 2},
        {"type": "C"},
        {"type": "A", "x": 3},
        {"type": "A", "x": 1},
        {"type": "A"},
    ]


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param(
            [Port(name="b", port=9), Port(name="a", port=1)],
            [{"name": "b", "port": 9, "x": 2}, {"name": "a", "port": 1, "x": 1}],
            id="changed and moved",
        ),
        pytest.param(
            [Port(name="c", port=2), Port(name="a", port=0)],
            [{"name": "c", "port": 2}, {"name": "a", "port": 0, "x": 1}],
            id="renamed is another",
        ),
        pytest.param(
            [Port(name="a", port=8), Port(name="a", port=9)],
            [{"name": "a", "port": 8}, {"name": "a", "port": 9}],
            id="ambiguous",
        ),
    ],
)
def test_changed_item_keeps_unknown_fields_by_name(new: list[Port], expected: list[Any]) -> None:
    ports = [{"name": "a", "port": 1, "x": 1}, {"name": "b", "port": 2, "x": 2}]
    got = change({"spec": {"template": {"ports": ports}}}, spec=Spec(template=Template(ports=tuple(new))))
    assert got["spec"]["template"]["ports"] == expected


def test_cleared_fields_are_removed_and_zero_numbers_explicit() -> None:
    original = {"spec": {"replicas": 3, "paused": True, "policy": "Never"}, "status": {"ready": 2, "phase": "Up"}}
    got = change(original, spec=Spec(), status=Status())
    assert got == {"spec": {"paused": False}, "status": {"ready": 0}}


def test_emptied_field_with_other_default_is_sent() -> None:
    assert change({}, spec=Spec(policy=""))["spec"] == {"policy": ""}


def test_struct_may_be_added_removed_or_null() -> None:
    assert change({"status": None}, status=Status(phase="Up")) == {"status": {"phase": "Up"}}
    assert change({"status": {"phase": "Up", "x": 1}}, status=None) == {}
    assert change({"metadata": {"labels": None}}, spec=Spec(paused=True))["metadata"] == {"labels": None}


def test_raw_subtrees_are_replaced_whole() -> None:
    got = change({"spec": {"body": {"a": 1}}}, spec=Spec(body=msgspec.Raw(b'{"b":2}')))
    assert got == {"spec": {"body": {"b": 2}}}


def test_structs_in_mappings_keep_unknown_fields() -> None:
    original = {"spec": {"byName": {"a": {"port": 1, "x": 1}, "b": {"port": 2, "x": 2}, "c": {"x": 3}}}}
    got = change(original, spec=Spec(by_name={"a": Port(port=9), "b": Port(port=2), "d": Port(port=4)}))
    assert got["spec"]["byName"] == {"a": {"port": 9, "x": 1}, "b": {"port": 2, "x": 2}, "d": {"port": 4}}


class Limits(Model):
    """A model of an author, whose defaults differ from those of the server."""

    size: int = 1
    open: bool = False
    mode: str = ""
    names: tuple[str, ...] = ()
    tags: Mapping[str, str] = {}
    note: str | None = None
    least: int


class Valve(Object):
    limits: Limits
    spare: Limits | None = None


def valve(**limits: Any) -> Valve:
    return Valve(limits=Limits(least=3, **limits))


ALL_SENT = {"size": 1, "open": False, "mode": "", "names": [], "tags": {}, "least": 3}


def test_author_model_sends_values_equal_to_defaults() -> None:
    assert msgspec.json.decode(valve(size=1).encode()) == {"limits": ALL_SENT}


def test_author_update_sends_values_equal_to_defaults() -> None:
    raw = b'{"limits":{"size":3,"open":true,"mode":"a","names":["a"],"tags":{"a":"b"},"note":"n","least":3,"x":1}}'
    before = Valve.decode(raw)
    after = msgspec.structs.replace(before, limits=valve().limits, spare=valve().limits)
    assert msgspec.json.decode(overlay(raw, before, after)) == {"limits": {**ALL_SENT, "x": 1}, "spare": ALL_SENT}


def test_added_struct_is_sent_whole() -> None:
    class Tank(Object):
        limits: Limits = Limits(least=0)

    before = Tank.decode(b"{}")
    after = msgspec.structs.replace(before, limits=Limits(size=1, least=3))
    assert msgspec.json.decode(overlay(b"{}", before, after)) == {"limits": ALL_SENT}


def test_model_keeps_class_variables_names_and_required_fields() -> None:
    class Named(Model):
        LONGEST: ClassVar[int] = 5
        kind_: str = msgspec.field(default="a", name="class")
        carried: msgspec.Raw = EMPTY_RAW
        must: int

    assert Named.LONGEST == 5
    assert msgspec.json.encode(Named(must=1)) == b'{"class":"a","must":1}'
    with pytest.raises(msgspec.ValidationError, match="must"):
        msgspec.json.decode(b"{}", type=Named)


def test_raw_bytes_field_is_never_sent() -> None:
    assert "$raw" not in change({"metadata": {"name": "a"}}, raw=b"other", kind="Widget")


UNKNOWN = st.dictionaries(st.sampled_from(["xA", "xB"]), st.integers() | st.none() | st.lists(st.text(max_size=3)))
SHORT = st.text(max_size=3)
PORTS = st.builds(Port, port=st.integers(0, 2), name=SHORT)
CONDITIONS = st.builds(Condition, type=SHORT, status=SHORT, generation=st.integers(0, 1))
SPECS = st.builds(
    Spec,
    replicas=st.none() | st.integers(0, 3),
    paused=st.booleans(),
    policy=st.sampled_from(["Always", "", "Never"]),
    template=st.builds(
        Template,
        labels=st.none() | st.dictionaries(SHORT, SHORT, max_size=2),
        ports=st.lists(PORTS, max_size=3).map(tuple),
    ),
    by_name=st.dictionaries(st.sampled_from("abc"), PORTS, max_size=2),
)
STATUSES = st.builds(
    Status, ready=st.integers(0, 2), phase=SHORT, conditions=st.lists(CONDITIONS, max_size=3).map(tuple)
)
WIDGETS = st.builds(Widget, kind=st.just("Widget"), spec=SPECS, status=st.none() | STATUSES)
BORDER = ("labels", "byName")  # keys below are names, not fields


def invent(tree: Any, data: st.DataObject, inside: str = "") -> Any:
    """Return the tree with invented fields in every object."""
    if isinstance(tree, list):
        return [invent(item, data) for item in tree]
    if not isinstance(tree, dict):
        return tree
    kept = {key: invent(value, data, key) for key, value in tree.items()}
    return kept if inside in BORDER else {**kept, **data.draw(UNKNOWN)}


def invented(tree: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Return every invented field outside lists, by path."""
    if not isinstance(tree, dict):
        return {}
    names = path[-1:] and path[-1] in BORDER
    found = {} if names else {(*path, key): value for key, value in tree.items() if key.startswith("x")}
    for key, value in tree.items():
        found.update(invented(value, (*path, key)))
    return found


def exists(tree: Any, path: tuple[str, ...]) -> bool:
    return not path or (isinstance(tree, dict) and path[0] in tree and exists(tree[path[0]], path[1:]))


def test_reversed_list_of_20000_items_is_matched_in_linear_time() -> None:
    conditions = [{"type": f"t{number}", "unknown": number} for number in range(20_000)]
    data = msgspec.json.encode({"status": {"conditions": conditions}})
    before = Widget.decode(data)
    assert before.status is not None
    status = msgspec.structs.replace(before.status, conditions=before.status.conditions[::-1])
    with cpu_limit(2.0):
        after = overlay(data, before, msgspec.structs.replace(before, status=status))
    assert msgspec.json.decode(after)["status"]["conditions"] == conditions[::-1]


@settings(max_examples=200, deadline=None)
@given(WIDGETS, WIDGETS, st.data())
def test_overlay_decodes_to_after_and_keeps_unknown_fields(old: Widget, new: Widget, data: st.DataObject) -> None:
    original = invent(msgspec.json.decode(old.encode()), data)
    raw = msgspec.json.encode(original)
    before = Widget.decode(raw)
    got = overlay(raw, before, new)
    assert Widget.decode(got, keep=False) == new
    tree = msgspec.json.decode(got)
    typed = msgspec.to_builtins(new)
    lost = {path for path, value in invented(original).items() if path not in invented(tree)}
    for path in lost:
        assert not exists(typed, path[:-1]), f"{path} was lost though its object is still there"
    assert invented(tree).items() <= invented(original).items()


@settings(max_examples=100, deadline=None)
@given(st.lists(CONDITIONS, max_size=4), st.permutations(range(4)), st.data())
def test_reordered_list_keeps_all_fields(conditions: list[Condition], order: list[int], data: st.DataObject) -> None:
    original = invent({"status": {"conditions": msgspec.to_builtins(conditions)}}, data)
    raw = msgspec.json.encode(original)
    before = Widget.decode(raw)
    assert before.status is not None
    moved = tuple(before.status.conditions[at] for at in order if at < len(conditions))
    got = overlay(raw, before, msgspec.structs.replace(before, status=Status(conditions=moved)))
    assert sorted(map(str, msgspec.json.decode(got)["status"]["conditions"])) == sorted(
        map(str, original["status"]["conditions"])
    )


@pytest.mark.parametrize("text", [b"[]", b"3", b"{"])
def test_original_other_than_object_is_refused(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        overlay(text, Widget(), Widget(kind="Widget"))
