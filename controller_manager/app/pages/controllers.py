"""/debug/controllers: the current state of the controllers, worst first, as HTML and as JSON."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import urlencode

import msgspec

from controller_manager.app.pages.html import NO_CACHE, bullets, code, dim, document, headers, span, table, wants_html
from controller_manager.app.state import (
    HealthSummary,
    LockState,
    ManagerState,
    Severity,
    controllers_judged,
    informers_judged,
    standing_by,
)
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.component.pages import Handler
from controller_manager.framework.cache.change import InformerState
from controller_manager.framework.controller.runner import ControllerState, Phase
from controller_manager.framework.work.failures import Due, Failing, LoopState, Running
from controller_manager.framework.work.spinning import Spinning

_JSON = {"content-type": "application/json", "cache-control": NO_CACHE, "vary": "accept"}
_FAILING_SHOWN, _KEYS_SHOWN = 10, 5  # JSON has more
_REFRESH = 5  # seconds

# Typing hides rows and updates the address, so that a refresh or a link shows the same rows.
_SCRIPT = """
const box = document.querySelector('input[name=q]');
const refresh = document.body.querySelector('main').dataset.refresh;
function show() {
  const q = box.value.trim().toLowerCase();
  const rows = document.querySelectorAll('tr[data-filter]');
  for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(q);
}
box.addEventListener('input', () => {
  const here = new URL(location);
  box.value ? here.searchParams.set('q', box.value) : here.searchParams.delete('q');
  history.replaceState(null, '', here);
  show();
});
if (refresh) setInterval(() => {
  if (document.activeElement !== box && getSelection().isCollapsed) location.reload();
}, refresh * 1000);
"""
_HTML = headers(_SCRIPT)

_CONTROLLER_HEADS = ("Controller", "Condition", "Failing keys", "In work", "Due next", "#Ready", "#Later", "Runs")
_INFORMER_HEADS = ("Resource", "Condition", "#Objects", "#Last heard", "Version", "#Lists", "#Watches", "#Failures")
_WORDS = {
    Severity.BROKEN: '<span class="bad state">✖ broken</span>',
    Severity.STRUGGLING: '<span class="warn state">▲ struggling</span>',
    Severity.WAITING: '<span class="dim state">… waiting</span>',
    Severity.WELL: '<span class="good state">✓ well</span>',
}


def controllers_handler(state: Callable[[], ManagerState]) -> Handler:
    """Return the handler. It responds with HTML to clients that accept it, else, or with `?format=json`, with JSON.

    `?q=` hides the controllers and informers that do not contain this text.
    """

    async def answer(request: Request) -> Response:
        asked = dict(request.query)
        words = asked.get("q", asked.get("filter", "")).strip()
        if asked.get("format") != "json" and wants_html(request):
            return Response(200, _HTML, page(state(), words, refreshing=asked.get("refresh") != "off").encode())
        return Response(200, _JSON, msgspec.json.encode(tree(state(), words)))

    return answer


def tree(state: ManagerState, words: str = "") -> dict[str, Any]:
    """Return the JSON data: controllers and informers that contain `words`, with severities, worst first."""
    found: dict[str, Any] = msgspec.to_builtins(state)
    controllers = [_judged(verdict, one) for verdict, one in controllers_judged(state.controllers)]
    informers = [_judged(verdict, one) for verdict, one in informers_judged(state.informers)]
    return found | {
        "summary": summary(state),
        "controllers": [one for one in controllers if _has(one, words)],
        "informers": [one for one in informers if _has(one, words)],
    }


def summary(state: ManagerState) -> str:
    """Return one sentence about what needs attention."""
    controllers = [f"{one.name} ({it.why})" for it, one in controllers_judged(state.controllers) if it.needs_a_look]
    informers = [f"{one.selection} ({it.why})" for it, one in informers_judged(state.informers) if it.needs_a_look]
    parts = [
        _look(len(controllers), len(state.controllers), "controllers", controllers),
        _look(len(informers), len(state.informers), "local copies", informers),
    ]
    return " ".join(filter(None, parts)) or "All is well."


def page(state: ManagerState, words: str = "", *, refreshing: bool = False) -> str:
    """Return the page; all texts from the cluster are escaped."""
    role = '<span class="good">leads</span>' if any(lock.leads for lock in state.locks) else "stands by"
    waits = standing_by(state.locks)
    sentence = summary(state)
    style = "good" if sentence == "All is well." else "bad"
    stopping = f'<p class="bad">Stopping: {escape(state.stopping)}</p>' if state.stopping else ""
    seen = f"{code(state.identity)} up {span(state.uptime)}, seen at {escape(state.time)}"
    body = f"""<main data-refresh="{_REFRESH if refreshing else ""}">
<h1>{escape(state.name)} {role}</h1>
{stopping}<p class="{style}">{escape(sentence)}</p>
{f"<p>{escape(waits)}.</p>" if waits else ""}<p class="dim">{seen} · {_links(words, refreshing=refreshing)}</p>
{_form(words, refreshing=refreshing)}
<h2>Controllers</h2>{table(_CONTROLLER_HEADS, _controllers(state, words))}
<h2>Local copies</h2>{table(_INFORMER_HEADS, _informers(state, words))}
<h2>Leadership</h2>{table(("Lease", "Holder", "Since", "Controllers"), [("", _lock(one)) for one in state.locks])}
</main><script>{_SCRIPT}</script>"""
    refresh = f'<noscript><meta http-equiv="refresh" content="{_REFRESH}"></noscript>' if refreshing else ""
    return document(f"{state.name}: controllers", body, refresh)


def _look(count: int, of: int, what: str, which: Sequence[str]) -> str:
    needs = "needs" if count == 1 else "need"
    return f"{count} of {of} {what} {needs} a look: {', '.join(which)}." if count else ""


def _judged(verdict: HealthSummary, one: ControllerState | InformerState) -> dict[str, Any]:
    return {"severity": verdict.severity.name.lower(), "why": verdict.why, **msgspec.to_builtins(one)}


def _has(value: object, words: str) -> bool:
    if isinstance(value, Mapping):
        return any(_has(one, words) for one in value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return any(_has(one, words) for one in value)
    return words.lower() in str(value).lower()


def _links(words: str, *, refreshing: bool) -> str:
    other = "off" if refreshing else "on"
    query = {"q": words} if words else {}
    as_json, refresh = (escape(urlencode(query | more)) for more in ({"format": "json"}, {"refresh": other}))
    return f'<a href="?{as_json}">JSON</a> · <a href="?{refresh}">refresh {other}</a> · <a href="/">other pages</a>'


def _form(words: str, *, refreshing: bool) -> str:
    kept = "" if refreshing else '<input type="hidden" name="refresh" value="off">'
    box = f'<input type="search" name="q" value="{escape(words)}" placeholder="controller, key, error or resource"'
    return f'<form>{kept}{box} aria-label="Filter"> <button>Filter</button></form>'


def _controllers(state: ManagerState, words: str) -> list[tuple[str, Sequence[str]]]:
    return [(_attributes(it, one, words), _controller(it, one)) for it, one in controllers_judged(state.controllers)]


def _informers(state: ManagerState, words: str) -> list[tuple[str, Sequence[str]]]:
    return [(_attributes(it, one, words), _informer(it, one)) for it, one in informers_judged(state.informers)]


def _attributes(verdict: HealthSummary, one: ControllerState | InformerState, words: str) -> str:
    look = 'class="look" ' if verdict.needs_a_look else ""
    hidden = "" if _has(_judged(verdict, one), words) else " hidden"
    return f"{look}data-filter{hidden}"


def _condition(verdict: HealthSummary, *more: str) -> str:
    lines = (_WORDS[verdict.severity], escape(verdict.why), *more)
    return "<br>".join(filter(None, lines))


def _controller(verdict: HealthSummary, one: ControllerState) -> Sequence[str]:
    name = f"<b>{escape(one.name)}</b><br>{_phase(one)}"
    crash = f"{escape(one.crash)} {_ago(one.crash_seconds)}" if one.crash else ""
    if one.work is None:
        return name, _condition(verdict, crash), *("",) * 6
    spinning = bullets(map(_spinning, one.work.spinning), len(one.work.spinning), _KEYS_SHOWN)
    return name, _condition(verdict, crash, spinning), *_work(one.work)


def _phase(one: ControllerState) -> str:
    notes = [f"{one.phase.value} for {span(one.seconds)}"] if one.phase is not Phase.ELSEWHERE else []
    notes += [f"restarted {one.restarts} times"] if one.restarts else []
    notes += [f"waits for {escape(', '.join(one.waits_for))}"] if one.waits_for else []
    notes += [f"at {escape(one.component)}"] if one.component else []
    return dim(", ".join(notes))


def _work(work: LoopState) -> Sequence[str]:
    recovered = work.last_error and not work.failing_keys and not work.failing_more
    old = dim(f"none now; the last error: {escape(work.last_error)} {span(work.last_error_seconds)} ago")
    failing = bullets(map(_failing, work.failing), work.failing_keys, _FAILING_SHOWN)
    return (
        old if recovered else failing,
        bullets(map(_running, work.running), len(work.running), _KEYS_SHOWN),
        bullets(map(_due, work.next), work.delayed, _KEYS_SHOWN),
        f"{work.ready:,}",
        f"{work.delayed:,}",
        "<br>".join(_count(outcome, count) for outcome, count in work.outcomes.items() if count),
    )


def _count(outcome: str, count: int) -> str:
    return f'<span class="state">{count:,} {escape(outcome)}</span>'


def _spinning(one: Spinning) -> str:
    return f"{code(one.key)} requeued at once {one.runs:,} times in a row{_because(one.causes)}"


def _failing(one: Failing) -> str:
    times = "once" if one.failures == 1 else f"{one.failures:,} times in a row"
    notes = [f"failed {times}", f"last {span(one.seconds)} ago"]
    notes += ["<b>given up until something changes</b>"] if one.given_up else []
    notes += [f"at {escape(one.where)}"] if one.where else []
    notes += [f"next try in {span(one.retry_seconds)}"] if one.retry_seconds is not None else []
    defect = '<span class="bad">not retried until the object changes:</span> ' if one.defect else ""
    return f"{code(one.key)} {defect}{escape(one.error)}<br>{dim(', '.join(notes))}{_because(one.causes)}"


def _running(one: Running) -> str:
    return f"{code(one.key)} {span(one.seconds)}{_because(one.causes)}"


def _due(one: Due) -> str:
    tries = f", failed {one.failures} times" if one.failures else ""
    return f"{code(one.key)} in {span(one.seconds)}{tries}{_because(one.causes)}"


def _informer(verdict: HealthSummary, one: InformerState) -> Sequence[str]:
    unreadable = bullets(map(escape, one.unreadable), len(one.unreadable), _FAILING_SHOWN)
    return (
        escape(one.selection),
        _condition(verdict, escape(one.last_error) if verdict.needs_a_look or not one.synced else "", unreadable),
        f"{one.objects:,}",
        span(one.age),
        code(one.revision) if one.revision else "",
        str(one.lists),
        str(one.watches),
        str(one.failures),
    )


def _lock(lock: LockState) -> Sequence[str]:
    holder = code(lock.holder) if lock.holder else dim("no holder")
    mine = ' <span class="good">this one</span>' if lock.leads and lock.lease else ""
    lease = code(lock.lease) if lock.lease else dim("no election")
    return lease, holder + mine, escape(lock.since), escape(", ".join(lock.controllers))


def _because(causes: Sequence[str]) -> str:
    reasons = "; ".join(cause for cause in causes if cause != "error")  # failures are shown separately
    return f"<br>{dim(f'because: {escape(reasons)}')}" if reasons else ""


def _ago(seconds: float) -> str:
    return dim(f"{span(seconds)} ago")
