"""What is said of definitions, as a real server says it, and of definitions that are meant to do harm."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from apiserver_stub.kinds.defaults.kinds import apply_defaults
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.schema.clean import clean
from apiserver_stub.kinds.validate import validate
from controller_manager.common.api.errors import Cause
from controller_manager.common.api.tree import Tree
from tests.apiserver_stub.apis.apiextensions.rows import MANIFESTS, stored_spec
from tests.pace import cpu_limit

found = built_in().find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
assert found is not None
KIND: ResourceInfo = found
# Sentences of the server's own, where the real one says the same in other words.
OWN_WORDS = ("DNS-1035", "RFC 1123")


def made(manifest: Tree) -> Tree:
    tree = copy.deepcopy(manifest)
    assert clean(tree, KIND).wrong == ()
    apply_defaults(tree, KIND)
    KIND.strategy.prepare_create(tree)
    clean(tree, KIND)
    return tree


def changed(old: Tree, change: Callable[[Tree], Any]) -> list[Cause]:
    new = copy.deepcopy(old)
    change(new)
    apply_defaults(new, KIND)
    KIND.strategy.prepare_update(new, old)
    return validate(KIND, new, old)


@pytest.mark.parametrize("row", MANIFESTS, ids=lambda row: row["id"])
def test_causes_are_those_of_a_real_server(row: Any) -> None:
    tree = made(row["manifest"])
    told = [[cause.field, cause.reason, cause.message] for cause in validate(KIND, tree, None)]
    wanted = row.get("causes", [])
    assert [cause[:2] for cause in told] == [cause[:2] for cause in wanted]
    for cause, expected in zip(told, wanted, strict=True):
        if not any(words in expected[2] for words in OWN_WORDS):
            assert cause == expected
    if not wanted:
        assert tree["spec"] == stored_spec(row)
        assert tree["status"]["storedVersions"] == row["storedVersions"]


def definition(schema: Tree, **spec: Any) -> Tree:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "things", "kind": "Thing"}
    whole = {"group": "example.org", "scope": "Namespaced", "names": names, "versions": [version], **spec}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.org"}, "spec": whole,
    }  # fmt: skip


def open_object(**more: Any) -> Tree:
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True, **more}


def established(manifest: Tree) -> Tree:
    tree = made(manifest)
    tree["status"]["conditions"] = [{"type": "Established", "status": "True"}]
    return tree


def fields(causes: list[Cause]) -> list[tuple[str, str]]:
    return [(cause.field, cause.reason.removeprefix("FieldValue")) for cause in causes]


class TestChanges:
    def test_of_names_and_scope(self) -> None:
        old = established(definition(open_object()))

        def change(tree: Tree) -> None:
            tree["spec"]["scope"] = "Cluster"
            tree["spec"]["group"] = "example.com"
            tree["spec"]["names"] |= {"kind": "Other", "plural": "others"}

        assert fields(changed(old, change)) == [
            ("spec.scope", "Invalid"), ("spec.names.kind", "Invalid"), ("spec.group", "Invalid"),
            ("spec.names.plural", "Invalid"),
        ]  # fmt: skip

    def test_of_the_kind_before_anybody_is_served(self) -> None:
        old = made(definition(open_object()))
        assert changed(old, lambda tree: tree["spec"]["names"].update(kind="Other")) == []

    def test_a_stored_version_stays(self) -> None:
        old = made(definition(open_object()))
        causes = changed(old, lambda tree: tree["spec"]["versions"][0].update(name="v2"))
        assert fields(causes) == [("status.storedVersions[0]", "Invalid")]

    @pytest.mark.parametrize(
        "wrong",
        [
            {"type": "odd"},
            {
                "type": "array", "x-kubernetes-list-type": "set",
                "items": {"type": "object", "properties": {"a": {"type": "string"}}},
            },
            {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}}},
            },
        ],
    )  # fmt: skip
    def test_what_is_wrong_already_may_stay(self, wrong: Tree) -> None:
        manifest = definition(open_object(properties={"spec": open_object(properties={"a": wrong})}))
        tree = made(manifest)
        assert validate(KIND, tree, None)
        assert changed(tree, lambda tree: tree["spec"]["names"].update(shortNames=["th"])) == []

    def test_too_many_selectable_fields_may_stay(self) -> None:
        named = {f"f{index}": {"type": "string"} for index in range(9)}
        manifest = definition(open_object(properties={"spec": open_object(properties=named)}))
        manifest["spec"]["versions"][0]["selectableFields"] = [{"jsonPath": f".spec.{name}"} for name in named]
        tree = made(manifest)
        assert fields(validate(KIND, tree, None)) == [("spec.selectableFields", "TooMany")]
        assert changed(tree, lambda tree: tree["spec"]["names"].update(shortNames=["th"])) == []
        causes = changed(tree, lambda tree: tree["spec"]["versions"][0]["selectableFields"].reverse())
        assert fields(causes) == [("spec.selectableFields", "TooMany")]

    def test_of_a_bundle_once_it_is_used(self) -> None:
        webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://h/", "caBundle": "bm8="}}
        bad = {"strategy": "Webhook", "webhook": webhook}
        assert validate(KIND, made(definition(open_object(), conversion=bad)), None) == []
        old = established(definition(open_object()))
        causes = changed(old, lambda tree: tree["spec"].update(conversion=copy.deepcopy(bad)))
        assert fields(causes) == [("spec.conversion.webhookClientConfig.caBundle", "Invalid")]


def schema_of_a(schema: Tree) -> Tree:
    return definition(open_object(properties={"spec": open_object(properties={"a": schema})}))


class TestFit:
    """Schemas where the published API tells of anything: items, and values without a name of their own."""

    @pytest.mark.parametrize(
        ("schema", "kept"),
        [
            ({"items": {"type": "string", "bogus": 1, "nullable": False}}, {"items": {"type": "string"}}),
            ({"items": {"items": {"type": "string", "default": None}}}, {"items": {"items": {"type": "string"}}}),
            ({"items": [{"title": ""}]}, {"items": [{}]}),
            ({"items": []}, {}),
            ({"items": True}, {}),
            ({"items": "x"}, {}),
            (
                {"additionalProperties": {"properties": {"x": {"odd": 1}}}},
                {"additionalProperties": {"properties": {"x": {}}}},
            ),
            ({"additionalProperties": False}, {"additionalProperties": False}),
            ({"additionalProperties": None}, {}),
            ({"dependencies": {"x": ["y"], "z": {"odd": 1}}}, {"dependencies": {"x": ["y"], "z": {}}}),
        ],
    )  # fmt: skip
    def test_what_is_kept(self, schema: Tree, kept: Tree) -> None:
        tree = schema_of_a(copy.deepcopy(schema))
        assert clean(tree, KIND).wrong == ()
        (version,) = tree["spec"]["versions"]
        assert version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["a"] == kept
        again = copy.deepcopy(tree)
        assert clean(again, KIND).wrong == ()
        assert again == tree

    @pytest.mark.parametrize(
        ("schema", "where"),
        [
            ({"items": {"type": 5}}, "items.type"),
            ({"items": {"items": {"maxLength": 1.5}}}, "items.items.maxLength"),
            ({"items": [5]}, "items[0]"),
            ({"additionalProperties": "x"}, "additionalProperties"),
            ({"additionalProperties": ["x"]}, "additionalProperties"),
        ],
    )
    def test_what_is_wrong(self, schema: Tree, where: str) -> None:
        (wrong,) = clean(schema_of_a(schema), KIND).wrong
        assert wrong.startswith(f"spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.a.{where}: ")


class TestVersions:
    def test_fields_are_selectable_where_the_schema_is_told(self) -> None:
        """What all versions say alike is told once, and looked for only there."""
        manifest = definition(open_object(properties={"spec": open_object(properties={"a": {"type": "string"}})}))
        (first,) = manifest["spec"]["versions"]
        first["selectableFields"] = [{"jsonPath": ".spec.a"}]
        manifest["spec"]["versions"].append({**copy.deepcopy(first), "name": "v2", "storage": False})
        assert validate(KIND, made(manifest), None) == []
        del manifest["spec"]["versions"][1]["selectableFields"]
        assert fields(validate(KIND, made(manifest), None)) == [("spec.versions[0].selectableFields", "Invalid")]

    @pytest.mark.parametrize(
        ("url", "reason"),
        [("::", "Required"), ("a:b/c", "Invalid"), ("1a:b", "Required"), ("https://h:x/", "Required"),
         ("https://h/%zz", "Required"), ("https://h/\n", "Required"), ("https://h:1/a", "")],
    )  # fmt: skip
    def test_urls_of_webhooks(self, url: str, reason: str) -> None:
        webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": url}}
        tree = made(definition(open_object(), conversion={"strategy": "Webhook", "webhook": webhook}))
        told = {cause.reason.removeprefix("FieldValue") for cause in validate(KIND, tree, None)}
        assert told == ({reason} if reason else set())

    def test_of_a_name_that_is_none(self) -> None:
        manifest = definition(open_object())
        manifest["spec"]["versions"][0]["name"] = "V1"
        told = fields(validate(KIND, made(manifest), None))
        assert told == [("spec.versions[0].name", "Invalid"), ("spec.version", "Invalid")]


def ruled(*rules: Tree, **more: Any) -> Tree:
    schema = {"type": "integer", "x-kubernetes-validations": list(rules), **more}
    return open_object(properties={"spec": open_object(properties={"a": schema})})


AT = "spec.validation.openAPIV3Schema.properties[spec].properties[a]"


class TestDefaults:
    @pytest.mark.parametrize(
        ("schema", "causes"),
        [
            ({"type": "object", "properties": {"x": {"type": "string"}}, "default": {"y": 1}}, [("", "Invalid")]),
            ({"type": "object", "properties": {"x": {"type": "string"}}, "default": {"x": 1}}, [(".x", "TypeInvalid")]),
            ({"type": "array", "items": {"type": "string"}, "default": ["a", 1]}, [("[1]", "TypeInvalid")]),
            ({"type": "string", "default": "abc", "maxLength": 2}, [("", "TooLong")]),
            ({"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True,
              "default": {"kind": "Pod"}}, [(".apiVersion", "Required")]),
            ({"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True,
              "default": {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a/b"}}},
             [(".metadata.name", "Invalid")]),
            ({"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True,
              "default": {"kind": "Pod", "apiVersion": "v1", "metadata": "x"}}, [("", "Invalid")]),
        ],
    )  # fmt: skip
    def test_are_right_by_their_schema(self, schema: Tree, causes: list[tuple[str, str]]) -> None:
        tree = made(definition(open_object(properties={"spec": open_object(properties={"a": schema})})))
        assert fields(validate(KIND, tree, None)) == [(f"{AT}.default{where}", reason) for where, reason in causes]

    def test_of_metadata_of_resources(self) -> None:
        named = {"type": "object", "properties": {"name": {"type": "string", "default": "a/b"}}}
        inner = open_object(properties={"metadata": named}, **{"x-kubernetes-embedded-resource": True})
        tree = made(definition(open_object(properties={"spec": open_object(properties={"a": inner})})))
        (cause,) = validate(KIND, tree, None)
        assert cause.field == f"{AT}.properties[metadata].properties[name].default"
        assert "must result in valid metadata" in cause.message

    def test_with_unknown_fields_may_stay(self) -> None:
        schema = {"type": "object", "properties": {"x": {"type": "string"}}, "default": {"y": 1}}
        tree = made(definition(open_object(properties={"spec": open_object(properties={"a": schema})})))
        assert changed(tree, lambda tree: tree["spec"]["names"].update(shortNames=["th"])) == []


class TestRules:
    def test_are_not_compiled_where_the_schema_is_wrong(self) -> None:
        tree = made(definition(ruled({"rule": "nonsense ("}, uniqueItems=True)))
        assert fields(validate(KIND, tree, None)) == [(f"{AT}.uniqueItems", "Forbidden")]

    def test_of_values_without_a_type(self) -> None:
        schema = ruled({"rule": "true"})
        del schema["properties"]["spec"]["properties"]["a"]["type"]
        schema["properties"]["spec"]["properties"]["a"]["x-kubernetes-preserve-unknown-fields"] = True
        (cause,) = validate(KIND, made(definition(schema)), None)
        assert (cause.field, cause.reason) == (f"{AT}.x-kubernetes-validations", "InternalError")

    def test_that_are_stored_may_cost_what_they_do(self) -> None:
        items = {"type": "array", "maxItems": 200, "items": {"type": "string", "maxLength": 100}}
        costly = [{"rule": "self.all(x, self.all(y, x.contains(y)))"}]
        schema = open_object(properties={"spec": open_object(properties={
            "a": {**items, "x-kubernetes-validations": costly},
        })})  # fmt: skip
        tree = made(definition(schema))
        told = validate(KIND, tree, None)
        assert fields(told)[0] == (f"{AT}.x-kubernetes-validations[0].rule", "Forbidden")
        assert len(told) == 1
        assert changed(tree, lambda tree: tree["spec"]["names"].update(shortNames=["th"])) == []


def nested(levels: int) -> Tree:
    schema: Tree = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return open_object(properties={"spec": schema})


def juncted(levels: int) -> Tree:
    schema: Tree = {"minLength": 1}
    for level in range(levels):
        schema = {("allOf", "anyOf", "oneOf")[level % 3]: [schema, {"not": {"maxLength": 3}}]}
    return open_object(properties={"a": {"type": "string", **schema}})


def wide(**more: Any) -> Tree:
    return open_object(properties={f"p{index}": {"type": "string", **more} for index in range(30_000)})


@pytest.mark.parametrize(
    ("schema", "causes"),
    [
        (nested(98), 0),
        (nested(120), 1),
        (juncted(60), 0),
        (wide(), 0),
        (wide(uniqueItems=True), 1000),
        (open_object(properties={"e": {"type": "string", "enum": [str(index) for index in range(90_000)]}}), 0),
        (open_object(properties={"s": {"type": "string", "pattern": "(a+)+$" * 1000}}), 0),
        (open_object(properties={"s": {"type": "string", "pattern": "((((((a{1000}){1000}){1000}){1000}))))"}}), 1),
        (open_object(required=["x"] * 90_000), 0),
        (wide(default="x" * 10), 0),
        (ruled(*({"rule": f"self != {index}"} for index in range(2000))), 0),
        (ruled({"rule": " || ".join(["self == 1"] * 5000)}), 0),
        (ruled({"rule": "(" * 5000 + "true" + ")" * 5000}), 1),
    ],
    ids=[
        "deep",
        "too deep",
        "junctors",
        "wide",
        "wide and wrong",
        "enum",
        "pattern",
        "large pattern",
        "required",
        "defaults",
        "rules",
        "long rule",
        "deep rule",
    ],
)
def test_a_bomb_costs_little(schema: Tree, causes: int) -> None:
    tree = made(definition(schema))
    with cpu_limit(10):
        assert len(validate(KIND, tree, None)) == causes
