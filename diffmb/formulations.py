"""FORMULATIONS, `mb.formulations`: other ways to the same motion, to compare with `mb.dynamics` and to learn from."""

from ._formulations._abstract import (
    AbstractFormulation as AbstractFormulation,
    Accelerations as Accelerations,
    Simulation as Simulation,
)
from ._formulations._augmented import Augmented as Augmented
from ._formulations._kane import Kane as Kane
from ._formulations._particles import Particles as Particles
from ._formulations._recursive import Recursive as Recursive

ALL = (Augmented, Kane, Particles, Recursive)
