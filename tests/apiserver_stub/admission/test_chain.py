"""Which plugins are asked about a request, and in which order."""

from typing import Any

import pytest

from apiserver_stub.admission import ALL, Admission, Attributes, Operation, Plugin, Rule
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.storage.interface import Write
from controller_manager.api import errors
from controller_manager.serving.authentication import User

KINDS = {kind.storage: kind for kind in built_in().all()}
ROW = Write("configmaps", "default/a", 0, b"{}")


def about(operation: Operation, resource: str = "pods", subresource: str = "") -> Attributes:
    return Attributes(operation, KINDS[resource], "default", "p", subresource, {}, None, User("somebody"))


class Log:
    """Plugins that write down their names."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def plugin(self, name: str, refuses: bool = False, *also: Write) -> Plugin:
        async def plugin(_attributes: Attributes) -> Any:
            self.names.append(name)
            if refuses:
                raise errors.Forbidden(name)
            return also

        return plugin


@pytest.mark.parametrize(
    ("operation", "resource", "subresource", "asked"),
    [
        ("create", "pods", "", ["pods", "all"]),
        ("create", "services", "", ["all"]),
        ("update", "pods", "", ["all"]),
        ("update", "pods", "status", ["status"]),
        ("delete", "pods", "", ["all"]),
        ("connect", "pods", "exec", ["every part"]),
        ("create", "pods", "exec", []),
    ],
)
async def test_a_plugin_is_asked_about_what_its_rule_names(
    operation: Operation, resource: str, subresource: str, asked: list[str]
) -> None:
    log = Log()
    rules = [
        Rule(log.plugin("pods"), ("create",), ("pods",)),
        Rule(log.plugin("all"), ("create", "update", "delete")),
        Rule(log.plugin("status"), ("update",), ("pods", "nodes"), ("status",)),
        Rule(log.plugin("every part"), ("connect",), (ALL,), (ALL,)),
    ]
    admission = Admission(mutating=rules, validating=rules)
    for phase in (admission.mutate, admission.validate):
        for _ in range(2):
            log.names.clear()
            await phase(about(operation, resource, subresource))
            assert log.names == asked


async def test_who_refuses_is_the_last_to_be_asked() -> None:
    log = Log()
    rules = [Rule(log.plugin(name, name == "b"), ("create",)) for name in ("a", "b", "c")]
    with pytest.raises(errors.Forbidden, match="b"):
        await Admission(validating=rules).validate(about("create"))
    assert log.names == ["a", "b"]


async def test_allocation_gathers_what_is_to_be_written_with_the_object() -> None:
    log = Log()
    rules = [Rule(log.plugin("a", False, ROW), ("create",)), Rule(log.plugin("b"), ("create",))]
    assert await Admission(allocation=rules).allocate(about("create")) == [ROW]
    assert await Admission().allocate(about("create")) == []
