"""Rules of CustomResourceDefinitions that an update may break if the stored object does (ratcheting, KEP-4008)."""

from dataclasses import dataclass, field

from apiserver_stub.kinds.rules.metadata import check_embedded_metadata
from apiserver_stub.kinds.rules.webhook_client_config import KNOWN_REVIEW_VERSIONS, bundle_problem
from apiserver_stub.kinds.strategies.definitions import ESTABLISHED, is_true
from apiserver_stub.kinds.structural.definition_schema import SchemaOptions, options_for
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.tree import Tree

MOST_SELECTABLE_FIELDS = 8


@dataclass(frozen=True, slots=True)
class Ratchets:
    """The rules that an update may break because the stored object does.

    `many_fields` are the versions with the same, too many selectable fields, `unchanged` those with the same schema.
    """

    schema: SchemaOptions = field(default_factory=lambda: SchemaOptions(check_metadata=check_embedded_metadata))
    needs_schema: bool = True
    known_review: bool = True
    any_bundle: bool = True
    many_fields: frozenset[str] = frozenset()
    unchanged: frozenset[str] = frozenset()


def ratchets_of(new: Tree, old: Tree) -> Ratchets:
    """Return the rules that `new` may break because `old` does."""
    spec = old.get("spec", {})
    config = get_in(spec, ("conversion", "webhook", "clientConfig")) or {}
    reviews = get_in(spec, ("conversion", "webhook", "conversionReviewVersions")) or ()
    before = {version.get("name"): version for version in spec.get("versions", ())}
    schemas = [schema for version in before.values() if (schema := schema_of(version)) is not None]
    same = [
        (version.get("name", ""), version, before[version.get("name")])
        for version in get_in(new, ("spec", "versions")) or ()
        if version.get("name") in before
    ]
    many = {
        name
        for name, version, was in same
        if len(was.get("selectableFields", ())) > MOST_SELECTABLE_FIELDS
        and version.get("selectableFields") == was["selectableFields"]
    }
    return Ratchets(
        options_for(schemas, check_embedded_metadata),
        needs_schema=len(schemas) == len(before),
        known_review=not reviews or any(review in KNOWN_REVIEW_VERSIONS for review in reviews),
        any_bundle=not is_true(old, ESTABLISHED) or bool(bundle_problem(config)),
        many_fields=frozenset(many),
        unchanged=frozenset(name for name, version, was in same if version.get("schema") == was.get("schema")),
    )


def schema_of(version: Tree) -> Tree | None:
    """Return the schema of a version, or None."""
    found: Tree | None = get_in(version, ("schema", "openAPIV3Schema"))
    return found
