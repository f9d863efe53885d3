"""/debug/controllers: what a manager is doing right now, as a page for a browser and as JSON for programs."""

from collections.abc import Callable, Iterable, Sequence
from html import escape

import msgspec

from controller_manager.api.wire import Request, Response
from controller_manager.app.pages.routes import Handler
from controller_manager.app.state import LockState, ManagerState, standing_by
from controller_manager.cache import InformerState
from controller_manager.controller.state import ControllerState, Phase
from controller_manager.work import LoopState

_CACHE = "no-cache, no-store"
_HTML = {
    "content-type": "text/html; charset=utf-8",
    "cache-control": _CACHE,
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_JSON = {"content-type": "application/json", "cache-control": _CACHE}
_KEYS_SHOWN = 20  # of each sort; JSON has them all
_REFRESH = 5  # seconds
_SILENT = 90.0  # seconds without a word from the server that are worth a look: watches send bookmarks every minute

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --dim: #777; --bad: #c62828; --good: #2e7d32; }
@media (prefers-color-scheme: dark) { :root { --dim: #999; --bad: #ef7070; --good: #7cc47f; } }
body { font: 14px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 72rem; padding: 1.5rem; }
h1 { font-size: 1.4rem; margin: 0 0 .2rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
p { margin: .2rem 0; } a { color: inherit; } .dim { color: var(--dim); }
.bad { color: var(--bad); font-weight: 600; } .good { color: var(--good); font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: 600; color: var(--dim); }
th, td { padding: .35rem .7rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; padding-right: 1.5rem; font-variant-numeric: tabular-nums; }
code { font: 12px/1.4 ui-monospace, monospace; background: var(--soft); padding: .05rem .3rem; border-radius: .2rem;
  overflow-wrap: anywhere; }
ul { margin: 0; padding: 0; list-style: none; } li { margin-bottom: .15rem; }
"""


def controllers_handler(state: Callable[[], ManagerState]) -> Handler:
    """Answers with HTML whoever accepts that, and with JSON all others, or with `?format=json`."""

    async def answer(request: Request) -> Response:
        wants_json = ("format", "json") in request.query
        if not wants_json and "text/html" in request.headers.get("accept", ""):
            refresh = next((value for name, value in request.query if name == "refresh"), "")
            return Response(200, _HTML, page(state(), refreshing=refresh != "off").encode())
        return Response(200, _JSON, msgspec.json.encode(state()))

    return answer


def page(state: ManagerState, *, refreshing: bool = False) -> str:
    """The page, complete in itself; every text of the cluster in it is escaped."""
    leads = any(lock.leads for lock in state.locks)
    waits = standing_by(state.locks)
    role = '<span class="good">leads</span>' if leads else "stands by"
    stopping = f'<p class="bad">Stopping: {escape(state.stopping)}</p>' if state.stopping else ""
    refresh = f'<meta http-equiv="refresh" content="{_REFRESH}">' if refreshing else ""
    other = "off" if refreshing else "on"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<link rel="icon" href="data:,">{refresh}
<title>{escape(state.name)}: controllers</title><style>{_STYLE}</style></head><body>
<h1>{escape(state.name)} {role}</h1>
<p class="dim"><code>{escape(state.identity)}</code> up {_span(state.uptime)}, seen at {escape(state.time)} ·
<a href="?format=json">JSON</a> · <a href="?refresh={other}">refresh {other}</a></p>
{stopping}{f"<p>{escape(waits)}.</p>" if waits else ""}{_summary(state)}
<h2>Leadership</h2>{_table(("Lease", "Holder", "Since", "Controllers"), map(_lock, state.locks))}
<h2>Controllers</h2>{_table(_CONTROLLER_HEADS, map(_controller, state.controllers))}
<h2>Local copies</h2>{_table(_INFORMER_HEADS, map(_informer, state.informers))}
</body></html>
"""


_CONTROLLER_HEADS = ("Controller", "State", "#Ready", "#Later", "In work", "Due next", "Done", "Last error")
_INFORMER_HEADS = ("Resource", "#Objects", "Complete", "#Last heard", "Version", "#Lists", "#Watches", "#Failures")


def _summary(state: ManagerState) -> str:
    ailing = [one.name for one in state.controllers if one.ailing_seconds or one.phase is Phase.CRASHED]
    silent = [one.selection for one in state.informers if one.synced and one.age > _SILENT]
    said = [f"{', '.join(ailing)}: failing" if ailing else "", f"{', '.join(silent)}: not heard of" if silent else ""]
    said += [f"{one.selection}: {len(one.unreadable)} unreadable" for one in state.informers if one.unreadable]
    wrong = "; ".join(filter(None, said))
    return f'<p class="bad">{escape(wrong)}</p>' if wrong else '<p class="good">All is well.</p>'


def _lock(lock: LockState) -> Sequence[str]:
    holder = f"<code>{escape(lock.holder)}</code>" if lock.holder else '<span class="dim">nobody</span>'
    mine = ' <span class="good">this one</span>' if lock.leads and lock.lease else ""
    lease = f"<code>{escape(lock.lease)}</code>" if lock.lease else '<span class="dim">no election</span>'
    return lease, holder + mine, escape(lock.since), escape(", ".join(lock.controllers))


def _controller(one: ControllerState) -> Sequence[str]:
    work = one.work
    doing = (str(work.ready), str(work.delayed), _running(work), _due(work), _outcomes(work)) if work else ("",) * 5
    return escape(one.name), _phase(one), *doing, _error(one)


def _running(work: LoopState) -> str:
    items = (f"<code>{escape(one.key)}</code> {_span(one.seconds)}{_because(one.causes)}" for one in work.running)
    return _list(items, len(work.running))


def _due(work: LoopState) -> str:
    items = (
        f"<code>{escape(due.key)}</code> in {_span(due.seconds)}{_tries(due.failures)}{_because(due.causes)}"
        for due in work.next
    )
    return _list(items, work.delayed)


def _phase(one: ControllerState) -> str:
    style = {Phase.RUNNING: "good", Phase.CRASHED: "bad"}.get(one.phase, "dim")
    notes = [_span(one.seconds)]
    notes += [f"restarted {one.restarts} times"] if one.restarts else []
    notes += [f"waits for {escape(', '.join(one.waits_for))}"] if one.waits_for else []
    notes += [f"at {escape(one.component)}"] if one.component else []
    return f'<span class="{style}">{one.phase.value}</span><br><span class="dim">{", ".join(notes)}</span>'


def _outcomes(work: LoopState) -> str:
    return ", ".join(f"{count:,} {escape(outcome)}" for outcome, count in work.outcomes.items() if count)


def _error(one: ControllerState) -> str:
    crash = f"{escape(one.crash)} {_ago(one.crash_seconds)}" if one.crash else ""
    work = one.work
    last = f"{escape(work.last_error)} {_ago(work.last_error_seconds)}" if work and work.last_error else ""
    return "<br>".join(filter(None, (crash, last)))


def _informer(one: InformerState) -> Sequence[str]:
    complete = "yes" if one.synced else f'<span class="bad">not yet</span> {escape(one.last_error)}'
    heard = _span(one.age)
    late = one.synced and one.age > _SILENT
    return (
        escape(one.selection),
        f"{one.objects:,}{_unreadable(one)}",
        complete,
        f'<span class="bad">{heard}</span>' if late else heard,
        f"<code>{escape(one.revision)}</code>",
        str(one.lists),
        str(one.watches),
        str(one.failures),
    )


def _unreadable(one: InformerState) -> str:
    sentences = (f'<span class="bad">unreadable</span> {escape(sentence)}' for sentence in one.unreadable)
    return _list(sentences, len(one.unreadable)) if one.unreadable else ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a head that begins with `#` is of numbers."""
    kinds = [' class="n"' if head.startswith("#") else "" for head in heads]
    top = "".join(f"<th{kind}>{head.removeprefix('#')}</th>" for kind, head in zip(kinds, heads, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{cell}</td>' for kind, cell in zip(kinds, row, strict=True))}</tr>" for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _list(items: Iterable[str], count: int) -> str:
    shown = [f"<li>{item}</li>" for item, _ in zip(items, range(_KEYS_SHOWN), strict=False)]
    more = f'<li class="dim">and {count - len(shown)} more</li>' if count > len(shown) else ""
    return f"<ul>{''.join(shown)}{more}</ul>"


def _because(causes: Sequence[str]) -> str:
    return f'<br><span class="dim">{escape("; ".join(causes))}</span>' if causes else ""


def _tries(failures: int) -> str:
    return f", failed {failures} times" if failures else ""


def _ago(seconds: float) -> str:
    return f'<span class="dim">{_span(seconds)} ago</span>'


def _span(seconds: float) -> str:
    """A time as people say it: the two largest units."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
