"""Whether the silence of nodes is theirs, or we did not listen; pure.

the last word of any lease    connection          then
came a while ago              whatever            we may be deaf: nobody falls silent for now
just came, after that         the same            it was they who were silent: a watch leaves nothing out
just came, after that         another             nobody knows: all nodes are taken for heard now
whatever, and we slept        whatever            the same: much of what was said may be yet to be read
"""

from collections.abc import Hashable
from enum import Enum, auto


class Verdict(Enum):
    """What may be concluded from having heard nothing of a node."""

    SILENCE = auto()
    NOTHING = auto()
    ANEW = auto()


class HeartbeatMonitor:
    """The past of a watch as far as it matters; after `patience` seconds without a word it may have broken."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._deaf = False
        # Which connection it was that something was heard on.
        self._connection: Hashable = None

    def judge(self, age: float, connection: Hashable, late: float = 0.0) -> Verdict:
        """The last word came so many seconds ago, the watch is now that connection, and we look so much too late."""
        if late > self._patience:
            self._deaf, self._connection = False, connection
            return Verdict.ANEW
        if age > self._patience:
            self._deaf = True
            return Verdict.NOTHING
        before, self._connection = self._connection, connection
        was_deaf, self._deaf = self._deaf, False
        return Verdict.ANEW if was_deaf and connection != before else Verdict.SILENCE
