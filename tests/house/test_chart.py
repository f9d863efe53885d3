"""What the chart holds in written form is what the code would write now."""

import json
import runpy
from pathlib import Path

from controller_manager.app.catalog import installed
from controller_manager.app.permissions import chart_values

CHART = Path("charts/cluster-controller-manager")


def test_the_roles_are_what_the_controllers_declare(root: Path) -> None:
    assert (root / CHART / "rbac.yaml").read_text() == chart_values(installed())


def test_the_dashboard_is_what_its_script_prints(root: Path) -> None:
    written = json.loads((root / CHART / "dashboard.json").read_text())
    assert written == runpy.run_path(str(root / "charts/dashboard.py"))["dashboard"]()
