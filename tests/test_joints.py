"""Laws that every joint obeys, over every kind, forwards and reversed; then what single kinds promise."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import diffmb as mb
from diffmb._joints._abstract import kind_of, rank_deficient
from diffmb._joints._reversed import reverse
from diffmb._spatial._pose import quat_exp, quat_log, rotation_to_quat, twist_displacement, twist_velocity

BATCH = 32  # wide enough for products to be written out; one sample alone takes the other way


def cam(q, t, params):
    """Two coordinates, a tuple: an eccentric pin on a slide."""
    c, s = jnp.cos(q[0]), jnp.sin(q[0])
    eccentric = params["radius"] * jnp.array([c, s, 0]) + params["tilt"] * q[1]
    return jnp.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]), eccentric


def shaker(q, t, params):
    """One coordinate on a table that moves by itself, a Pose."""
    amplitude, frequency = params
    table = amplitude * jnp.sin(frequency * t)
    turn = mb.rotation_about(jnp.array([0.0, 0.6, 0.8], q.dtype), q[0] * (1.0 + table) + t * t)
    return mb.Pose(turn, jnp.stack([table, q[0] * t, table * q[0] ** 2]))


def lift_table(q, t, params):
    """No coordinates at all: a prescribed motion."""
    c, s = jnp.cos(params * t), jnp.sin(params * t)
    return jnp.array([[1, 0, 0], [0, c, -s], [0, s, c]]), jnp.array([0.0, t * t, s])


def helix(s, params):
    return jnp.stack([params * (jnp.cos(s) - 1.0), params * jnp.sin(s), 0.3 * s])


ENDS = ("j", mb.Marker("world", (0.1, 0.2, 0.3)), "body")
TILTED = (0.48, -0.6, 0.64)
KINDS = {
    "weld": mb.Weld(*ENDS),
    "revolute": mb.Revolute(*ENDS, axis=TILTED),
    "prismatic": mb.Prismatic(*ENDS, axis=TILTED),
    "screw": mb.Screw(*ENDS, axis=TILTED, pitch=0.3),
    "cylindrical": mb.Cylindrical(*ENDS, axis=TILTED),
    "universal": mb.Universal(*ENDS),
    "skew universal": mb.Universal(*ENDS, axis1=TILTED, axis2=(1, 1, 0)),
    "planar": mb.Planar(*ENDS),
    "spherical": mb.Spherical(*ENDS),
    "free": mb.Free(*ENDS),
    "angles123": mb.Angles123(*ENDS),
    "rotation translation": mb.RotationTranslation(*ENDS, axis=TILTED, slide="x"),
    "curve": mb.PointOnCurve(*ENDS, curve=helix, params=0.7),
    "hinge": mb.Hinge(*ENDS, pose=cam, size=2, params={"radius": 0.4, "tilt": jnp.array([0.1, 0, 1])}),
    "rheonomic hinge": mb.Hinge(*ENDS, pose=shaker, size=1, params=(0.2, 3.0)),
    "driven hinge": mb.Hinge(*ENDS, pose=lift_table, size=0, params=2.0),
}
CASES = KINDS | {f"reversed {name}": reverse(joint) for name, joint in KINDS.items()}
every_joint = pytest.mark.parametrize("joint", CASES.values(), ids=CASES.keys())
# The rule for a reversed joint does not know what it reverses: three of them are enough where compiling takes long.
REVERSED = ("reversed universal", "reversed spherical", "reversed rheonomic hinge")
FEWER = KINDS | {name: CASES[name] for name in REVERSED}
some_reversed = pytest.mark.parametrize("joint", FEWER.values(), ids=FEWER.keys())
every_kind = pytest.mark.parametrize("joint", KINDS.values(), ids=KINDS.keys())


class OnlyPose(mb.AbstractJoint):
    """A joint that has forgotten its closed forms."""

    inner: mb.AbstractJoint
    nq = property(lambda self: self.inner.nq)
    nv = property(lambda self: self.inner.nv)

    def pose(self, q, t):
        return self.inner.pose(q, t)

    def qdot(self, q, v):
        return self.inner.qdot(q, v)


def bare(joint):
    """As the sweep sees it. Numbers stay in numpy between programs, where nothing needs compiling."""
    return jax.device_get(kind_of(joint))


def samples(joint):
    """q, v, t with a trailing batch: the neutral place, quarter and half turns, random ones, a drifted quaternion."""
    rng = np.random.default_rng(7)
    q = rng.normal(size=(joint.nq, BATCH))
    if joint.nq != joint.nv:
        q[-4:, 1], q[-4:, 2] = (0, 1, 0, 0), (0.5**0.5, 0, -(0.5**0.5), 0)
        q[-4:, :-1] /= np.linalg.norm(q[-4:, :-1], axis=0)
    else:
        q[:, 1], q[:, 2] = np.pi / 2, -np.pi
    q[:, 0] = joint.neutral()
    return q, rng.normal(size=(joint.nv, BATCH)), rng.normal(size=BATCH)


def with_batch(joint):
    """The bare joint with parameters that differ along the batch."""
    vary = lambda x, d: x[..., None] + 0.1 * np.linspace(-1, 1, BATCH) * d[..., None]
    return jax.tree.map(vary, bare(joint), random_like(bare(joint), 1))


def member(tree, i):
    return jax.tree.map(lambda x: x[..., i], tree)


def random_like(tree, seed):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: rng.normal(size=x.shape).astype(x.dtype), tree)


def moved(args, direction, step):
    return jax.tree.map(lambda x, d: x + step * d, args, direction)


def inner_product(a, b):
    return sum((x * y).sum() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)))


def close(a, b, tol):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=tol, atol=tol)


@cache
def in_a_hurry():
    """Options with which XLA compiles several times faster; none where a version of it does not know them."""
    options = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
    try:
        jax.jit(lambda x: x, compiler_options=options)(0.0)
    except jax.errors.JaxRuntimeError:
        return None
    return options


def jit(function):
    """For programs that run a few times only."""
    compiled = jax.jit(function, compiler_options=in_a_hurry())
    return lambda *args: jax.device_get(compiled(*args))


def trace_motion(joint, q, v, t):
    return joint.pose(q, t), joint.subspace(q, t), joint.twist(q, v, t), joint.bias(q, v, t)


motion = jit(trace_motion)


@jit
def closed_and_default(joint, q, v, t):
    return trace_motion(joint, q, v, t), trace_motion(OnlyPose("", "", "", joint), q, v, t)


@every_joint
def test_closed_forms_are_the_derivatives_of_the_pose(joint):
    (q, v, t), many = samples(joint), with_batch(joint)
    closed, default = closed_and_default(many, q, v, t)
    close(closed, default, 1e-13)
    R = closed[0].rotation
    np.testing.assert_allclose(np.einsum("mib,mjb->ijb", R, R), np.tile(np.eye(3)[..., None], BATCH), atol=1e-14)
    np.testing.assert_allclose(np.linalg.det(R.T), 1.0)
    assert np.linalg.matrix_rank(closed[1][..., 3]) == joint.nv  # the speeds are independent


@some_reversed
def test_batch_is_a_loop(joint):
    args = (with_batch(joint), *samples(joint))
    together, _ = closed_and_default(*args)
    for i in range(0, BATCH, 2):
        close(member(together, i), motion(*member(args, i)), 1e-13)


@every_joint
def test_one_joint_and_one_time_for_the_whole_batch(joint):
    q, v, t = samples(joint)
    one = jax.tree.map(lambda x: x[..., None], bare(joint))
    X, S, V, b = jax.eval_shape(trace_motion, one, q, v, t[:1])
    assert X.rotation.shape == (3, 3, BATCH) and X.translation.shape == (3, BATCH)
    assert S.shape == (6, joint.nv, BATCH) and V.shape == b.shape == (6, BATCH)


@every_kind
def test_neutral_markers_coincide(joint):
    q = joint.neutral()
    assert q.shape == (joint.nq,)
    if not isinstance(joint, mb.Hinge):  # a hinge may begin where it likes
        close(motion(bare(joint), q, np.zeros(joint.nv), np.zeros(()))[0], (np.eye(3), np.zeros(3)), 1e-15)


def rates(joint, q, v, t):
    """What the dynamics takes from a joint."""
    return joint.pose(q, t), joint.subspace(q, t), joint.bias(q, v, t)


@jit
def slopes(args, direction, weight):
    _, tangent = jax.linearize(rates, *args)
    forward = tangent(*direction)
    backward = jax.linear_transpose(tangent, *args)(weight)
    return forward, inner_product(forward, weight), inner_product(backward, direction)


@some_reversed
def test_jvp_is_vjp_is_central_difference(joint):
    args = (bare(joint), *member(samples(joint), 3))
    direction, weight = random_like(args, 2), random_like(jax.eval_shape(rates, *args), 3)
    forward, by_jvp, by_vjp = slopes(args, direction, weight)
    close(by_jvp, by_vjp, 1e-12)
    X, S, _, b = moved(*(motion(*moved(args, direction, h)) for h in (1e-5, -1e-5)), -1.0)
    close(forward, jax.tree.map(lambda d: d / 2e-5, (X, S, b)), 1e-7)


@jit
def along(args, direction):
    """First and second derivative of all maps of the coordinates."""

    def maps(joint, q, v, t, step):
        there = joint.retract(q, step)
        return joint.pose(q, t), joint.qdot(q, v), there, joint.difference(q, there)

    return jax.jvp(lambda *args: jax.jvp(maps, args, direction)[1], args, direction)


@some_reversed
def test_second_derivatives_at_neutral(joint):
    args = (bare(joint), np.asarray(joint.neutral()), np.ones(joint.nv), np.zeros(()), np.zeros(joint.nv))
    direction = random_like(args, 4)
    _, second = along(args, direction)
    difference = moved(*(along(moved(args, direction, h), direction)[0] for h in (1e-5, -1e-5)), -1.0)
    close(second, jax.tree.map(lambda d: d / 2e-5, difference), 1e-7)


def trace_steps(joint, q, v, step):
    there = joint.retract(q, step)
    halfway = joint.retract(joint.retract(q, 0.5 * step), 0.5 * step)
    return (
        there,
        halfway,
        joint.difference(q, there),
        joint.qdot(q, v),
        joint.retract(q, 1e-5 * v) - joint.retract(q, -1e-5 * v),
    )


steps = jit(trace_steps)


@some_reversed
def test_steps_on_the_manifold(joint):
    q, v, _ = samples(joint)
    there, halfway, back, qdot, difference = steps(with_batch(joint), q, v, 0.7 * v)
    close(back, 0.7 * v, 1e-13)
    close(halfway, there, 1e-13)  # one constant speed, so the way may be cut anywhere
    close(qdot, difference / 2e-5, 1e-9)
    if joint.nq != joint.nv:
        lengths = (np.sqrt((x[-4:] ** 2).sum(0)) for x in (q, there))
        close(*lengths, 1e-14)


def in_precision(joint, dtype):
    args = member((with_batch(joint), *samples(joint)), 3)
    return jax.tree.map(lambda x: x.astype(dtype), args)


@every_joint
def test_float32_stays_float32(joint):
    joint, q, v, t = in_precision(joint, jnp.float32)
    result = jax.eval_shape(trace_motion, joint, q, v, t), jax.eval_shape(trace_steps, joint, q, v, v)
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(result))


@pytest.mark.parametrize("name", ["screw", "free", "reversed angles123"])
def test_float32_is_near(name):
    single, double = (motion(*in_precision(CASES[name], dtype)) for dtype in (jnp.float32, float))
    close(single, double, 1e-5)


# --- quaternions and screws


@jit
def there_and_back(w, p, dw, dp):
    """Value and two derivatives of what should be the identity."""

    def round_trip(w, p):
        return quat_log(quat_exp(w)), twist_velocity(w, twist_displacement(w, p))

    first = lambda w, p: jax.jvp(round_trip, (w, p), (dw, dp))
    return jax.jvp(first, (w, p), (dw, dp))


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_log_undoes_exp_with_two_derivatives(dtype):
    # Both sides of every switch between series and closed form: |w|/2 = 0.1 and 1, tan(|w|/2) = 0.01.
    angles = np.array([0.0, 1e-30, 1e-8, 1e-3, 0.0199, 0.0201, 0.199, 0.201, 1.0, 1.99, 2.01, 3.0])
    w = (np.array([[0.36], [-0.48], [0.8]]) * angles).astype(dtype)
    p, dw, dp = random_like((w, w, w), 6)
    eps = jnp.finfo(dtype).eps
    (value, first), (_, second) = there_and_back(w, p, dw, dp)
    close(value, (w, p), 50 * eps)
    close(first, (dw, dp), 1e3 * eps)
    close(second, jax.tree.map(np.zeros_like, second), 1e5 * eps)


def test_free_step_is_the_matrix_exponential():
    joint = bare(KINDS["free"])
    w, u = np.array([0.3, -1.1, 0.7]), np.array([1.0, 2.0, -0.5])
    W = np.array([[0, -w[2], w[1], u[0]], [w[2], 0, -w[0], u[1]], [-w[1], w[0], 0, u[2]], [0, 0, 0, 0]])
    step = np.concatenate([w, u])
    X = motion(joint, steps(joint, joint.neutral(), step, step)[0], step, np.zeros(()))[0]
    np.testing.assert_allclose(scipy.linalg.expm(W)[:3], np.column_stack([X.rotation, X.translation]), atol=1e-14)


# --- single kinds


pose_at = jit(lambda joint, q: joint.pose(q, jnp.zeros(q.shape[1:])))


def pose_of(joint, *q):
    return pose_at(bare(joint), np.array(q, float))


def test_kamman_angles():
    q = np.array([0.3, -0.4, 0.5, 1.0, 2.0, 3.0])
    turns = [pose_of(mb.Revolute(*ENDS, axis=axis), angle).rotation for axis, angle in zip("xyz", q)]
    close(pose_of(KINDS["angles123"], *q), (turns[0] @ turns[1] @ turns[2], q[3:]), 1e-15)


def test_dependent_speeds_are_noticed():
    angles = np.zeros((6, 2))
    angles[1] = np.pi / 2, 1.5
    assert jit(rank_deficient)(bare(KINDS["angles123"]), angles, np.zeros(2)).tolist() == [True, False]
    assert not rank_deficient(KINDS["weld"], jnp.zeros(0), jnp.zeros(()))


def test_screw_pitch_is_per_radian():
    X = pose_of(mb.Screw(*ENDS, axis="z", pitch=0.25), 2.0)
    close(X.translation, np.array([0, 0, 0.5]), 1e-15)


def test_slide_does_not_turn_with_the_child():
    X = pose_of(mb.RotationTranslation(*ENDS, axis="z", slide="x"), np.pi / 2, 2.0)
    close(X.translation, np.array([2.0, 0, 0]), 1e-15)
    parallel, cylindrical = mb.RotationTranslation(*ENDS, axis=TILTED, slide=TILTED), KINDS["cylindrical"]
    close(pose_of(parallel, 0.3, 0.4), pose_of(cylindrical, 0.3, 0.4), 1e-15)


def test_free_coordinates():
    half = 0.5**0.5
    X = pose_of(KINDS["free"], 1, 2, 3, half, 0, 0, half)
    close(X, (np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1]]), np.array([1, 2, 3])), 1e-15)
    close(jit(rotation_to_quat)(X.rotation), np.array([half, 0, 0, half]), 1e-15)


def test_reverse_exchanges_the_markers():
    joint = mb.Revolute("hinge", mb.Marker("frame", (1, 2, 3)), "arm", axis="x", cut=True)
    back = reverse(joint)
    assert (back.name, back.parent.body, back.child.body, back.cut) == ("hinge", "arm", "frame", True)
    close(pose_of(reverse(back), 0.4), pose_of(joint, 0.4), 1e-15)


def test_hinges_of_one_function_stack():
    hinges = [
        mb.Hinge(f"h{i}", "world", f"b{i}", cam, 2, {"radius": i, "tilt": jnp.array([0.0, i, 1])}) for i in (1, 2)
    ]
    first, second = (jax.tree.structure(kind_of(h)) for h in hinges)
    assert first == second
    for make in (reverse, kind_of):
        each = [bare(make(h)) for h in hinges]
        stacked = jax.tree.map(lambda *x: np.stack(x, -1), *each)
        q = np.array([[0.1, 0.2], [0.3, 0.4]])
        together = pose_at(stacked, q)
        for i in (0, 1):
            close(member(together, i), pose_at(each[i], q[:, i]), 1e-15)


def test_params_are_differentiable():
    def height(radius):
        return mb.Hinge(*ENDS, pose=cam, size=2, params={"radius": radius, "tilt": jnp.array([0.0, 0, 1])}).pose(
            jnp.array([0.5, 0.0]), jnp.zeros(())
        )

    close(jit(jax.jacrev(height))(2.0).translation, np.array([np.cos(0.5), np.sin(0.5), 0]), 1e-15)


# --- what is refused, and how it is said

REFUSED = {
    "flat rotation": (lambda q, t, p: (jnp.zeros(9), jnp.zeros(3)), r"'j'.*\(9,\).*expected \(3, 3\) and \(3,\)"),
    "long translation": (lambda q, t, p: (jnp.eye(3), jnp.ones(4)), r"'j'.*\(4,\).*expected \(3, 3\) and \(3,\)"),
    "one array": (lambda q, t, p: jnp.zeros((4, 4)), r"'j'.*a Pose or the tuple"),
    "forgotten params": (lambda q, t: (jnp.eye(3), jnp.zeros(3)), r"'j'.*2 coordinates: TypeError"),
    "unhashable": (type("Callable", (), {"__hash__": None, "__call__": cam})(), r"'j'.*cannot be hashed"),
}


@pytest.mark.parametrize("pose, message", REFUSED.values(), ids=REFUSED.keys())
def test_hinge_refuses(pose, message):
    with pytest.raises(mb.MechanismError, match=f"(?s){message}"):
        mb.Hinge(*ENDS, pose=pose, size=2)


def test_other_refusals():
    with pytest.raises(mb.MechanismError, match=r"'ball'.*only numbers"):
        mb.Hinge(*ENDS, pose=cam, size=2, params={"kind": "ball"})
    with pytest.raises(mb.MechanismError, match=r"'j' has size=7.*0 to 6"):
        mb.Hinge(*ENDS, pose=cam, size=7)
    with pytest.raises(mb.MechanismError, match=r"'j'.*\(2,\); expected \(3,\)"):
        mb.PointOnCurve(*ENDS, curve=lambda s, p: jnp.stack([s, s]))
    with pytest.raises(mb.MechanismError, match="'j' are parallel"):
        mb.Universal(*ENDS, axis1="x", axis2="-x")
    with pytest.raises(mb.MechanismError, match=r"'j' has shape.*metres per radian"):
        mb.Screw(*ENDS, pitch=(1, 2, 3))
