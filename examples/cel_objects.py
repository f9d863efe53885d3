"""CEL expressions over objects: declared types, compile errors, evaluation errors and a limited cost."""

from typing import Any

from controller_manager.common.cel import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    CompileError,
    CostBudget,
    CostExceeded,
    Environment,
    EvaluationError,
    ListType,
    MapType,
    ObjectType,
    Program,
)

CONTAINER = ObjectType("Container", {"name": STRING, "cpus": DOUBLE, "privileged": BOOL})
JOB = ObjectType(
    "Job",
    {
        "name": STRING,
        "labels": MapType(STRING, STRING),
        "containers": ListType(CONTAINER),
        "started": STRING,
        "deadline": STRING,
        "retries": INT,
        "extra": DYN,  # any value; its type is checked when an expression is evaluated
    },
)
ENVIRONMENT = Environment.base().extend({"job": JOB})


def compiled(expression: str, result: Any = BOOL) -> Program:
    """Compile an expression. Raises ValueError with every problem and its place."""
    try:
        program = ENVIRONMENT.compile(expression)
    except CompileError as error:
        raise ValueError(error.display()) from None
    if program.type != result:
        raise ValueError(f"{expression}: must be of the type {result.name}")
    return program


def holds(rule: Program, job: dict[str, Any], *, limit: int = 10_000) -> bool | None:
    """Return whether a rule holds; None if it cannot be evaluated, or costs more than `limit`."""
    try:
        return bool(rule.evaluate({"job": job}, CostBudget(limit)))
    except (EvaluationError, CostExceeded):
        return None


PROGRAMS = {
    "end": compiled("timestamp(job.started) + duration(job.deadline)", TIMESTAMP),
    "left": compiled("timestamp('2026-01-02T00:00:00Z') - timestamp(job.started)", DURATION),
    "load": compiled("job.containers[0].cpus", DOUBLE),
    "retries": compiled("uint(job.retries)", UINT),
    "name": compiled("bytes(job.name)", BYTES),
}


def results(job: dict[str, Any]) -> dict[str, Any]:
    budget = CostBudget(10_000)  # of all together
    return {name: program.evaluate({"job": job}, budget) for name, program in PROGRAMS.items()}
