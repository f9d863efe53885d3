"""Which plugins are called for a request, and in which order."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from apiserver_stub.admission import (
    ALL,
    Admission,
    AdmissionContext,
    AdmissionMetrics,
    AdmissionParts,
    AdmissionPlugin,
    Admit,
    Attributes,
    Operation,
    Rule,
    enabled,
)
from apiserver_stub.common.flags import FLAGS
from apiserver_stub.common.flags.admission import ORDERED
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.storage.interface import Write
from controller_manager.common.api import errors
from controller_manager.common.api.errors import Forbidden
from controller_manager.common.options.parse import FlagError
from controller_manager.common.serving.authentication import User

KINDS = {kind.storage: kind for kind in built_in().all()}
ROW = Write("configmaps", "default/a", 0, b"{}")


def attributes_of(operation: Operation, resource: str = "pods", subresource: str = "") -> Attributes:
    return Attributes(operation, KINDS[resource], "default", "p", subresource, {}, None, User("alice"))


class Log:
    """Plugins that record their names."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def plugin(self, name: str, refuses: bool = False, *also: Write) -> Admit:
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
async def test_plugin_is_called_for_requests_its_rule_matches(
    operation: Operation, resource: str, subresource: str, asked: list[str]
) -> None:
    log = Log()
    rules = [
        Rule(log.plugin("pods"), ("create",), ("pods",)),
        Rule(log.plugin("all"), ("create", "update", "delete")),
        Rule(log.plugin("status"), ("update",), ("pods", "nodes"), ("status",)),
        Rule(log.plugin("every part"), ("connect",), (ALL,), (ALL,)),
    ]
    admission = Admission.of(mutating=rules, validating=rules)
    for phase in (admission.mutate, admission.validate):
        for _ in range(2):
            log.names.clear()
            await phase(attributes_of(operation, resource, subresource))
            assert log.names == asked


async def test_rejection_ends_validation() -> None:
    log = Log()
    rules = [Rule(log.plugin(name, name == "b"), ("create",)) for name in ("a", "b", "c")]
    with pytest.raises(errors.Forbidden, match="b"):
        await Admission.of(validating=rules).validate(attributes_of("create"))
    assert log.names == ["a", "b"]


async def test_allocation_returns_rows_written_with_the_object() -> None:
    log = Log()
    rules = [Rule(log.plugin("a", False, ROW), ("create",)), Rule(log.plugin("b"), ("create",))]
    assert await Admission.of(allocation=rules).allocate(attributes_of("create")) == [ROW]
    assert await Admission().allocate(attributes_of("create")) == []


@pytest.mark.parametrize("refuses", [False, True])
async def test_named_plugins_are_timed_and_record_notes(refuses: bool) -> None:
    async def note(attributes: Attributes) -> None:
        attributes.notes.warn("careful")
        attributes.notes.warn("careful")
        attributes.notes.annotate("a", "first")
        attributes.notes.annotate("a", "second")
        if refuses:
            raise Forbidden("no")

    registry = CollectorRegistry()
    rules = [Rule(note, ("create",))]
    plugins = [AdmissionPlugin("", rules if not refuses else ()), AdmissionPlugin("Noter", rules)]
    request = attributes_of("create")
    with pytest.raises(Forbidden) if refuses else nullcontext():
        await Admission(plugins, AdmissionMetrics(registry)).mutate(request)
    assert (list(request.notes.warnings), request.notes.annotations) == (["careful"], {"a": "first"})
    labels = {"operation": "CREATE", "type": "admit", "rejected": str(refuses).lower()}
    name = "apiserver_admission_controller_admission_duration_seconds_count"
    assert registry.get_sample_value(name, {**labels, "name": "Noter"}) == 1
    assert registry.get_sample_value("apiserver_admission_step_admission_duration_seconds_count", labels) == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--enable-admission-plugins=Nonsense"], "there is no admission plugin 'Nonsense'"),
        (["--disable-admission-plugins=Priority,Nonsense"], "there is no admission plugin 'Nonsense'"),
        (
            ["--enable-admission-plugins=Priority", "--disable-admission-plugins=Priority"],
            "--enable-admission-plugins and --disable-admission-plugins both name Priority",
        ),
    ],
)
def test_plugin_flags_reject_unknown_and_repeated_names(flags: list[str], message: str) -> None:
    with pytest.raises(FlagError, match=message):
        FLAGS.parse(flags)


def test_flags_enable_and_disable_plugins(parts: AdmissionParts) -> None:
    def names(*flags: str) -> list[str]:
        return [plugin.name for plugin in enabled(replace(parts, options=FLAGS.parse(flags))) if plugin.name]

    there = names()
    assert [name for name in ORDERED if name in there] == there
    assert names("--disable-admission-plugins=Priority") == [name for name in there if name != "Priority"]


async def test_mutating_plugins_run_again_on_request() -> None:
    seen: list[tuple[str, bool]] = []

    def plugin(name: str, *, asks: bool = False) -> AdmissionPlugin:
        async def admit(attributes: Attributes) -> None:
            seen.append((name, attributes.reinvocation.again))
            if asks:
                attributes.reinvocation.ask()

        return AdmissionPlugin(name, mutating=[Rule(admit, ("create",))])

    await Admission([plugin("a"), plugin("b")]).mutate(attributes_of("create"))
    assert seen == [("a", False), ("b", False)]
    seen.clear()
    await Admission([plugin("a"), plugin("b", asks=True)]).mutate(attributes_of("create"))
    assert seen == [("a", False), ("b", False), ("a", True), ("b", True)]


def test_external_plugins_run_between_built_ins_and_webhooks(parts: AdmissionParts) -> None:
    def make(context: AdmissionContext) -> AdmissionPlugin:
        return AdmissionPlugin(context.name)

    names = [plugin.name for plugin in enabled(parts, {"B": make, "A": make})]
    assert names.index("CertificateSubjectRestriction") < names.index("B") < names.index("A")
    assert names.index("A") < names.index("MutatingAdmissionWebhook") < names.index("ResourceQuota")
    with pytest.raises(ValueError, match="the admission plugin C is invalid: it is named 'B'"):
        enabled(parts, {"C": lambda _: AdmissionPlugin("B")})
    with pytest.raises(ValueError, match="it has allocation rules"):
        enabled(parts, {"C": lambda _: AdmissionPlugin("C", allocation=[Rule(_never, ("create",))])})


async def _never(_: Attributes) -> None:
    raise AssertionError
