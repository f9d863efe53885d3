"""Building blocks of HTML pages: self-contained documents, tables, lists and durations.

Cells and items are markup: callers must escape texts from the cluster.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from controller_manager.common.api.wire import Request

NO_CACHE = "no-cache, no-store"

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --dim: #666; --bad: #c62828; --warn: #9a5b00;
  --good: #2e7d32; }
@media (prefers-color-scheme: dark) { :root { --dim: #aaa; --bad: #ff8a80; --warn: #ffb74d; --good: #81c784; } }
* { box-sizing: border-box; }
body { font: 14px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 80rem; padding: 1.5rem;
  overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; margin: 0 0 .2rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
p { margin: .3rem 0; } a { color: inherit; } .dim { color: var(--dim); } form { margin: 1rem 0 0; }
input, button { font: inherit; padding: .3rem .6rem; } input { width: 20rem; max-width: 65%; }
.bad, .warn, .good { font-weight: 600; } .bad { color: var(--bad); } .warn { color: var(--warn); }
.good { color: var(--good); }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: 600; color: var(--dim); white-space: nowrap; }
th, td { padding: .4rem .8rem .4rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.look > td:first-child { border-left: 4px solid var(--bad); padding-left: .6rem; }
code, pre { font: 12px/1.5 ui-monospace, monospace; background: var(--soft); border-radius: .2rem; }
code { padding: .05rem .3rem; } pre { padding: .6rem; white-space: pre-wrap; }
ul { margin: 0; padding: 0; list-style: none; } li { margin-bottom: .3rem; }
@media (max-width: 52rem) {
  body { padding: 1rem; }
  table, tbody, tr, td { display: block; } thead { display: none; }
  tr { border: 1px solid var(--line); border-radius: .4rem; margin-bottom: .8rem; padding: .5rem .7rem; }
  tr.look { border-left: 4px solid var(--bad); } tr.look > td:first-child { border-left: 0; padding-left: 0; }
  td, td.n { border: 0; padding: .15rem 0; text-align: left; white-space: normal; } td:empty { display: none; }
  td[data-head]::before { content: attr(data-head) ": "; color: var(--dim); }
}
@media (min-width: 52.01rem) { td ul { min-width: 9rem; } td:first-child { min-width: 11rem; } }
.state { white-space: nowrap; } [hidden] { display: none !important; }
"""


def headers(script: str = "", *, connects: bool = False) -> Mapping[str, str]:
    """Return the headers of a page on which only `script` may run; with `connects` it may call its own server."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    scripts = f"script-src 'sha256-{digest}'; " if script else ""
    connections = "connect-src 'self'; " if connects else ""
    policy = (
        f"default-src 'none'; {scripts}{connections}style-src 'unsafe-inline'; img-src data:; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    )
    return {
        "content-type": "text/html; charset=utf-8",
        "cache-control": NO_CACHE,
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "vary": "accept",
    }


def wants_html(request: Request) -> bool:
    """Return whether the client accepts HTML."""
    return "text/html" in request.headers.get("accept", "")


def document(title: str, body: str, head: str = "") -> str:
    """Return a self-contained page."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<link rel="icon" href="data:,">{head}
<title>{escape(title)}</title><style>{_STYLE}</style></head><body>
{body}
</body></html>
"""


def table(heads: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Return a table of rows, each with its attributes. A column whose head starts with `#` has numbers.

    In a narrow window each row is shown as a card with the heads in its cells.
    """
    kinds = [' class="n"' if head.startswith("#") else "" for head in heads]
    names = [head.removeprefix("#") for head in heads]
    top = "".join(f"<th{kind}>{name}</th>" for kind, name in zip(kinds, names, strict=True))
    cells = [f'<td{kind} data-head="{name}">' for kind, name in zip(kinds, names, strict=True)]
    cells[0] = f"<td{kinds[0]}>"
    body = "".join(
        f"<tr {attributes}>{''.join(f'{cell}{text}</td>' for cell, text in zip(cells, row, strict=True))}</tr>"
        for attributes, row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def bullets(items: Iterable[str], count: int, most: int) -> str:
    """Return a list of the first `most` items of `count`; empty without items."""
    shown = [f"<li>{item}</li>" for item, _ in zip(items, range(most), strict=False)]
    more = f'<li class="dim">and {count - len(shown):,} more</li>' if count > len(shown) else ""
    return f"<ul>{''.join(shown)}{more}</ul>" if shown or more else ""


def dim(text: str) -> str:
    """Return markup in a dim color."""
    return f'<span class="dim">{text}</span>'


def code(text: str) -> str:
    """Return a text as escaped code."""
    return f"<code>{escape(text)}</code>"


def span(seconds: float) -> str:
    """Return a duration in its two largest units."""
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
