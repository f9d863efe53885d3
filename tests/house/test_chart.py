"""Generated files of the chart are up to date."""

import json
import runpy
from pathlib import Path

from controller_manager.app.catalog import installed
from controller_manager.app.permissions import chart_values
from controller_manager.app.program import flag_set

CHART = Path("charts/cluster-controller-manager")


def test_chart_roles_equal_controller_rules(root: Path) -> None:
    assert (root / CHART / "rbac.yaml").read_text() == chart_values(installed())


def test_controllers_waiting_for_flags_name_them() -> None:
    waiting = [spec for spec in installed() if not spec.asked_for(spec.options())]
    assert [spec.name for spec in waiting if not spec.needs_flags] == []
    names = {flag.name for flag in flag_set(installed())}
    assert {name for spec in installed() for name in spec.needs_flags} <= names


def test_dashboard_is_generated_by_its_script(root: Path) -> None:
    written = json.loads((root / CHART / "dashboard.json").read_text())
    assert written == runpy.run_path(str(root / "charts/dashboard.py"))["dashboard"]()
