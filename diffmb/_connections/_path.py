"""Paths that go straight from marker to marker."""

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
from jax import Array

from .._bodies._marker import Marker
from .._constraints._geometry import length_and_direction
from .._errors import MechanismError
from .._spatial._axis import is_concrete
from .._spatial._pose import Pose


def points(x: tuple[Pose, ...]) -> tuple[Array, ...]:
    """Origins of all markers of a span in the first."""
    return (jnp.zeros_like(x[0].translation), *(pose.translation for pose in x))


def path_length(places: tuple[Array, ...]) -> Array:
    return sum(length_and_direction(b - a)[0] for a, b in pairwise(places))  # pyright: ignore[reportReturnType]


def check_path(title: str, markers: tuple[Marker, ...]) -> None:
    """Refuses neighbours that are one point of one body."""
    for k, (a, b) in enumerate(pairwise(markers)):
        if a.body != b.body or not is_concrete(a.position, b.position):
            continue
        if np.array_equal(np.asarray(a.position), np.asarray(b.position)):
            place = np.asarray(a.position).tolist()
            raise MechanismError(
                f"points {k} and {k + 1} of {title} coincide, both at {place} on {a.body!r}; leave one of them out"
            )
