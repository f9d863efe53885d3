"""Fit objects to their schema, built-in or structural."""

from apiserver_stub.kinds.schema.clean import Report, clean_tree
from apiserver_stub.kinds.schema.schema import Schema
from apiserver_stub.kinds.structural import objects
from apiserver_stub.kinds.structural.schema import StructuralSchema
from controller_manager.common.api.tree import Tree


def fit_tree(tree: Tree, schema: Schema, *, nulls: bool = False) -> Report:
    """Fit a tree to its schema, in place, and return what did not fit. See `clean_tree`. For structural schemas see
    `objects.fit`, which uses `nulls` too.
    """
    return objects.fit(tree, schema, nulls=nulls) if isinstance(schema, StructuralSchema) else clean_tree(tree, schema)
