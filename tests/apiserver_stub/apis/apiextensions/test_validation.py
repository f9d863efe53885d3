"""Validation of definitions, as in kube-apiserver, and of hostile definitions."""

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
from tests.apiserver_stub.apis.apiextensions.recorded_definitions import MANIFESTS, stored_spec
from tests.pace import cpu_limit

found = built_in().find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
assert found is not None
KIND: ResourceInfo = found
# Messages that differ from kube-apiserver's only in their words.
OWN_WORDS = ("DNS-1035", "RFC 1123")


def new_definition(manifest: Tree) -> Tree:
    tree = copy.deepcopy(manifest)
    assert clean(tree, KIND).wrong == ()
    apply_defaults(tree, KIND)
    KIND.strategy.prepare_create(tree)
    clean(tree, KIND)
    return tree


def causes_of_change(old: Tree, change: Callable[[Tree], Any]) -> list[Cause]:
    new = copy.deepcopy(old)
    change(new)
    apply_defaults(new, KIND)
    KIND.strategy.prepare_update(new, old)
    return validate(KIND, new, old)


@pytest.mark.parametrize("row", MANIFESTS, ids=lambda row: row["id"])
def test_causes_match_kube_apiserver(row: Any) -> None:
    tree = new_definition(row["manifest"])
    causes = [[cause.field, cause.reason, cause.message] for cause in validate(KIND, tree, None)]
    wanted = row.get("causes", [])
    assert [cause[:2] for cause in causes] == [cause[:2] for cause in wanted]
    for cause, expected in zip(causes, wanted, strict=True):
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
    tree = new_definition(manifest)
    tree["status"]["conditions"] = [{"type": "Established", "status": "True"}]
    return tree


def fields(causes: list[Cause]) -> list[tuple[str, str]]:
    return [(cause.field, cause.reason.removeprefix("FieldValue")) for cause in causes]


class TestChanges:
    def test_names_and_scope_are_immutable(self) -> None:
        old = established(definition(open_object()))

        def change(tree: Tree) -> None:
            tree["spec"]["scope"] = "Cluster"
            tree["spec"]["group"] = "example.com"
            tree["spec"]["names"] |= {"kind": "Other", "plural": "others"}

        assert fields(causes_of_change(old, change)) == [
            ("spec.scope", "Invalid"), ("spec.names.kind", "Invalid"), ("spec.group", "Invalid"),
            ("spec.names.plural", "Invalid"),
        ]  # fmt: skip

    def test_kind_may_change_before_it_is_served(self) -> None:
        old = new_definition(definition(open_object()))
        assert causes_of_change(old, lambda tree: tree["spec"]["names"].update(kind="Other")) == []

    def test_stored_version_must_not_be_removed(self) -> None:
        old = new_definition(definition(open_object()))
        causes = causes_of_change(old, lambda tree: tree["spec"]["versions"][0].update(name="v2"))
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
    def test_existing_invalid_schema_is_tolerated(self, wrong: Tree) -> None:
        manifest = definition(open_object(properties={"spec": open_object(properties={"a": wrong})}))
        tree = new_definition(manifest)
        assert validate(KIND, tree, None)
        assert causes_of_change(tree, lambda tree: tree["spec"]["names"].update(shortNames=["th"])) == []

    def test_existing_excess_selectable_fields_are_tolerated(self) -> None:
        named = {f"f{index}": {"type": "string"} for index in range(9)}
        manifest = definition(open_object(properties={"spec": open_object(properties=named)}))
        manifest["spec"]["versions"][0]["selectableFields"] = [{"jsonPath": f".spec.{name}"} for name in named]
        tree = new_definition(manifest)
        assert fields(validate(KIND, tree, None)) == [("spec.selectableFields", "TooMany")]
        assert causes_of_change(tree, lambda tree: tree["spec"]["names"].update(shortNames=["th"])) == []
        causes = causes_of_change(tree, lambda tree: tree["spec"]["versions"][0]["selectableFields"].reverse())
        assert fields(causes) == [("spec.selectableFields", "TooMany")]

    def test_ca_bundle_is_validated_once_used(self) -> None:
        webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://h/", "caBundle": "bm8="}}
        bad = {"strategy": "Webhook", "webhook": webhook}
        assert validate(KIND, new_definition(definition(open_object(), conversion=bad)), None) == []
        old = established(definition(open_object()))
        causes = causes_of_change(old, lambda tree: tree["spec"].update(conversion=copy.deepcopy(bad)))
        assert fields(causes) == [("spec.conversion.webhookClientConfig.caBundle", "Invalid")]


def definition_with_field(schema: Tree) -> Tree:
    return definition(open_object(properties={"spec": open_object(properties={"a": schema})}))


class TestFit:
    """Schemas that the published API describes: items, and values without a name of their own."""

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
    def test_valid_schema_is_preserved(self, schema: Tree, kept: Tree) -> None:
        tree = definition_with_field(copy.deepcopy(schema))
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
    def test_schema_field_of_wrong_type_is_reported(self, schema: Tree, where: str) -> None:
        (wrong,) = clean(definition_with_field(schema), KIND).wrong
        assert wrong.startswith(f"spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.a.{where}: ")


class TestVersions:
    def test_selectable_fields_are_validated_at_shared_schema(self) -> None:
        """An error in the part that all versions share is reported once, there."""
        manifest = definition(open_object(properties={"spec": open_object(properties={"a": {"type": "string"}})}))
        (first,) = manifest["spec"]["versions"]
        first["selectableFields"] = [{"jsonPath": ".spec.a"}]
        manifest["spec"]["versions"].append({**copy.deepcopy(first), "name": "v2", "storage": False})
        assert validate(KIND, new_definition(manifest), None) == []
        del manifest["spec"]["versions"][1]["selectableFields"]
        assert fields(validate(KIND, new_definition(manifest), None)) == [
            ("spec.versions[0].selectableFields", "Invalid")
        ]

    @pytest.mark.parametrize(
        ("url", "reason"),
        [("::", "Required"), ("a:b/c", "Invalid"), ("1a:b", "Required"), ("https://h:x/", "Required"),
         ("https://h/%zz", "Required"), ("https://h/\n", "Required"), ("https://h:1/a", "")],
    )  # fmt: skip
    def test_webhook_urls_are_validated(self, url: str, reason: str) -> None:
        webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": url}}
        tree = new_definition(definition(open_object(), conversion={"strategy": "Webhook", "webhook": webhook}))
        causes = {cause.reason.removeprefix("FieldValue") for cause in validate(KIND, tree, None)}
        assert causes == ({reason} if reason else set())

    def test_malformed_version_name_is_rejected(self) -> None:
        manifest = definition(open_object())
        manifest["spec"]["versions"][0]["name"] = "V1"
        causes = fields(validate(KIND, new_definition(manifest), None))
        assert causes == [("spec.versions[0].name", "Invalid"), ("spec.version", "Invalid")]


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
    def test_defaults_must_match_their_schema(self, schema: Tree, causes: list[tuple[str, str]]) -> None:
        tree = new_definition(definition(open_object(properties={"spec": open_object(properties={"a": schema})})))
        assert fields(validate(KIND, tree, None)) == [(f"{AT}.default{where}", reason) for where, reason in causes]

    def test_defaults_of_embedded_metadata_are_validated(self) -> None:
        named = {"type": "object", "properties": {"name": {"type": "string", "default": "a/b"}}}
        inner = open_object(properties={"metadata": named}, **{"x-kubernetes-embedded-resource": True})
        tree = new_definition(definition(open_object(properties={"spec": open_object(properties={"a": inner})})))
        (cause,) = validate(KIND, tree, None)
        assert cause.field == f"{AT}.properties[metadata].properties[name].default"
        assert "must result in valid metadata" in cause.message

    def test_existing_default_with_unknown_fields_is_tolerated(self) -> None:
        schema = {"type": "object", "properties": {"x": {"type": "string"}}, "default": {"y": 1}}
        tree = new_definition(definition(open_object(properties={"spec": open_object(properties={"a": schema})})))
        assert causes_of_change(tree, lambda tree: tree["spec"]["names"].update(shortNames=["th"])) == []


class TestRules:
    def test_rules_are_not_compiled_if_schema_is_invalid(self) -> None:
        tree = new_definition(definition(ruled({"rule": "nonsense ("}, uniqueItems=True)))
        assert fields(validate(KIND, tree, None)) == [(f"{AT}.uniqueItems", "Forbidden")]

    def test_rules_on_values_without_type_are_rejected(self) -> None:
        schema = ruled({"rule": "true"})
        del schema["properties"]["spec"]["properties"]["a"]["type"]
        schema["properties"]["spec"]["properties"]["a"]["x-kubernetes-preserve-unknown-fields"] = True
        (cause,) = validate(KIND, new_definition(definition(schema)), None)
        assert (cause.field, cause.reason) == (f"{AT}.x-kubernetes-validations", "InternalError")

    def test_existing_costly_rules_are_tolerated(self) -> None:
        items = {"type": "array", "maxItems": 200, "items": {"type": "string", "maxLength": 100}}
        costly = [{"rule": "self.all(x, self.all(y, x.contains(y)))"}]
        schema = open_object(properties={"spec": open_object(properties={
            "a": {**items, "x-kubernetes-validations": costly},
        })})  # fmt: skip
        tree = new_definition(definition(schema))
        causes = validate(KIND, tree, None)
        assert fields(causes)[0] == (f"{AT}.x-kubernetes-validations[0].rule", "Forbidden")
        assert len(causes) == 1
        assert causes_of_change(tree, lambda tree: tree["spec"]["names"].update(shortNames=["th"])) == []


def nested(levels: int) -> Tree:
    schema: Tree = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return open_object(properties={"spec": schema})


def nested_junctions(levels: int) -> Tree:
    schema: Tree = {"minLength": 1}
    for level in range(levels):
        schema = {("allOf", "anyOf", "oneOf")[level % 3]: [schema, {"not": {"maxLength": 3}}]}
    return open_object(properties={"a": {"type": "string", **schema}})


def wide_schema(**more: Any) -> Tree:
    return open_object(properties={f"p{index}": {"type": "string", **more} for index in range(30_000)})


@pytest.mark.parametrize(
    ("schema", "causes"),
    [
        (nested(98), 0),
        (nested(120), 1),
        (nested_junctions(60), 0),
        (wide_schema(), 0),
        (wide_schema(uniqueItems=True), 1000),
        (open_object(properties={"e": {"type": "string", "enum": [str(index) for index in range(90_000)]}}), 0),
        (open_object(properties={"s": {"type": "string", "pattern": "(a+)+$" * 1000}}), 0),
        (open_object(properties={"s": {"type": "string", "pattern": "((((((a{1000}){1000}){1000}){1000}))))"}}), 1),
        (open_object(required=["x"] * 90_000), 0),
        (wide_schema(default="x" * 10), 0),
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
def test_hostile_schema_is_rejected_cheaply(schema: Tree, causes: int) -> None:
    tree = new_definition(definition(schema))
    with cpu_limit(10):
        assert len(validate(KIND, tree, None)) == causes
