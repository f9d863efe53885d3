"""Apply a structural schema to a whole object: fit it when it arrives, and validate it when it is complete."""

from collections.abc import Callable

from apiserver_stub.common.error_list import ErrorList, place
from apiserver_stub.kinds.schema.clean import Report
from apiserver_stub.kinds.structural.correlation import Correlation
from apiserver_stub.kinds.structural.defaulting import fill_defaults
from apiserver_stub.kinds.structural.embedded import (
    CheckMetadata,
    WrongMetadataError,
    check_embedded,
    coerce,
    fit_metadata,
)
from apiserver_stub.kinds.structural.lists import report_duplicates
from apiserver_stub.kinds.structural.pruning import prune, prune_nulls
from apiserver_stub.kinds.structural.schema import StructuralSchema
from apiserver_stub.kinds.structural.shapes import takes
from apiserver_stub.kinds.structural.values import add_causes, check
from controller_manager.common.api.tree import Tree

# Reports other errors of an object, after those in its values and before those in embedded resources.
CheckScale = Callable[[Tree, ErrorList], None]


def fit(tree: Tree, schema: StructuralSchema, *, drop: bool = False, nulls: bool = False) -> Report:
    """Fit an object to its schema, in place: remove unknown fields and nulls that are not allowed, coerce metadata.

    Values of the wrong type stay and are validated later. With `nulls`, so do nulls. Wrong metadata are reported, or
    removed with `drop`.
    """
    if tree.get("metadata", tree) is None:
        tree["metadata"] = {}
    report = fit_metadata(tree["metadata"]) if "metadata" in tree else Report()
    if report.wrong and not drop:
        return report
    unknown = [f"metadata.{path}" for path in report.unknown]
    if not takes(schema, tree):
        unknown += prune(tree, schema)
        if not nulls:
            prune_nulls(tree, schema)
        try:
            unknown += coerce(tree, schema, drop=drop)
        except WrongMetadataError as error:
            return Report(wrong=(str(error),))
    return Report(tuple(unknown))


def complete(tree: Tree, schema: StructuralSchema) -> bool:
    """Adapt a stored object to the current schema, in place: remove unknown fields and set defaults. Return whether it
    changed.
    """
    if takes(schema, tree):
        return fill_defaults(tree, schema)
    fit(tree, schema, drop=True)
    fill_defaults(tree, schema)
    return True


def check_object(
    tree: Tree, schema: StructuralSchema, check_scale: CheckScale, check_metadata: CheckMetadata, errors: ErrorList
) -> bool:
    """Report errors of a new object, except in its metadata and CEL rules. Return whether it fits its schema."""
    taken = takes(schema, tree)
    if not taken:
        add_causes(check(tree, schema.raw), errors)
    check_scale(tree, errors)
    check_embedded(tree, schema, check_metadata, errors)
    report_duplicates(tree, schema, errors)
    return taken


def check_change(
    correlation: Correlation,
    schema: StructuralSchema,
    check_scale: CheckScale,
    check_metadata: CheckMetadata,
    errors: ErrorList,
) -> bool:
    """Report new errors of an updated object, except in metadata and CEL rules. Return whether it fits its schema."""
    new: Tree = correlation.new
    taken = takes(schema, new)
    if not taken:
        add_causes(check(new, schema.raw, correlation), errors)
    check_scale(new, errors)
    check_embedded(new, schema, check_metadata, errors)
    _check_new_duplicates(correlation, schema, errors)
    return taken


def check_status(
    correlation: Correlation, schema: StructuralSchema, check_scale: CheckScale, errors: ErrorList
) -> None:
    """Report errors in the status of an object if only the status was written."""
    new: Tree = correlation.new
    status = schema.properties.get("status")
    if status is not None and "status" in new and not takes(status, new["status"]):
        add_causes(check(new["status"], status.raw, correlation.key("status")), errors, place("status"))
    check_scale(new, errors)
    _check_new_duplicates(correlation, schema, errors)


def _check_new_duplicates(correlation: Correlation, schema: StructuralSchema, errors: ErrorList) -> None:
    found, before = ErrorList(), ErrorList()
    report_duplicates(correlation.new, schema, found)
    if found.causes:
        report_duplicates(correlation.old, schema, before)
    if not before.causes:
        errors.causes += found.causes
