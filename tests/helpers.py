"""Random mechanisms over every joint, random states, and differences."""

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb


def _helix(s, params):
    return jnp.array([params[0] * jnp.cos(s), params[0] * jnp.sin(s), params[1] * s])


def _cam(q, t, params):
    """A rheonomic hinge: a turning arm whose length breathes with the angle and with time."""
    radius, depth, rate = params
    arm = radius * (1.0 + depth * jnp.sin(2 * q[0]) + depth * jnp.sin(rate * t))
    return mb.rotation_about(jnp.array([0.0, 0.6, 0.8]), q[0]), arm * jnp.array([jnp.cos(q[0]), jnp.sin(q[0]), 0.0])


def _twisting_slide(q, t, pitch):
    """A scleronomic hinge of two coordinates."""
    turn = mb.rotation_about(jnp.array([1.0, 0.0, 0.0]), pitch * q[0] + q[1])
    return mb.Pose(turn, jnp.array([q[0], 0.1 * q[0] ** 2, jnp.sin(q[1])]))


KINDS = {
    "weld": mb.Weld,
    "revolute": lambda *a: mb.Revolute(*a, axis=(0.3, -1.0, 0.5)),
    "prismatic": lambda *a: mb.Prismatic(*a, axis=(1.0, 0.2, 0.4)),
    "screw": lambda *a: mb.Screw(*a, axis="y", pitch=0.07),
    "cylindrical": lambda *a: mb.Cylindrical(*a, axis=(0.0, 1.0, 1.0)),
    "universal": mb.Universal,
    "planar": mb.Planar,
    "spherical": mb.Spherical,
    "free": mb.Free,
    "angles": mb.Angles123,
    "turn-slide": lambda *a: mb.RotationTranslation(*a, axis="z", slide=(1.0, 0.0, 0.5)),
    "curve": lambda *a: mb.PointOnCurve(*a, _helix, (0.4, 0.1)),
    "hinge": lambda *a: mb.Hinge(*a, pose=_twisting_slide, size=2, params=0.5),
    "cam": lambda *a: mb.Hinge(*a, pose=_cam, size=1, params=(0.3, 0.2, 1.7)),
}
SCLERONOMIC = [kind for kind in KINDS if kind != "cam"]


def random_body(rng, name):
    root = rng.standard_normal((3, 3))
    second_moment = 0.05 * (root @ root.T) + 0.01 * np.eye(3)
    inertia = np.trace(second_moment) * np.eye(3) - second_moment
    return mb.RigidBody(name, rng.uniform(0.5, 2.0), 0.2 * rng.standard_normal(3), inertia)


def random_marker(rng, body):
    quaternion = rng.standard_normal(4)
    return mb.Marker(body, 0.3 * rng.standard_normal(3), quaternion / np.linalg.norm(quaternion))


def random_mechanism(seed, kinds, gravity=(0.5, -2.0, -9.0), parent=None):
    """A tree with one body per kind; `parent(i)` gives the number of body i's parent (0: world), random by default."""
    rng = np.random.default_rng(seed)
    parent = parent or (lambda i: int(rng.integers(max(0, i - 4), i + 1)))
    bodies, joints = [], []
    for i, kind in enumerate(kinds):
        p = parent(i)
        inner = random_marker(rng, f"b{p}" if p else "world")
        bodies.append(random_body(rng, f"b{i + 1}"))
        joints.append(KINDS[kind](f"{kind} {i + 1}", inner, random_marker(rng, f"b{i + 1}")))
    return mb.Mechanism(bodies, joints, gravity=gravity)


def random_states(model, seed, count, special=True):
    """Stacked (q, v, vd, t); with `special` the last two are neutral: one moving, one at rest."""
    rng = np.random.default_rng(seed)
    step, v, vd = (jnp.asarray(rng.standard_normal((count, model.nv))) for _ in range(3))
    t = jnp.asarray(rng.uniform(0, 2, count))
    if special:
        step = step.at[-2:].set(0.0)
        v = v.at[-1].set(0.0)
    q = jax.vmap(lambda s: mb.retract(model, model.neutral(), s))(step)
    return q, v, vd, t


def central_difference(f, x, direction, h=1e-5):
    """Fourth-order central difference of a function of a pytree along a direction."""
    move = lambda s: f(jax.tree.map(lambda a, d: a + s * d, x, direction))
    d1 = jax.tree.map(lambda a, b: (a - b) / (2 * h), move(h), move(-h))
    d2 = jax.tree.map(lambda a, b: (a - b) / (4 * h), move(2 * h), move(-2 * h))
    return jax.tree.map(lambda a, b: (4 * a - b) / 3, d1, d2)


def close(a, b, rtol):
    """Largest difference relative to the size of the whole array (or to one)."""
    a, b = np.asarray(a), np.asarray(b)
    assert np.isfinite(a).all() and np.isfinite(b).all()
    scale = max(np.abs(b).max(initial=0.0), 1.0)
    assert np.abs(a - b).max(initial=0.0) <= rtol * scale, (np.abs(a - b).max() / scale, rtol)
