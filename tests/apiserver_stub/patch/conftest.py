"""A small schema with every type of list and map of server-side apply, and matching objects."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import strategies as st

from apiserver_stub.kinds.schema.schema import Schema, Schemas

Tree = dict[str, Any]

STRING: Tree = {"type": "string"}
MAP: Tree = {"type": "object", "values": STRING}


def array(items: Tree, list_type: str = "", *keys: str) -> Tree:
    return {"type": "array", "items": items, "listType": list_type, "listMapKeys": list(keys)}


def struct(**fields: Tree) -> Tree:
    return {"type": "object", "fields": fields}


PORT = struct(
    number={"type": "integer"}, protocol={"type": "string", "default": "TCP"}, name=STRING, hosts=array(STRING, "set")
)
DEFINITIONS: dict[str, Tree] = {
    "Spec": struct(
        replicas={"type": "integer"},
        mode=STRING,
        ports=array(PORT, "map", "number", "protocol"),
        steps=array({"ref": "Step"}, "map", "name"),
        colors=array(STRING, "set"),
        args=array(STRING, "atomic"),
        plain=array(STRING),
        selector={**MAP, "mapType": "atomic"},
        settings=MAP,
        place={**struct(zone=STRING, rack=STRING), "mapType": "atomic"},
        strategy=struct(type=STRING, limit=STRING),
        nested=struct(mode=STRING, colors=array(STRING, "set")),
        free={"type": "object", "fields": {}, "preserve": True},
        any={"type": "any"},
    ),
    "Step": struct(name=STRING, image=STRING, env=array(struct(name=STRING, value=STRING), "map", "name")),
    "Metadata": struct(
        name=STRING,
        namespace=STRING,
        uid=STRING,
        resourceVersion=STRING,
        labels=MAP,
        annotations=MAP,
        finalizers=array(STRING, "set"),
        managedFields=array({"type": "any"}, "atomic"),
    ),
    "Thing": struct(
        apiVersion=STRING,
        kind=STRING,
        metadata={"ref": "Metadata", "default": {}},
        spec={"ref": "Spec", "default": {}},
    ),
}

_WORDS = st.sampled_from("abc")
_TEXTS = st.sampled_from(["1", "2", "3"])
_MAPS = st.dictionaries(_WORDS, _TEXTS, min_size=1, max_size=3)


def _some(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[Tree]:
    return st.fixed_dictionaries({}, optional=members)


def _items(element: st.SearchStrategy[Tree], *keys: str) -> st.SearchStrategy[list[Tree]]:
    return st.lists(element, min_size=1, max_size=3, unique_by=lambda e: tuple(e.get(key, "TCP") for key in keys))


_ENV = st.fixed_dictionaries({"name": _WORDS, "value": _TEXTS})
_STEP = st.fixed_dictionaries({"name": _WORDS}, optional={"image": _TEXTS, "env": _items(_ENV, "name")})
_PORT = st.fixed_dictionaries(
    {"number": st.integers(1, 3)}, optional={"protocol": st.sampled_from(["TCP", "UDP"]), "name": _WORDS}
)
_SPECS = _some(
    replicas=st.integers(1, 3),
    mode=_TEXTS,
    ports=_items(_PORT, "number", "protocol"),
    steps=_items(_STEP, "name"),
    colors=st.lists(_WORDS, min_size=1, max_size=3, unique=True),
    args=st.lists(_WORDS, min_size=1, max_size=2),
    selector=_MAPS,
    settings=_MAPS,
    place=st.fixed_dictionaries({"zone": _WORDS}),
    strategy=st.fixed_dictionaries({"type": _TEXTS}),
    free=st.dictionaries(_WORDS, _TEXTS | _MAPS | st.lists(_TEXTS, max_size=2), min_size=1, max_size=2),
)


class Things:
    """The schema node, handmade objects, and a strategy for others."""

    node: Schema = Schemas(DEFINITIONS).node("Thing")
    drawn: st.SearchStrategy[Tree] = st.builds(
        lambda spec, labels: Things.thing(spec, labels), _SPECS, st.none() | _MAPS
    )

    @staticmethod
    def thing(spec: Mapping[str, Any] | None = None, labels: Mapping[str, str] | None = None) -> Tree:
        metadata: Tree = {"name": "a"}
        if labels:
            metadata["labels"] = dict(labels)
        return {"apiVersion": "v1", "kind": "Thing", "metadata": metadata, **({"spec": dict(spec)} if spec else {})}


@pytest.fixture(scope="session")
def things() -> type[Things]:
    return Things
