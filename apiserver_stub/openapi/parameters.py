"""Query parameters as descriptions tell of them (API concepts, Query parameters): types, sentences, who takes which."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Parameter(NamedTuple):
    """The type of a parameter's value and what it is for."""

    type: str
    about: str


PARAMETERS: Mapping[str, Parameter] = MappingProxyType({
    "allowWatchBookmarks": Parameter("boolean", "Whether a watch may send events of type BOOKMARK."),
    "continue": Parameter("string", "The token of the previous chunk of a list; all else must be as it was then."),
    "dryRun": Parameter("string", "With the value All, everything is done but storing the outcome."),
    "fieldManager": Parameter("string", "Who the written fields belong to, in at most 128 printable characters."),
    "fieldSelector": Parameter("string", "Only objects with these values in selectable fields."),
    "fieldValidation": Parameter(
        "string", "What becomes of unknown and repeated fields: Ignore, Warn (unless said otherwise) or Strict."
    ),
    "force": Parameter("boolean", "Whether server-side apply takes over fields that others own."),
    "gracePeriodSeconds": Parameter("integer", "How many seconds the object has to end; 0 ends it at once."),
    "ignoreStoreReadErrorWithClusterBreakingPotential": Parameter(
        "boolean", "Whether an object that cannot be read any more is removed all the same, heeding nothing."
    ),
    "labelSelector": Parameter("string", "Only objects whose labels fit."),
    "limit": Parameter("integer", "At most so many objects in one answer; the rest is behind a token."),
    "orphanDependents": Parameter("boolean", "Older form of propagationPolicy: whether dependents stay."),
    "pretty": Parameter("string", "With the value true, the answer is indented."),
    "propagationPolicy": Parameter("string", "What becomes of dependents: Orphan, Background or Foreground."),
    "resourceVersion": Parameter("string", "The version the answer is to be made from."),
    "resourceVersionMatch": Parameter("string", "How resourceVersion is meant: Exact or NotOlderThan."),
    "sendInitialEvents": Parameter("boolean", "Whether a watch begins with what there is, and says when it is done."),
    "timeoutSeconds": Parameter("integer", "After how many seconds the request ends, whatever it is doing."),
    "watch": Parameter("boolean", "Whether to be told of changes instead of what there is."),
})  # fmt: skip

PATH_PARAMETERS: Mapping[str, str] = MappingProxyType(
    {"name": "The name of the object.", "namespace": "The namespace the object is in."}
)
# What each action takes; every action takes `pretty` besides.
WRITING = ("dryRun", "fieldManager", "fieldValidation")
PATCHING = ("dryRun", "fieldManager", "fieldValidation", "force")
DELETING = (
    "dryRun", "gracePeriodSeconds", "ignoreStoreReadErrorWithClusterBreakingPotential", "orphanDependents",
    "propagationPolicy",
)  # fmt: skip
LISTING = (
    "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion",
    "resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch",
)  # fmt: skip
_OF_A_WATCH = frozenset({"allowWatchBookmarks", "watch"})
COLLECTING = tuple(sorted({*DELETING, *LISTING} - _OF_A_WATCH))
