"""Recorded requests, replayed on a server in this process and compared in normal form."""

import copy
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
VOLATILE = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink")
TIMES = frozenset({"creationTimestamp", "deletionTimestamp", "lastTransitionTime", "lastUpdateTime"})
UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


def substituted(value: Any, captured: Mapping[str, Any]) -> Any:
    """A value with captured values inserted."""
    if isinstance(value, str):
        return re.sub(r"\$\{(\w+)\}", lambda found: str(captured[found[1]]), value)
    if isinstance(value, list):
        return [substituted(one, captured) for one in value]
    if isinstance(value, dict):
        return {name: substituted(one, captured) for name, one in value.items()}
    return value


def normal(value: Any, key: str = "", *, managed: bool = False) -> Any:
    """A value without parts that differ from run to run."""
    if isinstance(value, list):
        return [normal(one, managed=managed) for one in value]
    if isinstance(value, str):
        return UID.sub("<uid>", value)
    if not isinstance(value, dict):
        return value
    if value.get("kind") == "Table" and "columnDefinitions" in value:
        value = _without_ages(value)
    found = {}
    for name, one in value.items():
        if key == "metadata" and name in VOLATILE and not (managed and name == "managedFields"):
            continue
        if key == "metadata" and name == "name" and value.get("generateName"):
            found[name] = "<generated>"
        elif name == "uid":
            found[name] = "<uid>" if one else one
        elif name == "continue" and one:
            found[name] = "<continue>"
        elif (name in TIMES or (name == "time" and "fieldsType" in value)) and isinstance(one, str):
            found[name] = "<time>"
        else:
            found[name] = normal(one, name, managed=managed)
    return found


def _without_ages(table: Any) -> Any:
    table = copy.deepcopy(table)
    for index, column in enumerate(table["columnDefinitions"] or ()):
        column.pop("description", None)
        if column.get("type") == "date":
            for row in table.get("rows") or []:
                row["cells"][index] = "<age>"
    return table


def value_at(value: Any, path: str) -> Any:
    """The value at a dotted path, None if there is none."""
    for part in path.split("."):
        if isinstance(value, list):
            value = value[int(part)] if part.isdigit() and int(part) < len(value) else None
        elif isinstance(value, dict):
            value = value.get(part.replace("~", "."))
        else:
            return None
    return value


def put(tree: Any, path: str, value: Any) -> None:
    """Set the value at a dotted path."""
    *parents, last = (part.replace("~", ".") for part in path.split("."))
    for name in parents:
        tree = tree.setdefault(name, {})
    tree[last] = value


def outcome(step: Any, code: int, body: Any, warnings: list[str]) -> Any:
    """The compared parts of an answer."""
    found: dict[str, Any] = {"code": code}
    if warnings:
        found["warnings"] = warnings
    if isinstance(body, dict) and body.get("kind") == "Status" and body.get("status") == "Failure":
        found["status"] = normal(_refusal(body))
    elif not step.get("no_body"):
        found["body_out"] = _compared_parts(step, body)
    return found


def _scrubbed(message: str) -> str:
    return re.sub(r'("resourceVersion\\*":\\*")\d+', r"\1<rv>", TIME.sub("<time>", message))


def _refusal(body: Any) -> Any:
    details = body.get("details") or {}
    found = {"reason": body.get("reason", ""), "message": _scrubbed(body.get("message", ""))}
    found |= {name: details[name] for name in ("name", "group", "kind") if details.get(name)}
    causes = details.get("causes") or []
    if causes:
        found["causes"] = [{**cause, "message": _scrubbed(cause.get("message", ""))} for cause in causes]
    return found


def _compared_parts(step: Any, body: Any) -> Any:
    if step.get("parts"):
        whole = normal(body, managed=any("managedFields" in path for path in step["parts"]))
        return {path: value_at(whole, path) for path in step["parts"]}
    found = normal(body)
    if isinstance(found, dict) and isinstance(found.get("metadata"), dict):
        found["metadata"].pop("resourceVersion", None)
    return found


def difference(step: Any, found: Any, *, messages: bool = True) -> str:
    """The difference between an outcome and the recorded one; empty if they are equal."""
    if step["code"] != found["code"]:
        return f"code {found['code']}, expected {step['code']}: {json.dumps(found)[:900]}"
    if "status" in step and _key(step["status"], messages) != _key(found.get("status", {}), messages):
        return f"status {json.dumps(found.get('status'))}\n  expected {json.dumps(step['status'])}"
    warnings, expected = found.get("warnings", []), step.get("warnings", [])
    if warnings != expected if messages else len(warnings) != len(expected):
        return f"warnings {warnings}\n  expected {expected}"
    if "body_out" in step and _in_order(step["body_out"]) != _in_order(found.get("body_out")):
        return f"body {json.dumps(found.get('body_out'))}\n  expected {json.dumps(step['body_out'])}"
    return ""


def _in_order(value: Any) -> Any:
    """A value with its managed fields in an order that does not depend on the clock."""
    if isinstance(value, dict):
        return {name: _in_order(one) for name, one in value.items()}
    if not isinstance(value, list):
        return value
    if value and all(isinstance(one, dict) and "fieldsType" in one for one in value):
        return sorted(value, key=lambda one: json.dumps(one, sort_keys=True))
    return [_in_order(one) for one in value]


def _key(status: Any, messages: bool) -> Any:
    causes = sorted(
        (cause.get("reason", ""), cause.get("field", ""), cause.get("message", "") if messages else "")
        for cause in status.get("causes", ())
    )
    return [status.get("reason"), status.get("kind"), status.get("name"), status.get("group"), causes]


def rows(name: str) -> list[Any]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]


async def play(api: Any, row: Any, run: str) -> list[str]:
    """The differences between the answers to the steps of a row and the recorded ones."""
    differences = []
    for number, recorded in enumerate(row["steps"]):
        step = substituted(recorded, {"RUN": run})
        headers = {"content_type": step["content_type"]} if "content_type" in step else {}
        query = f"?{step['query']}" if "query" in step else ""
        answer = await api.send(step["verb"], step["path"] + query, step.get("body"), **headers)
        shown_warnings = answer.repeated.get("warning", ()) if answer.repeated else ()
        warnings = [text.removeprefix('299 - "')[:-1].replace('\\"', '"') for text in shown_warnings]
        found = difference(step, outcome(step, answer.status, json.loads(answer.body), warnings))
        if found:
            differences.append(f"{row['what']}, step {number}: {found}")
    return differences
