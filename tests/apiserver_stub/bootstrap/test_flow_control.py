"""Default priority levels and flow schemas, and what happens to edited ones."""

from typing import Any

import pytest

from apiserver_stub.bootstrap.flow_control import revised

KEY = "apf.kubernetes.io/autoupdate-spec"
OURS, THEIRS = {"shares": 1}, {"shares": 2}


def stored_object(spec: Any, annotation: str | None, generation: int = 1) -> Any:
    annotations = {} if annotation is None else {"annotations": {KEY: annotation}}
    return {"metadata": {"name": "x", "generation": generation, **annotations}, "spec": spec}


@pytest.mark.parametrize(
    ("mandatory", "spec", "annotation", "generation", "expected"),
    [
        (True, OURS, "true", 1, None),
        (True, THEIRS, "true", 2, (OURS, "true")),
        (True, OURS, "false", 1, (OURS, "true")),
        (True, THEIRS, None, 3, (OURS, "true")),
        (False, OURS, "true", 1, None),
        (False, THEIRS, "true", 5, (OURS, "true")),
        (False, THEIRS, "false", 2, None),
        (False, OURS, "false", 1, None),
        (False, THEIRS, None, 1, (OURS, "true")),
        (False, THEIRS, None, 2, (THEIRS, "false")),
        (False, OURS, "maybe", 2, (OURS, "false")),
        (False, OURS, "maybe", 1, (OURS, "true")),
    ],
)
def test_edited_object_is_reconciled(
    mandatory: bool, spec: Any, annotation: str | None, generation: int, expected: tuple[Any, str] | None
) -> None:
    before = stored_object(spec, annotation, generation)
    result = revised(before, OURS, mandatory=mandatory)
    written = None if result is None else (result["spec"], result["metadata"]["annotations"][KEY])
    assert written == expected
    assert before == stored_object(spec, annotation, generation)
