"""Laws of mechanics on random trees over all joints, at random states, at the neutral state, and at rest."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KINDS, SCLERONOMIC, central_difference, close, random_mechanism, random_states

import diffmb as mb
from diffmb._dynamics import composite, mass_solve
from diffmb._spatial._inertia import inertia_matrix
from diffmb._sweep import articulated_solve, sum_inward, sum_outward
from diffmb._topology import build_topology
from diffmb._walk import walk

COUNT = 6  # states per mechanism


@pytest.fixture(scope="module", params=[0, 1])
def tree(request):
    """Two trees that hold every kind of joint, rheonomic ones too, in different order; the second twice as deep."""
    kinds = list(np.random.default_rng(request.param).permutation(list(KINDS)))
    mech = random_mechanism(request.param, kinds)
    model = mb.compile(mech)
    return mech, model, random_states(model, request.param, COUNT)


@pytest.fixture(scope="module")
def scleronomic():
    mech = random_mechanism(3, SCLERONOMIC)
    model = mb.compile(mech)
    return mech, model, random_states(model, 3, COUNT)


def test_inverse_and_forward(tree):
    """d tau / d vd = M, M symmetric positive definite, forward = inverse of inverse, dense = O(n), tau affine in vd."""
    _, model, (q, v, vd, t) = tree

    @jax.jit
    @jax.vmap
    def law(q, v, vd, t):
        M = mb.mass_matrix(model, q, t)
        tau = mb.inverse_dynamics(model, q, v, vd, t)
        slope = jax.jacfwd(lambda a: mb.inverse_dynamics(model, q, v, a, t))(vd)
        return M, slope, tau - mb.bias(model, q, v, t) - M @ vd, mb.forward_dynamics(model, q, v, tau, t), tau

    M, slope, affine, back, tau = law(q, v, vd, t)
    close(M, slope, 1e-12)
    close(M, jnp.swapaxes(M, 1, 2), 0.0)
    assert np.linalg.eigvalsh(M).min() > 1e-6
    close(affine, 0 * affine, 1e-10)
    close(back, vd, 1e-9)
    single = jax.jit(lambda *a: mb.forward_dynamics(model, *a))
    for k in (0, -2, -1):  # one sample: the dense route
        close(single(q[k], v[k], tau[k], t[k]), vd[k], 1e-9)


def test_kinematics_is_the_derivative_of_the_pose(tree):
    """Twists are rates of poses, accelerations rates of twists; at bodies and at markers; rheonomic terms included."""
    _, model, (q, v, vd, t) = tree
    marker = mb.Marker("b5", (0.1, 0.2, -0.3), (0.5, 0.5, 0.5, -0.5))

    def motion(q, v, t):
        m = mb.kinematics(model, q, v, vd=None, t=t)
        return m.pose, m.twist, m[marker].pose, m[marker].twist

    @jax.jit
    @jax.vmap
    def law(q, v, vd, t):
        along = (mb.qdot(model, q, v), vd, jnp.ones_like(t))
        (_, _, _, _), (dX, dV, dXm, dVm) = jax.jvp(motion, (q, v, t), along)
        m = mb.kinematics(model, q, v, vd, t)
        spin = lambda dR, R: jnp.einsum("...ij,...kj->...ik", dR, R)
        vee = lambda W: jnp.stack([W[..., 2, 1], W[..., 0, 2], W[..., 1, 0]], -1)
        rate = lambda dX, X: jnp.concatenate([vee(spin(dX.rotation, X.rotation)), dX.translation], -1)
        return (
            (rate(dX, m.pose), m.twist),
            (dV, m.acceleration),
            (rate(dXm, m[marker].pose), m[marker].twist),
            (dVm, m[marker].acceleration),
        )

    for derivative, value in law(q, v, vd, t):
        close(derivative, value, 1e-10)


def test_jacobian(scleronomic):
    """J v is the twist and J vd + bias the acceleration of a marker; Jdot v by differencing J along the motion."""
    _, model, (q, v, vd, _) = scleronomic
    marker = mb.Marker("b7", (0.1, 0.2, -0.3))

    @jax.jit
    @jax.vmap
    def law(q, v, vd):
        J, Jdot = jax.jvp(lambda q: mb.jacobian(model, q, marker), (q,), (mb.qdot(model, q, v),))
        m = mb.kinematics(model, q, v, vd)[marker]
        b = mb.bias_acceleration(model, q, v, marker)
        return (J @ v, m.twist), (J @ vd + b, m.acceleration), (Jdot @ v, b)

    for one, other in law(q, v, vd):
        close(one, other, 1e-10)


def test_power(scleronomic):
    """dE/dt = v . tau + power of external wrenches."""
    _, model, (q, v, vd, _) = scleronomic
    marker, wrench = mb.Marker("b6", (0.3, 0.1, 0.2)), jnp.array([0.3, -0.2, 0.5, 1.0, 2.0, -3.0])

    @jax.jit
    @jax.vmap
    def law(q, v, vd):
        tau = mb.inverse_dynamics(model, q, v, vd, wrenches=[(marker, wrench)])
        energy = lambda q, v: mb.kinetic_energy(model, q, v) + mb.potential_energy(model, q)
        rate = jax.jvp(energy, (q, v), (mb.qdot(model, q, v), vd))[1]
        M = mb.mass_matrix(model, q)
        quadratic = mb.kinetic_energy(model, q, v) - 0.5 * v @ M @ v
        return rate, v @ tau + mb.kinematics(model, q, v)[marker].twist @ wrench, quadratic

    rate, power, quadratic = law(q, v, vd)
    close(rate, power, 1e-10)
    close(quadratic, 0 * quadratic, 1e-11)


def test_coriolis_is_skew():
    """Mdot - 2 C is skew for the C of Christoffel, C = 1/2 dc/dv, where the speeds are rates of the coordinates."""
    kinds = ["planar", "universal", "revolute", "screw", "hinge", "prismatic", "turn-slide", "angles"]
    model = mb.compile(random_mechanism(5, kinds, gravity=(0, 0, 0)))
    q, v, _, _ = random_states(model, 5, 8)

    @jax.jit
    @jax.vmap
    def law(q, v):
        Mdot = jax.jvp(lambda q: mb.mass_matrix(model, q), (q,), (v,))[1]
        # c = Gamma(v, v): the C that is linear in v and makes Mdot - 2C skew is c's polarised form with M's derivative
        dM = jax.jacfwd(lambda q: mb.mass_matrix(model, q))(q)
        C = 0.5 * (jnp.einsum("ijk,k->ij", dM, v) + jnp.einsum("ikj,k->ij", dM, v) - jnp.einsum("kji,k->ij", dM, v))
        return Mdot - 2 * C, C @ v - mb.bias(model, q, v)

    W, same = law(q, v)
    close(W, -jnp.swapaxes(W, 1, 2), 1e-11)
    close(same, 0 * same, 1e-11)


def test_momentum_of_a_free_system():
    """Without gravity and world contact, momentum is constant whatever the joint loads do."""
    model = mb.compile(
        random_mechanism(
            7,
            ["free", "revolute", "spherical", "universal", "hinge", "cylindrical"],
            (0, 0, 0),
            lambda i: max(0, i - i // 3),
        )
    )
    q, v, load, _ = random_states(model, 7, 8)

    @jax.jit
    @jax.vmap
    def law(q, v, load):
        vd = mb.forward_dynamics(model, q, v, load.at[:6].set(0.0))
        move = (mb.qdot(model, q, v), vd)
        rate = jax.jvp(lambda q, v: mb.momentum(model, q, v), (q, v), move)[1]
        total = sum(model.mass) * jax.jvp(lambda q: mb.center_of_mass(model, q), (q,), move[:1])[1]
        return rate, total - mb.momentum(model, q, v)[3:]

    for zero in law(q, v, load):
        close(zero, 0 * zero, 1e-10)


def test_frame_invariance(tree):
    """Turning and shifting the world markers and gravity together changes no acceleration."""
    mech, model, (q, v, tau, t) = tree
    move = mb.Pose(mb.rotation_about(jnp.array([0.6, 0.0, 0.8]), jnp.array(1.1)), jnp.array([3.0, -2.0, 5.0]))

    def moved(joint):
        if joint.parent.body != "world":
            return joint
        X = move @ joint.parent.pose
        return eqx.tree_at(lambda j: j.parent, joint, mb.Marker("world", X.translation, X.rotation))

    other = mb.compile(mb.Mechanism(mech.bodies, [moved(j) for j in mech.joints], gravity=move.rotate(mech.gravity)))
    run = jax.jit(lambda m, *a: jax.vmap(lambda *x: mb.forward_dynamics(m, *x))(*a))
    close(run(other, q, v, tau, t), run(model, q, v, tau, t), 1e-9)


def test_relabelling(tree):
    """The order in which bodies and joints are given does not matter."""
    mech, model, (q, v, tau, t) = tree
    rng = np.random.default_rng(1)
    shuffled = mb.Mechanism(
        [mech.bodies[i] for i in rng.permutation(len(mech.bodies))],
        [mech.joints[i] for i in rng.permutation(len(mech.joints))],
        gravity=mech.gravity,
    )
    other = mb.compile(shuffled)
    q_of = np.concatenate([np.arange(model.nq)[model.coordinates(j)] for j in other.inboard])
    v_of = np.concatenate([np.arange(model.nv)[model.speeds(j)] for j in other.inboard])
    run = lambda m: jax.jit(jax.vmap(lambda *x: mb.forward_dynamics(m, *x)))
    close(run(other)(q[:, q_of], v[:, v_of], tau[:, v_of], t), run(model)(q, v, tau, t)[:, v_of], 1e-9)


def test_joints_given_from_the_outside_in():
    """A joint whose child is nearer to the world is the same joint with opposite coordinates."""
    outward = random_mechanism(2, ["revolute", "prismatic", "revolute", "screw"], parent=lambda i: i)
    inward = mb.Mechanism(
        outward.bodies,
        [
            type(j)(j.name, j.child, j.parent, axis=j.axis, **({"pitch": j.pitch} if hasattr(j, "pitch") else {}))
            for j in outward.joints
        ],
        gravity=outward.gravity,
    )
    a, b = mb.compile(outward), mb.compile(inward)
    assert all(b.topology.reversed)
    q, v, tau, _ = random_states(a, 2, 8)
    run = lambda m: jax.jit(jax.vmap(lambda *x: mb.forward_dynamics(m, *x)))
    close(run(b)(-q, -v, -tau), -run(a)(q, v, tau), 1e-11)


def test_wrench_is_the_transpose_of_the_jacobian(tree):
    _, model, (q, v, vd, t) = tree
    marker, wrench = mb.Marker("b4", (0.3, 0.1, 0.2)), jnp.array([0.3, -0.2, 0.5, 1.0, 2.0, -3.0])

    @jax.jit
    @jax.vmap
    def law(q, v, vd, t):
        with_it = mb.inverse_dynamics(model, q, v, vd, t, [(marker, wrench), ("world", wrench)])
        without = mb.inverse_dynamics(model, q, v, vd, t)
        return without - with_it, mb.jacobian(model, q, marker, t).T @ wrench

    close(*law(q, v, vd, t), 1e-10)


def test_derivatives_with_respect_to_everything(tree, request):
    """jvp = vjp = central difference of the accelerations along random directions of every leaf and of the state."""
    mech, _, (q, v, vd, t) = tree
    which = "batch" if "1" in request.node.name else "single"
    take = (lambda a: a[0]) if which == "single" else (lambda a: jnp.concatenate([a, a[:2]]))
    rng = np.random.default_rng(0)
    x = (mech, take(q), take(v), take(vd), take(t))
    d = jax.tree.map(lambda a: jnp.asarray(0.1 * rng.standard_normal(a.shape)), x)

    def f(x):
        mech, *state = x
        run = lambda *s: mb.forward_dynamics(mb.compile(mech), *s, wrenches={"b3": jnp.arange(6.0)})
        return run(*state) if which == "single" else jax.vmap(run)(*state)

    @jax.jit
    def both(x, d, w):
        y, dy = jax.jvp(f, (x,), (d,))
        _, pull = jax.vjp(f, x)
        return y, dy, sum(jnp.vdot(a, b) for a, b in zip(jax.tree.leaves(pull(w)[0]), jax.tree.leaves(d), strict=True))

    w = jnp.asarray(rng.standard_normal(take(vd).shape))
    _, dy, pulled = both(x, d, w)
    close(pulled, jnp.vdot(w, dy), 1e-10)
    close(dy, central_difference(jax.jit(f), x, d), 1e-7)


@pytest.mark.parametrize("where", ["random", "neutral", "rest"])
def test_second_derivatives(where):
    """Forward over reverse = reverse over reverse = difference of the gradient, also at neutral and at rest."""
    model = mb.compile(random_mechanism(6, ["free", "revolute", "spherical", "universal", "hinge"]))
    q, v, tau, _ = random_states(model, 6, 3)
    k = {"random": 0, "neutral": -2, "rest": -1}[where]
    x = (jnp.zeros(model.nv), v[k], tau[k])  # steps from q: derivatives on the manifold
    rng = np.random.default_rng(0)
    d = tuple(jnp.asarray(rng.standard_normal(a.shape)) for a in x)
    weights = jnp.asarray(rng.standard_normal(model.nv))
    f = lambda x: weights @ mb.forward_dynamics(model, mb.retract(model, q[k], x[0]), x[1], x[2])
    dot = lambda a, b: sum(jnp.vdot(i, j) for i, j in zip(a, b, strict=True))
    _, forward = jax.jit(lambda x: jax.jvp(jax.grad(f), (x,), (d,)))(x)
    reverse = jax.jit(jax.grad(lambda x: dot(jax.grad(f)(x), d)))(x)
    difference = central_difference(jax.jit(jax.grad(f)), x, d)
    for a, b, c in zip(forward, reverse, difference, strict=True):
        close(a, b, 1e-9)
        close(a, c, 1e-6)


def test_pullback_has_a_transpose():
    """w -> w^T J is linear: backwards through it comes J again."""
    model = mb.compile(random_mechanism(3, ["revolute", "universal"]))
    q, v, tau, _ = random_states(model, 3, 1)
    f = lambda v: mb.forward_dynamics(model, q[0], v, tau[0])
    pull = lambda w: jax.vjp(f, v[0])[1](w)[0]
    close(jax.jit(jax.jacrev(pull))(tau[0]).T, jax.jit(jax.jacfwd(f))(v[0]), 1e-12)


def test_single_precision(scleronomic):
    """float32 gives what float32 can: residuals of inverse after forward dynamics at 1e-3 of the loads."""
    _, model, (q, v, tau, _) = scleronomic
    low = jax.tree.map(lambda a: a.astype(jnp.float32), model)
    q32, v32, tau32 = (a.astype(jnp.float32) for a in (q, v, tau))
    vd32 = jax.jit(jax.vmap(lambda *x: mb.forward_dynamics(low, *x)))(q32, v32, tau32)
    vd = jax.jit(jax.vmap(lambda *x: mb.forward_dynamics(model, *x)))(q, v, tau)
    assert vd32.dtype == jnp.float32
    close(vd32, vd, 1e-3)


def _forest(n, seed=0):
    """Topology of n bodies with random parents, several roots, welds and joints of up to six speeds."""
    rng = np.random.default_rng(seed)
    joints = []
    for i in range(n):
        parent = int(rng.integers(max(0, i - 5), i + 1)) if rng.random() > 0.05 else 0
        nv = int(rng.choice([0, 1, 1, 1, 2, 3, 6])) if parent else 6
        joints.append((f"j{i}", f"b{parent}" if parent else "world", f"b{i + 1}", nv, nv, None))
    return build_topology([f"b{i + 1}" for i in range(n)], joints)


@pytest.mark.parametrize("n", [5, 60])
@pytest.mark.parametrize("batch", [1, 9])
def test_sweeps_against_the_tree_matrix(n, batch):
    """Every way of walking gives the sums of the tree matrix; transposes and derivatives agree."""
    topology = _forest(n)
    x = jnp.asarray(np.random.default_rng(n).standard_normal((n, 6, batch)))
    T = topology.tree_matrix()
    outward, vjp_out = jax.vjp(lambda x: sum_outward(topology, x), x)
    inward, vjp_in = jax.vjp(lambda x: sum_inward(topology, x), x)
    close(outward, np.einsum("ki,k...->i...", T, x), 1e-13)
    close(inward, np.einsum("ki,i...->k...", T, x), 1e-13)
    close(vjp_out(x)[0], inward, 1e-13)
    close(vjp_in(x)[0], outward, 1e-13)


@pytest.mark.parametrize("batch", [1, 33])
def test_articulated_solve_is_the_dense_solve(batch):
    topology = _forest(40, seed=4)
    rng = np.random.default_rng(4)
    S = jnp.asarray(rng.standard_normal((topology.nv, 6, batch)))
    root = jnp.asarray(rng.standard_normal((40, 3, 3)))
    J = jnp.concatenate(
        [jnp.ones((40, 1)), jnp.zeros((40, 3)), (jnp.eye(3) + root @ jnp.swapaxes(root, 1, 2)).reshape(40, 9)], 1
    )[..., None] * jnp.ones(batch)
    F, b = (jnp.asarray(rng.standard_normal((*shape, 2, batch))) for shape in ((40, 6), (topology.nv,)))
    M = np.moveaxis(np.asarray(composite(topology, S, J)), -1, 0)
    right = b - (S[:, :, None] * sum_inward(topology, F)[walk(topology).speed_body]).sum(1)
    expected = np.moveaxis(np.linalg.solve(M, np.moveaxis(np.asarray(right), -1, 0)), 0, -1)
    close(articulated_solve(topology, S, jax.vmap(inertia_matrix)(J), F, b), expected, 1e-8)
    close(mass_solve(topology, S, J, F, b), expected, 1e-8)


def test_far_from_the_origin():
    """Two trees far from each other and from the origin keep their digits."""
    mech = random_mechanism(
        1, ["revolute", "spherical", "revolute", "universal"], gravity=(0, 0, 0), parent=lambda i: i % 2 and i
    )
    far = mb.Mechanism(
        mech.bodies,
        [
            eqx.tree_at(lambda j: j.parent.position, j, j.parent.position + 1e4 * (k + 1))
            if j.parent.body == "world"
            else j
            for k, j in enumerate(mech.joints)
        ],
        gravity=mech.gravity,
    )
    near_model, far_model = mb.compile(mech), mb.compile(far)
    q, v, tau, _ = random_states(near_model, 1, 8)
    run = jax.jit(lambda m, *a: jax.vmap(lambda *x: mb.forward_dynamics(m, *x))(*a))
    close(run(far_model, q, v, tau), run(near_model, q, v, tau), 1e-9)
