"""Examples of every connection, for the laws that all of them obey. Each family has a file `examples_*.py`.

An example says around which motion it is looked at: a muscle has a length at which it works.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb


@dataclasses.dataclass(frozen=True)
class Example:
    """A connection, and the motions at which its laws are tested.

    - `at`: translations of the other markers, (k, 3), or the coordinates (k,) of a joint connection; by how much they
        vary (`spread`, m or rad), and how far markers turn (`turn`, rad).
    - `rate`: the size of twists or speeds. `z`, `z_spread`, `u`: states, how far they vary, and range of inputs.
    - `follow`: range of the multipliers that it follows.
    - `still`: whether derivatives exist at rest, where the rate is zero.
    """

    load: Any
    at: Any = ((0.3, -0.2, 0.4),)
    spread: float = 0.2
    turn: float = 0.5
    rate: float = 1.0
    z: Any = None
    z_spread: float = 0.1
    u: tuple[float, float] = (-1.0, 1.0)
    follow: tuple[float, float] = (0.5, 1.5)
    followed: int = 0
    still: bool = True


def samples(example: Example, count: int, still: int = 1) -> tuple:
    """(t, x, xd, z, u) with a batch axis in front of everything; the last `still` ones are at rest."""
    load, rng = example.load, np.random.default_rng(4)
    at = np.asarray(example.at, float)
    moving = (np.arange(count) < count - still).astype(float)
    xd = example.rate * rng.normal(size=(count, *load.motion_example()[1].shape))
    xd = jnp.asarray(xd * moving.reshape(-1, *(1,) * (xd.ndim - 1)))
    if isinstance(load, mb.AbstractJointConnection):
        x = jnp.asarray(at + example.spread * rng.normal(size=(count, *at.shape)))
    else:
        place = jnp.asarray(at + example.spread * rng.normal(size=(count, *at.shape)))
        turns = jnp.asarray(example.turn * rng.normal(size=(count, *at.shape)))
        poses = [mb.Pose(jax.vmap(_rotation)(turns[:, k]), place[:, k]) for k in range(at.shape[0])]
        x = poses[0] if isinstance(load, mb.AbstractConnection) else tuple(poses)
    z = np.asarray(load.start() if example.z is None else example.z, float)
    z = jnp.asarray(z + example.z_spread * rng.normal(size=(count, *z.shape)))
    u = rng.uniform(*example.u, size=(count, load.nu))
    lam = rng.uniform(*example.follow, size=(count, example.followed))
    return jnp.asarray(rng.uniform(0, 2, count)), x, xd, z, jnp.asarray(np.concatenate([u, lam], 1))


def _rotation(turn):
    size = jnp.sqrt(turn @ turn)
    return mb.rotation_about(turn / size, size)
