"""OPTIMAL CONTROL: `mb.control`. Describe a `Problem`; `collocation` solves it, loops included."""

from ._control._collocation import collocation as collocation
from ._control._problem import Free as Free
from ._control._problem import Path as Path
from ._control._problem import Problem as Problem
from ._control._solution import Progress as Progress
from ._control._solution import Solution as Solution
