"""EVALUATIONS: the log of what an optimiser asked, in order, so that a run that was stopped goes on bit by bit.

    (x_0 -> y_0, J_0), (x_1 -> y_1, J_1), ...

The optimisers are deterministic: the same answers lead to the same questions. A run that is started again with its log
is answered from it until the log ends, and only then computes; so it ends with the same bits as one that was never
stopped, whatever the state inside of the optimiser was. Each record is three arrays of numpy, so any file can keep it.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from ._errors import MechanismError


class Record(NamedTuple):
    """One question and its answer: `x` (n,) or (members, n), responses `y`, derivatives `J`, empty if not asked."""

    x: np.ndarray
    y: np.ndarray
    J: np.ndarray


class Evaluations:
    """The records of a run. Give those of an earlier, stopped run to go on from there.

    **Arguments:**

    - `records`: of the earlier run, in order; anything that unpacks into x, y and J.
    - `added`: called with each new `Record`, for example to append it to a file.
    """

    def __init__(self, records: Iterable = (), added: Callable[[Record], None] | None = None):
        self.records = [Record(*(np.asarray(a, float) for a in record)) for record in records]
        self.added = added
        self._next = 0

    def __len__(self) -> int:
        return len(self.records)

    @property
    def asked(self) -> int:
        """How many questions were asked since the run began."""
        return self._next

    @property
    def replayed(self) -> bool:
        """Whether the run is still being answered from the log."""
        return self._next < len(self.records)

    def rewind(self) -> None:
        """A run begins."""
        self._next = 0

    def ask(self, x: np.ndarray, derivative: bool, compute: Callable[[], tuple]) -> Record:
        """The answer to x: the next record, or if there is none, what `compute` gives."""
        if self._next == len(self.records):
            y, J = compute()
            self.records.append(Record(np.array(x, float), np.asarray(y, float), np.asarray(J, float)))
            if self.added is not None:
                self.added(self.records[-1])
        found = self.records[self._next]
        if found.x.shape != x.shape or found.x.tobytes() != np.asarray(x, float).tobytes():
            raise MechanismError(self._foreign("asks for other numbers"))
        if bool(found.J.size) != derivative:
            raise MechanismError(self._foreign("asks for derivatives" if derivative else "asks for no derivatives"))
        self._next += 1
        return found

    def _foreign(self, why: str) -> str:
        return (
            f"record {self._next} of the evaluations belongs to another run: this one {why} there; give it the same "
            "mechanism, numbers, bounds, method and versions, or start with an empty log"
        )
