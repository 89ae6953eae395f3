"""KANE in Kamman's relative coordinates: partial velocities, his eight bodies, joints, loops, and where angles lock."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed import four_bar
from founding import EIGHT, eight_bodies
from helpers import close, random_states

import diffmb as mb
from diffmb import formulations as fm
from diffmb._formulations._relative import own_columns, partials


@pytest.fixture(scope="module")
def eight():
    """The model, a state, and what Kane finds there: rates, partial velocities, their time derivatives, vd."""
    model = mb.compile(eight_bodies())
    q, v, _, _ = jax.tree.map(lambda a: a[0], random_states(model, 1, 1, special=False))

    @jax.jit
    def along(model, q, v):
        kane = fm.Kane(model)
        x, xd = kane.embed(q, v, jnp.array(0.0))
        here, rate = jax.jvp(lambda y: partials(model, x.frames, y, xd), (x.y,), (xd,))
        return xd, here, rate, kane.dynamics(q, v).vd

    return model, q, v, along(model, q, v)


def test_partial_velocities_give_the_motion(eight):
    """The twist of each body is its partial velocities times the rates; their change is their time derivative; they
    have the zeros of Kamman's page 13."""
    model, q, v, (xd, here, rate, _) = eight
    close(rate.partial, here.change, 1e-13)
    motion = mb.kinematics(model, q, v)
    turned = jnp.swapaxes(motion.pose.rotation, 1, 2) @ motion.twist[:, :3, None]
    close((here.partial @ xd)[:, :3], (model.frame.rotation @ turned)[:, :, 0], 1e-13)
    for body, number in enumerate(range(1, 9)):
        path = set()
        while number:
            path.add(number - 1)
            number = EIGHT[number - 1]
        touched = [k for k in range(8) if np.abs(here.partial[body][:, own_columns(8)[k]]).max() > 1e-12]
        assert set(touched) == path


def test_eight_bodies(eight):
    """All 48 relative coordinates free: (41) alone, against mb.dynamics."""
    model, q, v, (*_, vd) = eight
    assert fm.Kane(model).unknowns == (48, 48)
    close(vd, mb.forward_dynamics(model, q, v), 1e-9)


def test_a_loop_keeps_energy_and_turns_any_number_of_times():
    """A planar four-bar about y, in space (three redundant rows): the crank goes round and no angle locks."""
    flat = four_bar()
    turned = mb.compile(mb.Mechanism(flat.bodies, [_about_y(j) for j in flat.joints], gravity=(0, 0, -9.81)))
    state = mb.assemble(turned, {"A": 0.5}, {"A": 40.0}, guess={"B": 0.2})
    run = jax.jit(lambda f: f.simulate(state, [0.0, 0.15, 0.3], rtol=1e-10, atol=1e-10))(fm.Kane(turned))
    assert run.q[-1, 0] - run.q[0, 0] > 2 * np.pi
    energy = lambda q, v: mb.kinetic_energy(turned, q, v) + mb.potential_energy(turned, q)
    close(jax.vmap(energy)(run.q, run.v), jnp.full(3, energy(state.q, state.v)), 1e-8)
    assert np.abs(jax.vmap(lambda q: mb.constraint_residual(turned, q))(run.q)).max() < 1e-9


def _about_y(joint):
    """The joint with its markers turned, so that what was z is y."""
    turn = mb.rotation_about(jnp.array([1.0, 0.0, 0.0]), jnp.array(-np.pi / 2))
    move = lambda m: mb.Marker(m.body, m.position if m.body != "world" else turn @ m.position, m.rotation)
    return mb.Revolute(joint.name, move(joint.parent), move(joint.child), axis="y")


def test_locked_angles_are_named():
    """A free body a quarter of a turn about y from where its angles count: the error says which body, and why. A start
    there counts from another attitude."""
    model = mb.compile(mb.Mechanism([mb.box("brick", (0.1, 0.2, 0.3), mass=1.0)]))
    kane, step = fm.Kane(model), jnp.array([0.0, np.pi / 2, 0.0, 0.0, 0.0, 0.0])
    still = jnp.array(0.0)

    @jax.jit
    def turned(q, step):
        x, xd = kane.embed(q, step, still)
        x = eqx.tree_at(lambda x: x.y, x, x.y + xd)
        return kane.accelerate(x, 0.0 * xd, jnp.zeros(6), still, q, 0.0)[0]

    q = model.neutral()
    close(turned(mb.retract(model, q, step), 0.1 * step)[3:], jnp.array([0.0, 0.0, -9.81]), 1e-12)
    with pytest.raises(Exception, match=r"'brick'.* lock"):
        turned(q, step)
