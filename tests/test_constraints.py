"""Laws that every constraint and coupling obeys, over every class; then closed forms, and what is refused."""

import importlib
import pkgutil
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from helpers import central_difference, close
from scipy.spatial.transform import Rotation

import diffmb as mb
from diffmb import _constraints
from diffmb._constraints._abstract import AbstractConstraint, AbstractCoupling, AbstractElement, bare
from diffmb._constraints._cam import CamContact, RollingOnProfile
from diffmb._constraints._coupling import Coordinates, Coupling, LinearCoupling
from diffmb._constraints._curve_contact import CurveContact
from diffmb._constraints._cut_joint import CutJoint
from diffmb._constraints._points import Distance, PointOnLine, PointOnPath, PointOnPlane, PointOnSurface
from diffmb._constraints._prescribed_pose import PrescribedPose
from diffmb._constraints._profile import Arcs, ArcsAndLines, SplineProfile, cam_profile
from diffmb._constraints._rolling import RollingDisc, RollingSphere, Skate
from diffmb._constraints._user import Constraint, Nonholonomic

BATCH = 6
ENDS = ("c", mb.Marker("world", (0.1, 0.2, 0.3)), "body")


def ellipsoid(point, params):
    return (point / params) @ (point / params) - 1.0


def knot(s, params):
    """A closed curve in space with the period one."""
    radius, depth = params
    a = 2 * jnp.pi * s
    arm = radius + depth * jnp.cos(3 * a)
    return jnp.stack([arm * jnp.cos(2 * a), arm * jnp.sin(2 * a), depth * jnp.sin(3 * a)])


def shaker(t, params):
    tilt = mb.rotation_about(jnp.array([0.0, 0.6, 0.8], t.dtype), params["rate"] * t)
    return tilt, params["reach"] * jnp.stack([jnp.sin(t), t * t, jnp.cos(t)])


def breathing(t, rel, params):
    """Two rows that move with time."""
    return jnp.stack([rel.translation @ rel.translation - params * (2.0 + jnp.sin(t)), rel.rotation[0, 1] - 0.1 * t])


def drifting_blade(t, rel, twist, params):
    return jnp.cos(t) * twist[3] + rel.rotation[0, 1] * twist[1] + params * twist[4] - t * params**2


def toggle(t, x, params):
    return jnp.stack([params[0] * jnp.sin(x[0]) + params[1] * jnp.cos(x[1]) - 0.1 * t, x[0] * x[2] - x[1]])


def egg(count=11):
    a = 2 * np.pi * np.arange(count) / count
    return np.stack([1.3 * np.cos(a) + 0.1 * np.cos(2 * a), np.sin(a)], 1)


def bowl(s, params):
    return jnp.stack([s, params[0] * s**2 + params[1] * s**3])


def wheel(s, radius):
    """Walked clockwise, so that what rolls on it is to its left."""
    return radius * jnp.stack([jnp.sin(s), jnp.cos(s)])


CAM = (1.0, 0.6, 0.7, 0.25, 0.4)
HOLLOW = [((0.0, 0.0), 1.0), Arcs((1.7, -0.9), -0.4), ((2.4, 0.0), 0.5), Arcs((1.7, 0.9), -0.4)]
# Each with a place (rotation vector, translation) near the manifold.
EXAMPLES = {
    "distance": (Distance(*ENDS, length=1.2), (0.0, 0.4, 0.0), (0.5, -0.7, 0.8)),
    "line": (PointOnLine(*ENDS, axis=(0.48, -0.6, 0.64)), (0.1, 0.2, 0.3), (0.5, -0.5, 0.6)),
    "plane": (PointOnPlane(*ENDS, normal=(0.1, 0.4, 1.0)), (0.1, 0.2, 0.3), (0.5, -0.5, 0.1)),
    "surface": (PointOnSurface(*ENDS, ellipsoid, np.array([1.0, 1.5, 0.7])), (0.1, 0.2, 0.3), (0.5, -0.5, 0.5)),
    "path": (PointOnPath(*ENDS, knot, (1.0, 0.3)), (0.1, 0.2, 0.3), (0.5, -0.9, 0.3)),
    "pose": (PrescribedPose(*ENDS, shaker, {"rate": 0.8, "reach": 0.5}), (0.0, 0.3, 0.4), (0.3, 0.2, 0.4)),
    "disc": (RollingDisc(*ENDS, radius=0.6), (1.2, 0.3, 0.2), (0.1, 0.3, 0.5)),
    "sphere": (RollingSphere(*ENDS, radius=0.6), (1.2, 0.3, 0.2), (0.1, 0.3, 0.5)),
    "skate": (Skate(*ENDS, direction=(0.9, 0.1, 0.2)), (0.2, 0.1, 0.9), (0.1, 0.3, 0.5)),
    "cam on a flank": (CamContact(*ENDS, cam_profile(*CAM), 0.4), (0.0, 0.1, 0.7), (1.0, 1.2, 0.1)),
    "cam in a hollow": (CamContact(*ENDS, ArcsAndLines(HOLLOW), 0.2), (0.0, 0.1, 0.7), (1.7, 0.7, 0.1)),
    "knife edge": (CamContact(*ENDS, SplineProfile(egg())), (0.0, 0.1, 0.7), (-1.0, 0.6, 0.1)),
    "rolling cam": (RollingOnProfile(*ENDS, cam_profile(*CAM), 0.4), (0.0, 0.1, 0.7), (-1.1, 0.9, 0.1)),
    "rolling egg": (RollingOnProfile(*ENDS, SplineProfile(egg()), 0.3), (0.0, 0.1, 0.7), (1.1, 1.0, 0.1)),
    "curves": (
        CurveContact(*ENDS, (bowl, wheel), ((0.3, 0.05), 0.6), ((-1.5, 1.5), (0.0, 2 * np.pi))),
        (0.0, 0.1, 0.7),
        (0.3, 0.7, 0.1),
    ),
    "user": (Constraint(*ENDS, breathing, 0.5), (0.1, 0.2, 0.3), (0.6, -0.6, 0.8)),
    "user Pfaff": (Nonholonomic(*ENDS, drifting_blade, 0.5), (0.1, 0.2, 0.3), (0.6, -0.6, 0.8)),
    "gear": (LinearCoupling("c", {"a": 2.0, ("b", 1): -0.5, "d": 0.3}, 0.4),),
    "coordinates": (Coordinates("c", (("a", 0), ("b", 2)), 2),),
    "user coupling": (Coupling("c", ["a", "b", ("d", 1)], toggle, (0.7, 0.4)),),
}
every_element = pytest.mark.parametrize("name", EXAMPLES)


def final_classes():
    """Every class with a page in the package, apart from those that wrap joints: their rows are exact on the manifold
    only, and are tested there (`test_loop_systems.py`, `test_special.py`)."""
    for module in pkgutil.iter_modules(_constraints.__path__):
        importlib.import_module(f"diffmb._constraints.{module.name}")
    found, todo = set(), [AbstractConstraint, AbstractCoupling]
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        if not kind.__name__.startswith("Abstract") and kind.__module__.startswith("diffmb."):
            found.add(kind)
    return found - {CutJoint, mb.Chain}


def test_every_class_has_an_example():
    missing = final_classes() - {type(example[0]) for example in EXAMPLES.values()}
    assert not missing, f"add an example of {sorted(kind.__name__ for kind in missing)}"


# --- samples: (element, t, x, xd, xdd), batch axis last; numbers stay in numpy between programs


def member(tree, i):
    return jax.tree.map(lambda leaf: leaf[..., i], tree)


def random_like(tree, seed):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(leaf.dtype), tree)


def screw(twist):
    """exp([V]) as matrices, batch first."""
    w, v = twist[:3], twist[3:]
    zero = np.zeros_like(w[0])
    rows = [[zero, -w[2], w[1], v[0]], [w[2], zero, -w[0], v[1]], [-w[1], w[0], zero, v[2]], [zero] * 4]
    return scipy.linalg.expm(np.moveaxis(np.array(rows), -1, 0))


def place(rotation, translation):
    """A pose whose arrays are of numpy."""
    return jax.device_get(mb.Pose(jnp.asarray(rotation, float), jnp.asarray(translation, float)))


def moved(x, step):
    """x exp([step]) for a pose, x + step for coordinates."""
    if not isinstance(x, mb.Pose):
        return x + step
    E = np.moveaxis(screw(step), 0, -1)
    R = np.einsum("ikb,kjb->ijb", x.rotation, E[:3, :3])
    return place(R, x.translation + np.einsum("ikb,kb->ib", x.rotation, E[:3, 3]))


@jax.jit
def values(element, t, x, xd, xdd):
    return element.phi(t, x), element.rate(t, x, xd), element.acceleration(t, x, xd, xdd)


def evaluate(*args):
    return jax.device_get(values(*args))


def on_the_manifold(element, t, x, size):
    """Newton's method with the rows of G that `rate` gives."""
    still = np.zeros((size, BATCH))
    for _ in range(12 if element.nh else 0):
        phi, at_rest, _ = evaluate(element, t, x, still, still)
        columns = []
        for k in range(size):
            along = still.copy()
            along[k] = 1.0
            columns.append((evaluate(element, t, x, along, still)[1] - at_rest)[: element.nh])
        G = np.moveaxis(np.array(columns), -1, 0).swapaxes(1, 2)  # (batch, nh, size)
        x = moved(x, -(np.linalg.pinv(G) @ phi.T[..., None])[..., 0].T)
    return x


@cache
def samples(name):
    """The first half lies on the manifold, the rest near it; one sample is at rest, one at t = 0."""
    example, *near = EXAMPLES[name]
    rng = np.random.default_rng(11)
    element = jax.device_get(bare(example))
    noise = random_like(element, 5)
    vary = lambda leaf, d: leaf[..., None] + 0.03 * np.linspace(-1, 1, BATCH) * d[..., None]
    element = jax.tree.map(vary, element, noise)
    t = rng.uniform(0.1, 1.0, BATCH)
    t[1] = 0.0
    if near:
        turn = np.array(near[0]) + 0.2 * rng.normal(size=(BATCH, 3))
        R = np.moveaxis(Rotation.from_rotvec(turn).as_matrix(), 0, -1)
        x = place(R, np.array(near[1])[:, None] + 0.05 * rng.normal(size=(3, BATCH)))
        size = 6
    else:
        size = len(example.terms)
        x = 0.5 + 0.2 * rng.normal(size=(size, BATCH))
    x = on_the_manifold(element, t, x, size)
    away = 0.05 * rng.normal(size=(size, BATCH)) * (np.arange(BATCH) >= BATCH // 2)
    xd, xdd = rng.normal(size=(2, size, BATCH))
    xd[:, 2] = xdd[:, 2] = 0.0
    return element, t, moved(x, away), xd, xdd


# --- laws


@every_element
def test_rows_and_their_names(name):
    element, *rest = samples(name)
    phi, rate, acceleration = evaluate(element, *rest)
    rows = element.nh + element.nn
    assert phi.shape == (element.nh, BATCH) and rate.shape == acceleration.shape == (rows, BATCH)
    assert len(element.row_names()) == rows > 0 and all(element.row_names())
    assert np.abs(phi[:, : BATCH // 2]).max(initial=0.0) < 1e-14
    assert element.nh == 0 or np.abs(phi[:, BATCH // 2 :]).max() > 1e-3


@every_element
def test_rate_and_acceleration_are_derivatives_along_the_motion(name):
    element, t, x, xd, xdd = samples(name)

    def rows(h):  # X exp(h V + h^2/2 Vd) has the twist V + h Vd + O(h^2)
        phi, rate, _ = evaluate(element, t + h, moved(x, h * xd + 0.5 * h * h * xdd), xd + h * xdd, xdd)
        return phi, rate

    _, rate, acceleration = evaluate(element, t, x, xd, xdd)
    phi_rate, rate_rate = central_difference(rows, 0.0, 1.0, 1e-3)
    close(rate[: element.nh], phi_rate, 1e-8)
    close(acceleration, rate_rate, 1e-8)


@every_element
def test_affine_in_twist_and_its_rate(name):
    element, t, x, xd, xdd = samples(name)
    a, b = random_like((xd, xdd), 8)
    at = lambda xd, xdd: evaluate(element, t, x, xd, xdd)
    close(at(xd + a, xdd)[1] + at(0 * xd, xdd)[1], at(xd, xdd)[1] + at(a, xdd)[1], 1e-13)
    close(at(xd, xdd + b)[2] + at(xd, 0 * xdd)[2], at(xd, xdd)[2] + at(xd, b)[2], 1e-13)


def at_once(element, t, x, xd, xdd):
    """The same as `values`, in a shorter program."""
    rows = lambda t, x, xd: (element.phi(t, x), element.rate(t, x, xd))
    (phi, rate), (_, acceleration) = jax.jvp(rows, (t, x, xd), (jnp.ones_like(t), element.flow(x, xd), xdd))
    return phi, rate, acceleration


@jax.jit
def pull_back(args, weight):
    return jax.vjp(at_once, *args)[1](weight)


def product(a, b):
    return sum((x * y).sum() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


# Compiling the fourth derivative of a search takes long: one of them goes so far, the others to the third.
SHALLOW = ("knife edge", "rolling egg")


@partial(jax.jit, static_argnums=0)
def push_twice(deep, args, direction):
    """First and second derivative of the acceleration (or the rate) along `direction`."""
    rows = lambda element, *rest: element.acceleration(*rest) if deep else element.rate(*rest[:-1])
    return jax.jvp(lambda *args: jax.jvp(rows, args, direction)[1], args, direction)


@every_element
def test_jvp_is_vjp_is_difference_also_of_the_jvp(name):
    args = samples(name)
    direction = random_like(args, 2)
    push = lambda args: jax.device_get(push_twice(name not in SHALLOW, args, direction))
    first, second = push(args)
    close(second, central_difference(lambda args: push(args)[0], args, direction, 1e-4), 1e-7)

    difference = central_difference(lambda args: evaluate(*args), args, direction, 1e-4)
    pushed = 1 if name in SHALLOW else 2
    close(first, difference[pushed], 1e-8)
    for k, rows in enumerate(difference):
        weight = [np.zeros_like(other) for other in difference]
        weight[k] = random_like(rows, 3)
        backward = product(jax.device_get(pull_back(args, tuple(weight))), direction)
        close(backward, product(weight[k], rows), 1e-7)
        if k == pushed:
            close(backward, product(weight[k], first), 1e-12)


@every_element
def test_batch_is_a_loop(name):
    args = samples(name)
    together = evaluate(*args)
    for i in (0, 2, 5):
        for one, of_all in zip(evaluate(*member(args, i)), together, strict=True):
            close(one, of_all[:, i], 1e-13)


@every_element
def test_one_element_for_the_whole_batch_and_float32(name):
    element, t, *rest = jax.tree.map(lambda leaf: leaf.astype(np.float32), samples(name))
    one = member(element, slice(0, 1)), t[:1], *rest
    for result in (jax.eval_shape(values, *one), jax.eval_shape(values, *member((element, t, *rest), 0))):
        assert all(rows.dtype == jnp.float32 for rows in result)
    assert [rows.shape[1:] for rows in jax.eval_shape(values, *one)] == [(BATCH,)] * 3


@pytest.mark.parametrize("name", ["path", "rolling egg", "rolling cam"])
def test_float32_is_near(name):
    args = member(samples(name), 1)
    single = evaluate(*jax.tree.map(lambda leaf: leaf.astype(np.float32), args))
    for one, exact in zip(single, evaluate(*args), strict=True):
        close(one, exact, 1e-4)


def test_elements_of_one_kind_have_one_structure():
    for example, *_ in EXAMPLES.values():
        assert isinstance(example, AbstractElement)
        other = jax.tree.map(lambda leaf: 2.0 * leaf, example)
        assert jax.tree.structure(bare(example)) == jax.tree.structure(bare(other))


# --- closed forms


def rows_of(element, rotation, translation, twist=(0.0,) * 6):
    """phi and rate at one pose."""
    pose = place(rotation, translation)
    phi, rate, _ = evaluate(bare(element), np.zeros(()), pose, np.array(twist, float), np.zeros(6))
    return phi, rate


def test_distance_is_a_length():
    phi, rate = rows_of(Distance(*ENDS, 2.0), np.eye(3), (1, 2, 2), (0, 0, 0, 3, 0, 0))
    np.testing.assert_allclose((*phi, *rate), (1.0, 1.0))
    assert rows_of(Distance(*ENDS, 2.0), np.eye(3), (0, 0, 0))[0] == -2.0  # no NaN where the rod has no direction


def test_disc_height_and_the_velocity_of_its_lowest_point():
    lean, radius = 0.7, 0.5  # between the axle and the normal
    R = Rotation.from_euler("zxz", (0.4, lean, 1.3)).as_matrix()
    phi, rate = rows_of(RollingDisc(*ENDS, radius), R, (1, 2, radius * np.sin(lean)))
    np.testing.assert_allclose((*phi, *rate), 0.0, atol=1e-15)
    rim = 2 * np.pi * np.linspace(0, 1, 100001)
    assert abs((radius * R @ [np.cos(rim), np.sin(rim), 0 * rim])[2].min() + radius * np.sin(lean)) < 1e-9


def test_material_point_of_disc_and_sphere_at_the_contact_is_at_rest():
    """The row of the height says that it has no speed along z, so all three speeds are those of one point."""
    rng = np.random.default_rng(3)
    R, V = Rotation.random(rng=rng).as_matrix(), rng.normal(size=6)
    a = R[:, 2]
    lowest = (a * a[2] - np.array([0, 0, 1])) / np.hypot(*a[:2])
    for kind, lever in ((RollingDisc, 0.5 * lowest), (RollingSphere, np.array([0, 0, -0.5]))):
        speed = R @ V[3:] + np.cross(R @ V[:3], lever)
        close(rows_of(kind(*ENDS, 0.5), R, (0, 0, 0), V)[1], np.roll(speed, 1), 1e-14)


def test_upright_disc_rolls_by_its_radius():
    R = Rotation.from_euler("x", 90, degrees=True).as_matrix()  # axle along -y, forward along x
    close(rows_of(RollingDisc(*ENDS, 0.5), R, (0, 0, 0.5), (0, 0, -3.0, 1.5, 0, 0))[1], np.zeros(3), 1e-15)


def test_skate_is_that_of_sol():
    angle, (y1d, y2d) = 0.6, (0.3, -0.8)
    R = Rotation.from_euler("z", angle).as_matrix()
    twist = np.concatenate([np.zeros(3), R.T @ [y1d, y2d, 0.0]])
    close(rows_of(Skate(*ENDS), R, (0, 0, 0), twist)[1], -np.cos(angle) * (np.tan(angle) * y1d - y2d), 1e-15)


def test_circles_touch_where_their_centres_say():
    """Outside of each other: the distance of the centres less the radii, whatever the turn; and the contact between."""
    element = CurveContact(*ENDS, (wheel, wheel), (0.5, 0.3), ((0.0, 2 * np.pi), (0.0, 2 * np.pi)))
    gap = jax.jit(
        lambda angle, p: (
            element.phi(jnp.zeros(()), planar(angle, p)),
            element.contact(planar(angle, p), element.params),
        )
    )
    for angle, p in ((0.4, (0.9, 0.3)), (-2.0, (-0.5, 0.5)), (1.0, (0.2, -0.7))):
        value, s = gap(angle, jnp.array(p))
        close(value, [np.hypot(*p) - 0.8], 1e-12)
        close(wheel(s[0], 0.5), 0.5 * np.array(p) / np.hypot(*p), 1e-12)


def planar(angle, p):
    c, s = jnp.cos(angle), jnp.sin(angle)
    return mb.Pose(jnp.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]]), jnp.array([p[0], p[1], 0.0]))


def test_path_leaves_the_point_free_along_it_only():
    element = PointOnPath(*ENDS, knot, (1.0, 0.3))
    for s in (0.0, 0.37, 0.999):
        foot, velocity = jax.jvp(lambda s: knot(s, (1.0, 0.3)), (s,), (1.0,))
        phi, rate = rows_of(element, np.eye(3), foot, (0, 0, 0, *velocity))
        np.testing.assert_allclose((*phi, *rate), 0.0, atol=1e-13)
        side = np.cross(velocity, (0.3, 0.5, 0.2))
        side /= np.linalg.norm(side)
        np.testing.assert_allclose(np.linalg.norm(rows_of(element, np.eye(3), foot + 0.1 * side)[0]), 0.1)


# --- profiles


@jax.jit
def around(profile, s, offset):
    """Points at `offset` outside the profile, and what the profile says about them."""

    def one(s):
        tangent = profile.tangent(s)
        normal = jnp.stack([tangent[1], -tangent[0]])
        p = profile.point(s) + offset * normal
        distance, found = profile.contact(p)
        return profile.point(s), normal, distance, found, profile.closest(p), profile.signed_distance(p)

    return jax.vmap(one)(s)


PROFILES = {
    "circle": ArcsAndLines([((0.3, 0.2), 0.8)]),
    "cam": cam_profile(*CAM),
    "hollow": ArcsAndLines(HOLLOW),
    "corner": ArcsAndLines([((0.0, 0.0), 1.0), ((2.0, 0.0), 0.0)]),
    "bow": ArcsAndLines([Arcs((0.0, -1.0), (0.5, 2.0, 0.5), (-0.6, 0.6))]),
    "egg": SplineProfile(egg()),
}


@pytest.mark.parametrize("name", PROFILES)
def test_profile_finds_the_point_it_made(name):
    s = (np.arange(400) + 0.3) / 400
    inside = {"corner": 0.0}.get(name, -0.1)
    for offset in (0.25, inside):
        point, normal, distance, found, closest, again = jax.device_get(around(PROFILES[name], s, offset))
        close(distance, np.full_like(s, offset), 1e-14)
        close(again, distance, 0.0)
        close(found, normal, 1e-13)
        close((closest - s + 0.5) % 1.0 - 0.5, np.zeros_like(s), 1e-13)
    chord = np.roll(point, -1, 0) - point
    assert np.linalg.norm(chord, axis=1).max() < 0.03  # closed
    area = 0.5 * (point[:, 0] * np.roll(point[:, 1], -1) - point[:, 1] * np.roll(point[:, 0], -1)).sum()
    assert area > 0.0
    turns = np.diff(np.unwrap(np.arctan2(normal[:, 1], normal[:, 0])))
    if name != "corner":
        assert np.abs(turns).max() < 0.12
    if name not in ("corner", "egg"):
        assert np.linalg.norm(chord, axis=1).min() > 0.9 * np.median(np.linalg.norm(chord, axis=1))  # length along it


def test_cam_on_every_piece_by_hand():
    base, lift, top, small, angle = CAM
    e = base + lift - top
    centre = np.array([e + (top - small) * np.cos(angle), (top - small) * np.sin(angle)])
    # The flank touches the base circle and the transition arc: D . n = r_1 - r_2 with D from the origin.
    flank = np.arctan2(centre[1], centre[0]) + np.arccos((base - small) / np.linalg.norm(centre))
    u = lambda a: np.array([np.cos(a), np.sin(a)])
    middle = base * u(flank) + 0.4 * np.linalg.norm(centre) * np.array([np.sin(flank), -np.cos(flank)])
    cases = [
        (base * u(2.5), u(2.5)),
        (np.array([base + lift, 0.0]), u(0.0)),
        (np.array([e, 0.0]) + top * u(0.9 * angle), u(0.9 * angle)),
        (centre + small * u(0.5 * (angle + flank)), u(0.5 * (angle + flank))),
        (middle, u(flank)),
        (middle * [1, -1], u(flank) * [1, -1]),
    ]
    for foot, normal in cases:
        for radius in (0.0, 0.4):
            element = CamContact(*ENDS, cam_profile(*CAM), radius)
            phi, rate = rows_of(element, np.eye(3), (*(foot + (radius + 0.01) * normal), 0.3), (1, 2, 3, *normal, 5))
            np.testing.assert_allclose((*phi, *rate), (0.01, 1.0), rtol=1e-12)


def test_rolling_speed_on_the_base_circle():
    """Sol's pump: the centre of the roller is held while the cam turns at -W, so it goes round the cam at W."""
    base, radius, W = CAM[0], 0.4, 104.7
    element = RollingOnProfile(*ENDS, cam_profile(*CAM), radius)
    # Seen from the cam the roller turns at W (base + radius) / radius, seen from the ground at W base / radius.
    spin = W * base / radius + W
    twist = (0, 0, spin, 0, -W * (base + radius), 0)
    close(rows_of(element, np.eye(3), (-(base + radius), 0, 0), twist)[1], np.zeros(2), 1e-13)
    slipping = (0, 0, spin - 1.0, *twist[3:])
    close(rows_of(element, np.eye(3), (-(base + radius), 0, 0), slipping)[1], (0.0, radius), 1e-13)


@pytest.mark.parametrize("count, error", [(12, 3e-4), (24, 2e-5), (48, 1.2e-6)])
def test_spline_through_a_circle(count, error):
    a = 2 * np.pi * np.arange(count) / count
    profile = SplineProfile(np.stack([np.cos(a), np.sin(a)], 1))
    point, normal, *_ = jax.device_get(around(profile, np.linspace(0, 1, 200), 0.2))
    assert error / 10 < np.abs(np.linalg.norm(point, axis=1) - 1.0).max() < error  # fourth order
    assert np.abs(normal - point).max() < 30 * error


def test_derivatives_reach_the_numbers_of_a_cam():
    """d(lift of a knife edge over the top) / d(lift) = 1, and nothing else moves it."""

    def height(numbers):
        return -CamContact(*ENDS, cam_profile(*numbers)).phi(
            jnp.zeros(()), mb.Pose(jnp.eye(3), jnp.array([2.0, 0.0, 0.0]))
        )[0]

    close(jax.jit(jax.grad(height))(tuple(map(jnp.asarray, CAM))), (1.0, 1.0, 0.0, 0.0, 0.0), 1e-13)


# --- what is refused, and how it is said

REFUSED = {
    "length of zero": (lambda: Distance(*ENDS, 0.0), r"length of Distance 'c' is 0 m.*above zero"),
    "two lengths": (lambda: Distance(*ENDS, (1, 2)), r"length of Distance 'c' has shape \(2,\).*one number"),
    "disc": (lambda: RollingDisc(*ENDS, -1.0), r"radius of RollingDisc 'c' is -1 m.*above zero"),
    "sphere": (lambda: RollingSphere(*ENDS, np.nan), r"radius of RollingSphere 'c' is nan m"),
    "roller": (lambda: CamContact(*ENDS, PROFILES["cam"], -0.1), r"radius of CamContact 'c' is -0.1 m.*zero or more"),
    "rolling": (lambda: RollingOnProfile(*ENDS, PROFILES["cam"], 0), r"radius of RollingOnProfile 'c' is 0 m"),
    "no profile": (lambda: CamContact(*ENDS, "egg", 0.1), r"'egg' is no profile; give ArcsAndLines"),
    "axis": (lambda: PointOnLine(*ENDS, axis=(0, 0, 0)), "no direction"),
    "surface": (lambda: PointOnSurface(*ENDS, lambda p, k: p), r"Surface 'c' returns shape \(3,\); .*one number"),
    "surface fails": (lambda: PointOnSurface(*ENDS, lambda p: p[0]), r"PointOnSurface 'c' fails: TypeError"),
    "curve": (lambda: PointOnPath(*ENDS, lambda s, k: s), r"PointOnPath 'c' returns shape \(\); expected \(3,\)"),
    "span": (lambda: PointOnPath(*ENDS, knot, (1, 2), (1, 0)), r"'c' has span=\(1.0, 0.0\); give the first s"),
    "samples": (lambda: PointOnPath(*ENDS, knot, (1, 2), samples=1), "'c' has samples=1; give 2 or more"),
    "pose": (lambda: PrescribedPose(*ENDS, lambda t, k: t), r"PrescribedPose 'c' returns .*must return a Pose"),
    "flat pose": (
        lambda: PrescribedPose(*ENDS, lambda t, k: (jnp.zeros(9), jnp.zeros(3))),
        r"'c' returns a rotation of shape \(9,\).*expected \(3, 3\)",
    ),
    "arcs": (lambda: Arcs((0, 0), (1, 2), (0.1, 0.2)), r"shapes \(2,\), \(2,\) and \(2,\); give two numbers"),
    "no runs": (lambda: ArcsAndLines([]), "no runs; give a list"),
    "circle in circle": (
        lambda: ArcsAndLines([((0, 0), 1), ((0.1, 0), 0.5)]),
        "no line is tangent to the last arc of run 1 and the first of run 2",
    ),
    "wrong way round": (lambda: ArcsAndLines([((0, 0), 1), Arcs((3, 0), (1, 1), 3.0)]), "turns by 720 degrees"),
    "top too wide": (lambda: cam_profile(1.0, 0.6, 0.7, 0.25, 1.5), "turns by 1080 degrees"),
    "clockwise": (lambda: SplineProfile(egg()[::-1]), r"area -.*counter-clockwise"),
    "three points": (lambda: SplineProfile(egg()[:3]), r"shape \(3, 2\); give \(m, 2\)"),
}


@pytest.mark.parametrize("make, message", REFUSED.values(), ids=REFUSED.keys())
def test_refused_in_words(make, message):
    with pytest.raises(mb.MechanismError, match=f"(?s){message}"):
        make()
