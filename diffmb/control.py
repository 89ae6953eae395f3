"""OPTIMAL CONTROL, `mb.control`: describe a `Problem`, then solve it by `collocation`, `shooting` or `ilqr`."""

from ._control._collocation import collocation as collocation
from ._control._guess import Guess as Guess
from ._control._ilqr import Track as Track, Tracking as Tracking, ilqr as ilqr
from ._control._problem import Free as Free, Path as Path, Problem as Problem
from ._control._shooting import shooting as shooting
from ._control._solution import Progress as Progress, Solution as Solution
