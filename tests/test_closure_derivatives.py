"""Derivatives of closed mechanisms through compile, assemble, dynamics, reactions: forward = reverse = differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed import bricard, crank_slider, four_bar, rolling_disc
from helpers import central_difference, close

import diffmb as mb


def _four_bar(p):
    """Lengths, the crank's angle and speed; three of the five rows are redundant."""
    model = mb.compile(four_bar(*p[:4]))
    return model, mb.assemble(model, {"A": p[4]}, {"A": p[5]}, guess={"B": 0.24, "C": 0.79})


def _crank_slider(p):
    model = mb.compile(crank_slider(*p[:3]))
    return model, mb.assemble(model, {"A": p[3]}, {"A": p[4]}, guess={"B": -1.0})


def _bricard(p):
    """Size, gravity and the driving angle: the loop stays mobile, its rank stays 4 of 5."""
    model = mb.compile(bricard(p[0], gravity=(p[1], 0.3, -9.81)))
    return model, mb.assemble(model, {"R1": p[2]}, {"R1": p[3]})


def _rolling_disc(p):
    """Radius and a guess of the attitude and speeds: freedom is left, so the nearest state is found."""
    model = mb.compile(rolling_disc(p[0]))
    q = mb.retract(model, model.neutral(), jnp.stack([1.2 + p[1], 0.3, 0.4, p[2], 0.0, 0.3]))
    return model, mb.assemble(model, q, jnp.stack([p[3], 1.0, 2.0, 0.3, 0.2, 0.1]))


CASES = {
    "four-bar": (_four_bar, [0.1, 0.3, 0.25, 0.3, 0.5, 2.0]),
    "crank-slider": (_crank_slider, [0.2, 0.5, 0.05, 0.8, 3.0]),
    "bricard": (_bricard, [1.1, 0.2, 0.3, 1.5]),
    "rolling disc": (_rolling_disc, [0.3, 0.1, 0.2, 0.7]),
}


def _response(case):
    build = CASES[case][0]

    def run(p):
        model, state = build(p)
        d = mb.dynamics(model, state.q, state.v)
        r = mb.reactions(model, state.q, state.v)
        return jnp.concatenate([state.q, state.v, d.vd, d.lam, r.wrenches.ravel()])

    return run


@pytest.mark.parametrize("case", CASES)
def test_forward_reverse_and_differences_agree(case):
    run, p = _response(case), jnp.asarray(CASES[case][1])
    rng = np.random.default_rng(0)
    direction = jnp.asarray(rng.standard_normal(p.shape)) * 0.3 * jnp.abs(p)

    @jax.jit
    def both(p, direction, weights):
        slope = jax.jvp(run, (p,), (direction,))[1]
        return slope, jax.vjp(run, p)[1](weights)[0]

    value = jax.jit(run)
    weights = jnp.asarray(rng.standard_normal(value(p).shape))
    slope, pulled = both(p, direction, weights)
    close(slope, central_difference(value, p, direction, 1e-4), 3e-7)
    a, b = float(weights @ slope), float(pulled @ direction)
    assert abs(a - b) <= 1e-9 * float(jnp.abs(weights * slope).sum())


@pytest.mark.parametrize("case", CASES)
def test_second_order(case):
    """Derivative of the derivative of the accelerations, against differences of the first."""
    build, p = CASES[case]
    p = jnp.asarray(p)
    direction = 0.2 * jnp.abs(p)

    def run(p):
        model, state = build(p)
        d = mb.dynamics(model, state.q, state.v)
        return jnp.concatenate([d.vd, d.lam])

    first = lambda p: jax.jvp(run, (p,), (direction,))[1]
    second = jax.jit(lambda p: jax.jvp(first, (p,), (direction,))[1])(p)
    close(second, central_difference(jax.jit(first), p, direction, 1e-3), 1e-5)
