"""The operations of a kind: paths, methods, names, request and response bodies. A table by verb."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from apiserver_stub.apis.openapi.definitions import (
    DELETE_OPTIONS,
    PATCH,
    STATUS,
    WATCH_EVENT,
    Definitions,
    name_of,
    name_of_list,
)
from apiserver_stub.apis.openapi.operation import (
    COLLECTING,
    CONNECTING,
    DELETING,
    LISTING,
    LOGGING,
    PATCHING,
    TEXT,
    WRITING,
    OpenAPIOperation,
    root_of,
    tag_of,
    words,
)
from apiserver_stub.kinds.resource_info import ResourceInfo, Subresource


class _Row(msgspec.Struct, frozen=True):
    """The description of a verb. `word` is the start of the operation's name, `action` its `x-kubernetes-action`. An
    empty `body` or `answer` means the kind's definition; `body` None means no body.
    """

    method: str
    word: str
    action: str
    sentence: str
    query: tuple[str, ...]
    codes: tuple[str, ...] = ("200",)
    body: str | None = ""
    answer: str = ""


_LIST = "list"
_ON_COLLECTION: Mapping[str, _Row] = MappingProxyType({
    "list": _Row("get", "list", "list", "list or watch {}", LISTING, body=None, answer=_LIST),
    "create": _Row("post", "create", "post", "create {}", WRITING, ("200", "201", "202")),
    "deletecollection": _Row(
        "delete", "delete", "deletecollection", "delete many of {}", COLLECTING, body=DELETE_OPTIONS, answer=STATUS
    ),
})  # fmt: skip
_ON_OBJECT: Mapping[str, _Row] = MappingProxyType({
    "get": _Row("get", "read", "get", "read {}", (), body=None),
    "create": _Row("post", "create", "post", "create {}", WRITING, ("200", "201", "202")),
    "update": _Row("put", "replace", "put", "replace {}", WRITING, ("200", "201")),
    "patch": _Row("patch", "patch", "patch", "change parts of {}", PATCHING, ("200", "201"), body=PATCH),
    "delete": _Row(
        "delete", "delete", "delete", "delete {}", DELETING, ("200", "202"), body=DELETE_OPTIONS, answer=STATUS
    ),
})  # fmt: skip
# Custom resources are described differently here.
_OF_CUSTOM: Mapping[str, _Row] = MappingProxyType({
    "get": replace(_ON_OBJECT["get"], query=("resourceVersion",)),
    "patch": replace(_ON_OBJECT["patch"], codes=("200",)),
    "deletecollection": replace(_ON_COLLECTION["deletecollection"], query=LISTING, body=None),
})  # fmt: skip
_ANSWERS = MappingProxyType({"log": TEXT})  # subresources whose response differs from their body
_QUERIES = MappingProxyType({"log": LOGGING})
_WATCH = _Row("get", "watch", "watch", "watch {}; deprecated", LISTING, body=None, answer=WATCH_EVENT)
_METHODS = MappingProxyType({
    "get": ("get", "head", "options"), "create": ("post",), "update": ("put",), "patch": ("patch",),
    "delete": ("delete",),
})  # fmt: skip
_ONLY_OF_PROXIES = frozenset({"head", "options"})


def operations(kind: ResourceInfo, definitions: Definitions) -> Iterator[OpenAPIOperation]:
    """Return all operations of a kind and its subresources."""
    return _OperationsOfKind(kind, definitions).all()


class _OperationsOfKind:
    """The operations of one kind, with the common parts of their names and paths."""

    def __init__(self, kind: ResourceInfo, definitions: Definitions) -> None:
        self._kind = kind
        self._definitions = definitions
        self._own, self._list = name_of(kind), name_of_list(kind)
        self._gv = words(kind.group) + kind.version.capitalize()
        self._tag = f"{tag_of(kind.group)}_{kind.version}"
        self._root = f"/{root_of(kind.group, kind.version)}"
        self._scope = "/namespaces/{namespace}" if kind.namespaced else ""
        rows = {**_ON_COLLECTION, **_ON_OBJECT}
        self._rows = rows if kind.definition else {**rows, **_OF_CUSTOM}
        self._noun = f"{'Namespaced' if kind.namespaced else ''}{kind.kind}"

    def all(self) -> Iterator[OpenAPIOperation]:
        kind, collection = self._kind, f"{self._scope}/{self._kind.plural}"
        for verb in _ON_COLLECTION:
            row = self._rows[verb]
            if verb in kind.verbs:
                many = "Collection" if verb == "deletecollection" else ""
                yield self._operation(row, collection, f"{row.word}{self._gv}{many}{self._noun}")
        for verb in _ON_OBJECT:
            row = self._rows[verb]
            if verb in kind.verbs and verb != "create":
                answer = self._own if verb == "delete" and kind.strategy.shows_deleted else ""
                yield self._operation(row, f"{collection}/{{name}}", f"{row.word}{self._gv}{self._noun}", answer=answer)
        for subresource in kind.subresources.values():
            yield from self._of_subresource(subresource, f"{collection}/{{name}}/{subresource.name}")
        if kind.namespaced and "list" in kind.verbs:
            everywhere = f"list{self._gv}{kind.kind}ForAllNamespaces"
            yield self._operation(_ON_COLLECTION["list"], f"/{kind.plural}", everywhere)
        if "watch" in kind.verbs and kind.definition:  # the deprecated watch paths; custom resources do not list them
            yield from self._watches(collection)

    def _watches(self, collection: str) -> Iterator[OpenAPIOperation]:
        kind, word = self._kind, f"watch{self._gv}"
        yield self._operation(_WATCH, f"/watch{collection}/{{name}}", f"{word}{self._noun}")
        yield self._operation(_WATCH, f"/watch{collection}", f"{word}{self._noun}List", action="watchlist")
        if kind.namespaced:
            everywhere = f"{word}{kind.kind}ListForAllNamespaces"
            yield self._operation(_WATCH, f"/watch/{kind.plural}", everywhere, action="watchlist")

    def _of_subresource(self, subresource: Subresource, path: str) -> Iterator[OpenAPIOperation]:
        noun = self._noun + subresource.name.capitalize()
        about = (subresource.group, subresource.version, subresource.kind)
        if name_of(subresource) not in self._definitions:
            yield from self._connections(subresource, path, noun, about)
            return
        for verb in _ON_OBJECT:
            row = self._rows[verb]
            if verb in subresource.verbs:
                name, answer = f"{row.word}{self._gv}{noun}", _ANSWERS.get(subresource.name, "")
                query = _QUERIES.get(subresource.name, row.query)
                yield self._operation(row, path, name, about=subresource, answer=answer, query=query)

    def _connections(
        self, subresource: Subresource, path: str, noun: str, about: tuple[str, str, str]
    ) -> Iterator[OpenAPIOperation]:
        """Yield the operations of a subresource that connects elsewhere; its bodies are unknown."""
        methods = {method for verb in subresource.verbs for method in _METHODS[verb]}
        is_proxy = subresource.name == "proxy"
        if not is_proxy:
            methods -= _ONLY_OF_PROXIES
        sentence = f"connect to {subresource.name} of {self._kind.kind}"
        for beyond, rest in (("", ""), ("/{path}", "WithPath"))[: 1 + is_proxy]:
            for method in sorted(methods):
                yield OpenAPIOperation(
                    path=self._root + path + beyond,
                    method=method,
                    name=f"connect{self._gv}{method.capitalize()}{noun}{rest}",
                    sentence=sentence,
                    tag=self._tag,
                    answer=TEXT,
                    action="connect",
                    about=about,
                    query=CONNECTING[subresource.kind],
                )

    def _operation(
        self,
        row: _Row,
        path: str,
        name: str,
        *,
        action: str = "",
        about: Subresource | None = None,
        answer: str = "",
        query: tuple[str, ...] | None = None,
    ) -> OpenAPIOperation:
        body = about or self._kind
        named = self._kind if self._kind.custom else body
        own = name_of(body)
        answers = {"": own, _LIST: self._list}
        return OpenAPIOperation(
            path=self._root + path,
            method=row.method,
            name=name,
            sentence=row.sentence.format(self._kind.kind),
            tag=self._tag,
            answer=answer or answers.get(row.answer, row.answer),
            action=action or row.action,
            about=(named.group, named.version, named.kind),
            query=row.query if query is None else query,
            body="" if row.body is None else row.body or own,
            codes=row.codes,
            custom=not self._kind.definition,
        )
