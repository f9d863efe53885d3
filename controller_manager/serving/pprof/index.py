"""The index of the profiles: what there is, how much of it, and what one has to know to read it; pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1b1f24 }
h1 { font-size: 1.4rem } table { border-collapse: collapse; width: 100% }
th, td { padding: .4rem .8rem .4rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid #d8dee4 }
td.count { text-align: right; font-variant-numeric: tabular-nums } code { background: #f3f5f7; padding: .1rem .3rem }
@media (prefers-color-scheme: dark) {
  body { background: #14171a; color: #e3e6e8 } a { color: #7cb7ff } code { background: #24292e }
  th, td { border-color: #30363d }
}
"""
SECURITY = "default-src 'none'; style-src 'unsafe-inline'"


@dataclass(frozen=True, slots=True)
class Row:
    """One profile: a link relative to the index, how many samples it would hold now, and what it is."""

    name: str
    about: str
    count: int | None = None
    links: tuple[tuple[str, str], ...] = ()
    """Other forms of it: a query and what it shows."""


def index_page(program: str, rows: Iterable[Row]) -> str:
    """The page as HTML."""
    lines = "\n".join(map(_row, rows))
    name = escape(program)
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Profiles of {name}</title><style>{_STYLE}</style></head>
<body>
<h1>Profiles of {name}</h1>
<table>
<tr><th>Count</th><th>Profile</th><th>What it shows</th></tr>
{lines}
</table>
<p>Each is a file for <code>go tool pprof</code>; with <code>?debug=1</code> it is text. With <code>?seconds=N</code>, 1
to 120, what changes during that time is told. One profile of a kind is taken at a time, and it ends with the
connection of who asked for it.</p>
<p>Samples are labelled with their task and, where it works for one, their controller: see <code>-tags</code>,
<code>-tagfocus</code> and <code>-tagroot</code> of pprof. C code has no frames of its own: what it costs is found at
the Python line that called it.</p>
</body>
</html>
"""


def _row(row: Row) -> str:
    count = "" if row.count is None else str(row.count)
    links = [f'<a href="{escape(row.name + query)}">{escape(text)}</a>' for query, text in row.links]
    more = f" ({', '.join(links)})" if links else ""
    return (
        f'<tr><td class="count">{count}</td><td><a href="{escape(row.name)}">{escape(row.name)}</a></td>'
        f"<td>{escape(row.about)}{more}</td></tr>"
    )
