"""Which tests CI repeats with many seeds after a change."""

from pathlib import Path

import pytest
from touched import touched


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "scenarios/test_job.py",
        "scenarios/test_job_faults.py",
        "scenarios/test_ttl.py",
        "apiserver_stub/verbs",
    ):
        path = tmp_path / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch() if path.suffix else path.mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ((), ""),
        (("README.md", "charts/x.yaml"), ""),
        (("controllers/job/decide.py",), "tests/scenarios/test_job.py tests/scenarios/test_job_faults.py"),
        (("controllers/ttl.py",), "tests/scenarios/test_ttl.py"),
        (("controllers/scheduler/filters.py",), "tests/scenarios"),
        (("controllers/shared/events.py", "controllers/ttl.py"), "tests/scenarios"),
        (("apiserver_stub/verbs/write.py",), "tests/apiserver_stub/verbs"),
        (("tests/scenarios/test_ttl.py", "tests/scenarios/gone.py"), "tests/scenarios"),
        (("tests/scenarios/test_gone.py",), ""),
    ],
)
def test_touched_tests_follow_from_changed_files(tree: Path, changed: tuple[str, ...], tests: str) -> None:
    assert touched(changed, tree) == tests.split()
