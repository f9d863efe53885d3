"""`FLAGS.md` and `--help` agree with the declarations, including flags without effect."""

import pytest

from apiserver_stub.common.flags.features import ServerFeatureOptions
from controller_manager.app import catalog
from controller_manager.app.catalog import installed
from controller_manager.app.features import READ, ManagerFeatureOptions
from controller_manager.app.program import flag_set
from controller_manager.app.reference import page, unread_gates
from controller_manager.common.component.features import known_gates
from controller_manager.common.options.command_line import help_text, inert_flags
from controller_manager.common.options.gates import gates_at

FLAGS = flag_set(installed())
INERT = [flag for flags in inert_flags(FLAGS).values() for flag in flags]


@pytest.fixture(scope="session")
def help_output() -> str:
    return help_text("cluster-controller-manager", "Runs.", FLAGS, 100, catalog.notes(installed()))


def test_flags_page_is_generated_from_declarations(pytestconfig):
    found = (pytestconfig.rootpath / "FLAGS.md").read_text()
    assert found == page(installed()), "generate it: .venv/bin/python -m controller_manager.app.reference > FLAGS.md"


def test_page_and_help_explain_flags_without_effect(pytestconfig, help_output, capsys):
    flags, _ = (pytestconfig.rootpath / "FLAGS.md").read_text().split("\n## Feature gates\n")
    acting, _, inert = flags.partition("\n## Flags without effect\n")
    for flag in INERT:
        assert f"`--{flag.name}`" in inert
        assert f"`--{flag.name}`" not in acting
        section = " ".join(help_output.split()).split(f"Flags accepted without effect ({flag.declared.inert}): ")[1]
        assert f"--{flag.name} " in section
    with capsys.disabled():
        print(f"\n{len(INERT)} flags have no effect yet; FLAGS.md says which and why")


def test_help_shows_every_flag_once_within_the_width(help_output):
    lines = help_output.splitlines()
    for flag in FLAGS:
        kind = "" if flag.type.label == "bool" else f" {flag.declared.metavar or flag.type.label}"
        assert sum(line.endswith(f"--{flag.name}{kind}") for line in lines) == 1
    assert max(map(len, lines)) <= 100


def test_help_lists_controllers_on_by_default(help_output):
    words = " ".join(help_output.split())
    built = ", ".join(spec.name for spec in installed() if spec.default_on)
    assert f"Controllers that are on by default: {built}" in words


def test_default_gates_are_used_or_listed_as_unused() -> None:
    """Each gate is in one group; the first group has the gates that the API server reads."""
    on = {gate.name for gate in gates_at(known_gates(), ManagerFeatureOptions().version) if gate.default}
    groups = unread_gates()
    unread = frozenset().union(*groups.values())
    assert on - unread - READ.keys() == set()
    assert sum(map(len, groups.values())) == len(unread)
    assert unread.isdisjoint(READ)
    assert ServerFeatureOptions.effects.keys() - READ.keys() == next(iter(groups.values()))
