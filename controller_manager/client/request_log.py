"""The request log at `-v=6`: no header, no body, and of a query what is known to be harmless."""

from http import HTTPStatus
from urllib.parse import quote

from controller_manager.base.log import Logger

LEVEL = 6
_HARMLESS = frozenset(
    {
        *("labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch"),
        *("watch", "allowWatchBookmarks", "sendInitialEvents", "timeoutSeconds"),
        *("dryRun", "fieldManager", "fieldValidation", "force", "propagationPolicy"),
    }
)
_STATUS = {one.value: f"{one.value} {one.phrase}" for one in HTTPStatus}


def tell_of_answer(
    log: Logger, method: str, path: str, query: tuple[tuple[str, str], ...], status: int, seconds: float
) -> None:
    """Log an exchange as client-go does; `status` 0 is none. Costs nothing where nobody listens."""
    if log.shows(LEVEL):
        url, shown = _url(path, query), _STATUS.get(status, str(status or ""))
        log.debug("Response", v=LEVEL, verb=method, url=url, status=shown, milliseconds=round(seconds * 1000))


def _url(path: str, query: tuple[tuple[str, str], ...]) -> str:
    pairs = [f"{name}={quote(value) if name in _HARMLESS else '<masked>'}" for name, value in query]
    return f"{path}?{'&'.join(pairs)}" if pairs else path
