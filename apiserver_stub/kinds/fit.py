"""Objects fitted to their schema, of whichever sort it is."""

from apiserver_stub.kinds.schema.clean import Report, clean_tree
from apiserver_stub.kinds.schema.schema import Schema
from apiserver_stub.kinds.structural import objects
from apiserver_stub.kinds.structural.schema import StructuralSchema
from controller_manager.common.api.tree import Tree


def fit_tree(tree: Tree, schema: Schema, *, nulls: bool = False) -> Report:
    """Fit a tree to its schema, in place; returns what did not fit. See `clean_tree`, and `fit` for structural ones,
    which also says which `nulls` stay.
    """
    return objects.fit(tree, schema, nulls=nulls) if isinstance(schema, StructuralSchema) else clean_tree(tree, schema)
