"""FORMULATIONS, `mb.formulations`: other ways to the same motion, to compare with `mb.dynamics` and to learn from."""

from ._formulations._abstract import AbstractFormulation as AbstractFormulation
from ._formulations._abstract import Accelerations as Accelerations, Simulation as Simulation
from ._formulations._augmented import Augmented as Augmented
