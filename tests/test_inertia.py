"""Bodies: closed forms of simple shapes, what is refused, and the log-Cholesky numbers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from diffmb._bodies._pseudo_inertia import body_from_log_cholesky, inertia_to_log_cholesky
from diffmb._bodies._rigid import RigidBody, box, check_body, cylinder, massless, rod, sphere
from diffmb._errors import MechanismError


def second_moment(points, weights):
    """Inertia about the centre of mass of weighted points, (n, 3) and (n,)."""
    centre = weights @ points / weights.sum()
    arms = points - centre
    return weights.sum(), centre, np.einsum("n,nij->ij", weights, square(arms))


def square(arms):
    return (arms**2).sum(1)[:, None, None] * np.eye(3) - arms[:, :, None] * arms[:, None, :]


def gauss_box(size):
    """Points and weights that integrate quadratic functions over a box of unit density exactly."""
    nodes, weights = np.polynomial.legendre.leggauss(2)
    grid = np.array(np.meshgrid(*(nodes * s / 2 for s in size))).reshape(3, -1).T
    weight = np.array(np.meshgrid(*(weights * s / 2 for s in size))).reshape(3, -1).prod(0)
    return grid, weight


# --- shapes -------------------------------------------------------------------------------------------------------


def test_rod_is_thin_and_starts_at_the_origin():
    body = rod("crank", 0.3, mass=2.0)
    np.testing.assert_allclose(body.com, [0.15, 0, 0])
    across, along = 2.0 * 0.3**2 / 12, 2.0 * 0.003**2 / 2
    np.testing.assert_allclose(body.inertia, np.diag([along, across, across]), rtol=1e-14)
    by_density = rod("crank", 0.3, density=7800.0, radius=0.01)
    np.testing.assert_allclose(by_density.mass, 7800 * np.pi * 0.01**2 * 0.3, rtol=1e-14)


def test_box_against_quadrature():
    size = (0.2, 0.5, 1.1)
    mass, _, inertia = second_moment(*gauss_box(size))
    body = box("block", size, density=3.0)
    np.testing.assert_allclose(body.mass, 3.0 * mass, rtol=1e-14)
    np.testing.assert_allclose(body.inertia, 3.0 * inertia, atol=1e-15)
    np.testing.assert_allclose(box("block", size, mass=3.0 * mass).inertia, body.inertia, rtol=1e-14)


def test_cylinder_and_sphere_against_sampling():
    rng = np.random.default_rng(1)
    points = rng.uniform(-1, 1, (200_000, 3))
    ball = points[(points**2).sum(1) < 1]
    np.testing.assert_allclose(sphere("s", 1.0, mass=1.0).inertia, square(ball).mean(0), atol=6e-3)
    drum = points[(points[:, :2] ** 2).sum(1) < 1]
    np.testing.assert_allclose(cylinder("c", 1.0, 2.0, mass=1.0).inertia, square(drum).mean(0), atol=6e-3)
    np.testing.assert_allclose(cylinder("c", 0.5, 2.0, density=2.0).mass, np.pi, rtol=1e-14)
    np.testing.assert_allclose(sphere("s", 0.5, density=6.0).mass, np.pi, rtol=1e-14)


def test_cylinder_axis():
    upright = np.asarray(cylinder("c", 0.1, 1.0, mass=2.0).inertia)
    np.testing.assert_allclose(cylinder("c", 0.1, 1.0, "x", mass=2.0).inertia, np.diag(np.diag(upright)[[2, 1, 0]]))
    np.testing.assert_allclose(cylinder("c", 0.1, 1.0, "-z", mass=2.0).inertia, upright)
    tilted = np.asarray(cylinder("c", 0.1, 1.0, (1.0, 1.0, 0.0), mass=2.0).inertia)
    a = np.array([1, 1, 0]) / np.sqrt(2)
    np.testing.assert_allclose(tilted @ a, upright[2, 2] * a, atol=1e-15)
    np.testing.assert_allclose(np.linalg.eigvalsh(tilted), np.linalg.eigvalsh(upright), rtol=1e-12)


def test_inertia_in_three_forms():
    full = np.array([[2.0, 0.1, 0.2], [0.1, 3.0, 0.3], [0.2, 0.3, 4.0]])
    six = (2.0, 3.0, 4.0, 0.1, 0.2, 0.3)
    for form in (full, full.tolist(), six, np.array(six), jnp.array(six), jnp.array(full)):
        np.testing.assert_array_equal(RigidBody("b", 1.0, inertia=form).inertia, full)
    for form in ((2, 3, 4), np.array([2, 3, 4]), jnp.array([2, 3, 4.0]), (jnp.array(2.0), 3, 4.0)):
        np.testing.assert_array_equal(RigidBody("b", 1.0, inertia=form).inertia, np.diag([2.0, 3.0, 4.0]))


def test_every_number_is_a_floating_array():
    for body in (
        rod("b", 1, mass=1),
        box("b", (1, 2, 3), mass=1),
        massless("b"),
        RigidBody("b", 1, (0, 0, 1), (1, 1, 1)),
    ):
        leaves = jax.tree.leaves(body)
        assert [leaf.shape for leaf in leaves] == [(), (3,), (3, 3)]
        assert all(isinstance(leaf, jax.Array) and leaf.dtype == jnp.float64 for leaf in leaves)


def test_float32_numbers_stay():
    body = RigidBody("b", jnp.float32(1.0), jnp.zeros(3, jnp.float32), jnp.ones(3, jnp.float32))
    assert {leaf.dtype for leaf in jax.tree.leaves(body)} == {jnp.dtype("float32")}
    plate = jnp.diag(jnp.array([0.1, 0.2, 0.3], jnp.float32)) * jnp.float32(1 / 3)
    check_body(RigidBody("plate", jnp.float32(1.0), inertia=plate))  # equality up to float32's rounding


@pytest.mark.parametrize("moments", [(0, 1, 1), (1, 1, 2), (0, 0, 0), (1, 2, 3 * (1 + 1e-10))])
def test_bodies_at_the_edge_are_allowed(moments):
    RigidBody("thin", 1.0, inertia=moments)


# --- tracing ------------------------------------------------------------------------------------------------------

MAKERS = {
    "rod": lambda x: rod("b", x, mass=2.0),
    "rod of a density": lambda x: rod("b", 1.0, density=x, radius=x),
    "box": lambda x: box("b", (x, 1.0, 2.0), density=2.0),
    "cylinder": lambda x: cylinder("b", x, 1.0, (0.0, 1.0, 1.0), mass=2.0),
    "cylinder that turns": lambda x: cylinder("b", 0.1, 1.0, jnp.stack([x, 1.0, x]), mass=x),
    "sphere": lambda x: sphere("b", x, mass=2.0),
    "rigid": lambda x: RigidBody("b", x, (x, 0.0, 0.0), (x, x, x, 0.1 * x, 0.0, 0.0)),
    "frame": lambda x: eqx.tree_at(lambda b: b.com, massless("b"), x * jnp.ones(3)),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_bodies_can_be_built_while_tracing(make):
    numbers = lambda x: jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(make(x))])
    host = lambda x: np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(make(x))])
    transforms = lambda x: (numbers(x), jax.vmap(numbers)(x[None])[0], jax.jacfwd(numbers)(x), jax.jacrev(numbers)(x))
    value, batched, forward, backward = jax.jit(transforms)(jnp.array(0.4))
    np.testing.assert_allclose(value, host(0.4), rtol=1e-14)
    np.testing.assert_allclose(batched, value, rtol=1e-14)
    np.testing.assert_allclose(forward, (host(0.4 + 1e-6) - host(0.4 - 1e-6)) / 2e-6, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(backward, forward, rtol=1e-12, atol=1e-15)


def test_impossible_numbers_pass_while_tracing():
    jax.jit(lambda m: rod("b", m, mass=m).mass)(-1.0)
    jax.grad(lambda m: RigidBody("b", m, inertia=(1.0, 1.0, 1.0)).mass)(-1.0)
    jax.jit(lambda m: RigidBody("b", m, inertia=(m, m, 3 * m)).mass)(jnp.nan)
    jax.grad(lambda i: RigidBody("b", 0.0, inertia=(i, i, i), frame=True).inertia.sum())(0.0)


# --- refusals -----------------------------------------------------------------------------------------------------

REFUSALS = {
    "no mass": (lambda: RigidBody("b", 0.0, inertia=(1, 1, 1)), "body 'b': mass = 0 kg, but a mass must be positive ("),
    "negative mass": (lambda: RigidBody("b", -2.5, inertia=(1, 1, 1)), "body 'b': mass = -2.5 kg, but"),
    "advice": (lambda: RigidBody("b", 0.0, inertia=(0, 0, 0)), "massless('b') is a bare frame"),
    "frame with inertia": (lambda: RigidBody("b", 0.0, inertia=(1, 1, 1), frame=True), "body 'b': mass = 0 kg"),
    "nan mass": (lambda: RigidBody("b", np.nan, inertia=(1, 1, 1)), "body 'b': mass = nan is not finite"),
    "inf com": (
        lambda: RigidBody("b", 1.0, (0, np.inf, 0), (1, 1, 1)),
        "body 'b': com = [0.0, inf, 0.0] is not finite; give real numbers",
    ),
    "nan inertia": (
        lambda: RigidBody("b", 1.0, inertia=(1, np.nan, 1)),
        "body 'b': inertia = [[1.0, 0.0, 0.0], [0.0, nan",
    ),
    "no inertia": (lambda: RigidBody("b", 1.0), "body 'b' has no inertia; give inertia=(Ixx, Iyy, Izz), or use rod"),
    "indefinite": (
        lambda: RigidBody("b", 1.0, inertia=(1, 1, 1, 2, 0, 0)),
        "body 'b': inertia is not positive definite: its principal moments are -1, 1, 3 kg m2; ",
    ),
    "triangle": (
        lambda: RigidBody("b", 1.0, inertia=(1, 1, 3)),
        "body 'b': inertia breaks the triangle inequality (no moment is larger than the sum of the other two): its "
        "principal moments are 1, 1, 3 kg m2; give it about the centre of mass in kg m2, with xy = -integral of x y dm",
    ),
    "triangle by little": (lambda: RigidBody("b", 1.0, inertia=(1, 1, 2 + 1e-8)), "breaks the triangle inequality"),
    "not symmetric": (
        lambda: RigidBody("b", 1.0, inertia=((1, 0.1, 0), (0, 1, 0), (0, 0, 1))),
        "body 'b': inertia = [[1.0, 0.1, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]] is not symmetric",
    ),
    "text": (lambda: RigidBody("b", "2.0", inertia=(1, 1, 1)), "body 'b': mass = '2.0' is not a number"),
    "text in inertia": (
        lambda: RigidBody("b", 2.0, inertia=("1", "1", "1")),
        "body 'b': inertia = ('1', '1', '1') is not numbers",
    ),
    "bool": (lambda: RigidBody("b", True, inertia=(1, 1, 1)), "body 'b': mass = True is not a number"),
    "none": (lambda: RigidBody("b", None, inertia=(1, 1, 1)), "body 'b': mass = None is not a number"),
    "shape of mass": (
        lambda: RigidBody("b", (1, 2), inertia=(1, 1, 1)),
        "body 'b': mass has shape (2,); it must be ()",
    ),
    "shape of com": (lambda: RigidBody("b", 1, (1, 2), (1, 1, 1)), "body 'b': com has shape (2,); it must be (3,)"),
    "shape of inertia": (
        lambda: RigidBody("b", 1, inertia=1.0),
        "body 'b': inertia has shape (); it must be (3, 3) or (3,) or (6,)",
    ),
    "ragged inertia": (lambda: RigidBody("b", 1, inertia=((1, 0, 0), (1, 0), 1)), "body 'b': inertia = ((1, 0, 0), (1"),
    "mass and density": (
        lambda: sphere("b", 1.0, mass=1.0, density=1.0),
        "sphere 'b': give either mass=... (kg) or density=... (kg/m3), and not both",
    ),
    "neither": (lambda: box("b", (1, 1, 1)), "box 'b': give either mass=... (kg) or density=... (kg/m3)"),
    "density without radius": (
        lambda: rod("b", 1.0, density=1.0),
        "rod 'b': a density needs a radius; give radius=...",
    ),
    "length": (lambda: rod("b", -1.0, mass=1.0), "rod 'b': length = -1; it must be positive and finite"),
    "radius": (lambda: cylinder("b", 0, 1, mass=1.0), "cylinder 'b': radius = 0; it must be positive and finite"),
    "mass of a rod": (lambda: rod("b", 1.0, mass=np.nan), "rod 'b': mass = nan; it must be positive and finite"),
    "edge": (lambda: box("b", (1, 0, 1), mass=1.0), "box 'b': size[1] = 0; it must be positive and finite"),
    "size": (lambda: box("b", (1, 1), mass=1.0), "box 'b': size has 2 numbers; give the three edges, for example"),
    "one size": (lambda: box("b", 1.0, mass=1.0), "box 'b': size has 1 numbers; give the three edges"),
    "thick rod": (
        lambda: rod("b", 1.0, mass=1.0, radius=0.6),
        "rod 'b': radius = 0.6 is not small against length = 1; use cylinder",
    ),
    "text length": (lambda: rod("b", "1", mass=1.0), "rod 'b': length = '1' is not a number"),
    "list length": (lambda: rod("b", [1.0], mass=1.0), "rod 'b': length = [1.0] is not a number"),
    "axis": (lambda: cylinder("b", 1, 1, (0, 0, 0), mass=1.0), "has no direction"),
}


@pytest.mark.parametrize(("make", "message"), REFUSALS.values(), ids=REFUSALS)
def test_refusals(make, message):
    with pytest.raises(MechanismError) as caught:
        make()
    assert message in str(caught.value)


# --- log-Cholesky -------------------------------------------------------------------------------------------------

thetas = st.lists(st.floats(-2.0, 2.0), min_size=10, max_size=10).map(np.array)


def pseudo_inertia(body):
    """J of Rucker and Wensing, from its definition."""
    mass, com, inertia = (np.asarray(leaf) for leaf in jax.tree.leaves(body))
    sigma = 0.5 * np.trace(inertia) * np.eye(3) - inertia + mass * np.outer(com, com)
    return np.block([[sigma, mass * com[:, None]], [mass * com[None], np.array([[mass]])]])


def random_body(seed):
    """A cloud of points: physical by construction."""
    rng = np.random.default_rng(seed)
    mass, com, inertia = second_moment(rng.normal(size=(6, 3)) * rng.uniform(0.1, 2, 3), rng.uniform(0.1, 3, 6))
    return RigidBody("cloud", mass, com + 5 * rng.normal(size=3), inertia)


@settings(max_examples=30, deadline=None)
@given(thetas)
def test_any_ten_numbers_are_a_body(theta):
    body = body_from_log_cholesky("b", theta)
    moments = np.linalg.eigvalsh(body.inertia)
    assert body.mass > 0 and moments[0] > 0 and moments[0] + moments[1] > moments[2]
    alpha, d1, d2, d3, s12, s23, s13, t1, t2, t3 = theta
    U = np.exp(alpha) * np.array([
        [np.exp(d1), s12, s13, t1], [0, np.exp(d2), s23, t2], [0, 0, np.exp(d3), t3], [0, 0, 0, 1],
    ])  # fmt: skip
    J = U @ U.T
    np.testing.assert_allclose(pseudo_inertia(body), J, rtol=1e-11, atol=1e-12 * np.abs(J).max())


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-0.7, 0.7), min_size=10, max_size=10).map(np.array))
def test_round_trip_from_numbers(theta):
    np.testing.assert_allclose(inertia_to_log_cholesky(body_from_log_cholesky("b", theta)), theta, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_round_trip_from_bodies(seed):
    body = random_body(seed)
    back = body_from_log_cholesky("cloud", inertia_to_log_cholesky(body))
    for one, two in zip(jax.tree.leaves(back), jax.tree.leaves(body), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-12 * np.abs(two).max())


def test_thin_rod_makes_the_round_trip():
    body = rod("b", 0.3, mass=0.2)
    back = body_from_log_cholesky("b", inertia_to_log_cholesky(body))
    np.testing.assert_allclose(back.inertia, body.inertia, rtol=0, atol=1e-12 * float(body.inertia.max()))


def test_log_cholesky_is_differentiable():
    pack = lambda body: jnp.concatenate([body.mass[None], body.com, body.inertia.ravel()])
    unpack = lambda x: RigidBody("b", x[0], x[1:4], x[4:].reshape(3, 3))
    forth = jax.jit(lambda theta: pack(body_from_log_cholesky("b", theta)))
    theta = inertia_to_log_cholesky(random_body(0))

    @jax.jit
    def derivatives(theta):
        back = jax.jacfwd(lambda x: inertia_to_log_cholesky(unpack(x)))(forth(theta))
        return jax.jacfwd(forth)(theta), jax.jacrev(forth)(theta), back

    J, reverse, back = derivatives(theta)
    np.testing.assert_allclose(reverse, J, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(back @ J, np.eye(10), atol=1e-11)
    for k, step in enumerate(1e-6 * np.eye(10)):
        np.testing.assert_allclose(J[:, k], (forth(theta + step) - forth(theta - step)) / 2e-6, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "body", [massless("flat"), RigidBody("flat", 1.0, inertia=(0, 1, 1)), RigidBody("flat", 1.0, inertia=(1, 1, 2))]
)
def test_log_cholesky_needs_extent(body):
    with pytest.raises(
        MechanismError, match=r"body 'flat' has mass .* thinnest direction; .* give it mass and some thick"
    ):
        inertia_to_log_cholesky(body)


def test_log_cholesky_needs_ten_numbers():
    with pytest.raises(MechanismError, match=r"body 'b': theta has shape \(9,\); it needs ten numbers"):
        body_from_log_cholesky("b", jnp.zeros(9))
