"""Laws of closed mechanisms: complete gamma, ideal constraints, balanced bodies, whichever joint is cut."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed import four_bar, loop_of
from helpers import KINDS, close, random_body, random_mechanism

import diffmb as mb
from diffmb._dynamics import composite
from diffmb._saddle import prepare_rows, prepare_speeds

T = 0.3


def consistent(model, q, seed=1, t=T):
    """The state nearest to q and to random speeds."""
    v = jnp.asarray(np.random.default_rng(seed).standard_normal(model.nv))
    return mb.assemble(model, q, v, t=t)


@jax.jit
def _speeds(model, q, v, t):
    G = mb.constraint_jacobian(model, q, t)[np.flatnonzero(model.levels <= 1)]
    return v - jnp.linalg.pinv(G, rtol=1e-9) @ mb.constraint_rate(model, q, v, t)


@jax.jit
def _laws(model, q, v, tau, t):
    d = mb.dynamics(model, q, v, tau, t)
    G, gamma = mb.constraint_jacobian(model, q, t), mb.constraint_bias(model, q, v, t)
    motion = mb.bias(model, q, v, t) + mb.mass_matrix(model, q, t) @ d.vd + G.T @ d.lam - tau
    later = lambda s: (mb.retract(model, q, s * v + 0.5 * s * s * d.vd), v + s * d.vd, t + s)
    rates = jax.vmap(lambda s: mb.constraint_rate(model, *later(s)))(jnp.array([0.0, -1e-4, 1e-4]))
    return d.vd, G, gamma, motion, mb.constraint_residual(model, q, t), rates


def check_laws(model, q, v, tau, t):
    """M vd + c + G^T lam = tau; phi, G v - nu and G vd - gamma are zero; so is d(G v - nu)/dt along the motion."""
    vd, G, gamma, motion, phi, rates = _laws(model, q, v, tau, t)
    close(phi, np.zeros_like(phi), 1e-9)
    close(rates[0], np.zeros_like(rates[0]), 1e-8)
    close(motion, np.zeros_like(motion), 1e-9)
    size = np.abs(np.asarray(G)).sum() * (1.0 + np.abs(np.asarray(vd)).max())
    assert np.abs(np.asarray(G @ vd - gamma)).max(initial=0.0) <= 1e-10 * size
    # By differences, so that a term missing in gamma shows.
    assert np.abs(np.asarray(rates[2] - rates[1])).max(initial=0.0) / 2e-4 <= 1e-6 * size
    return vd


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("free", "angles")])
def test_every_joint_closes_a_loop(kind):
    """A loop closed by each kind; user-written and rheonomic hinges included."""
    mech, q = loop_of(kind)
    model = mb.compile(mech)
    assert model.topology.cuts == (2,) and model.nc == 6 - mech.joints[2].nv == len(model.row_names)
    v, tau = jnp.asarray(np.random.default_rng(2).standard_normal((2, model.nv)))
    check_laws(model, q, _speeds(model, q, v, T), tau, T)


def test_joints_without_rows_close_nothing():
    for kind in ("free", "angles"):
        model = mb.compile(loop_of(kind)[0])
        assert model.topology.cuts == (2,) and model.nc == 0


def _seen(model, state):
    """What does not depend on the choice of the tree: accelerations of the bodies, reactions of the joints."""
    names = sorted(model.topology.bodies)
    vd = mb.dynamics(model, state.q, state.v).vd
    motion = mb.kinematics(model, state.q, state.v, vd)
    r = mb.reactions(model, state.q, state.v)
    joints = sorted({*model.inboard, *(model.topology.joint_names[k] for k in model.topology.cuts)})
    return (
        jnp.stack([motion[n].pose.translation for n in names]),
        jnp.stack([motion[n].acceleration for n in names]),
        jnp.stack([r[j] for j in joints]),
    )


ANGLES = {"A": 0.5, "B": 0.23812233653252907, "C": 0.79395127873, "D": 1.532073615265012}  # one closed attitude
SPEED_OF_D = -0.13230617508266482  # when A turns at 1 rad/s


def test_choice_of_the_cut_does_not_matter():
    """The four-bar opened at each joint in turn moves alike, with the same reactions in its plane."""
    found = []
    for cut in "DABC":
        model = mb.compile(four_bar(cut=cut))
        assert model.topology.joint_names[model.topology.cuts[0]] == cut
        lead = "D" if cut == "A" else "A"
        speed = {"A": 1.0, "D": SPEED_OF_D}[lead]
        others = {j: x for j, x in ANGLES.items() if j not in (cut, lead)}
        state = mb.assemble(model, {lead: ANGLES[lead]}, {lead: speed}, guess=others)
        assert int(state.branch) == 1
        found.append(jax.jit(_seen)(model, state))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            close(a, b, 1e-7)


def _in_order(mech, order):
    """The same mechanism with its bodies and joints given in another order."""
    joints = [mech.joints[k] for k in order]
    bodies = [mech.bodies[k] for k in order if k < len(mech.bodies)]
    return mb.Mechanism(bodies, joints, gravity=mech.gravity)


def test_order_of_parts_does_not_matter():
    mech = four_bar(cut="C")
    state = mb.assemble(mb.compile(mech), {"A": 0.5}, {"A": 1.0}, guess={"B": 0.2, "D": 1.5})
    other = mb.compile(_in_order(mech, [3, 1, 2, 0]))
    model = mb.compile(mech)
    moved = {j: state.q[model.coordinates(j)] for j in model.inboard}
    speeds = {j: state.v[model.speeds(j)] for j in model.inboard}
    again = mb.assemble(other, moved, speeds)
    for a, b in zip(jax.jit(_seen)(model, state), jax.jit(_seen)(other, again), strict=True):
        close(a, b, 1e-9)


# --- reactions ----------------------------------------------------------------------------------------------------


def _ends(mech):
    """(name, first marker, second marker) of everything that transmits a wrench between bodies."""
    joints = [(j.name, j.parent, j.child) for j in mech.joints]
    return joints + [(c.name, c.first, c.second) for c in mech.constraints if isinstance(c, mb.AbstractConstraint)]


def check_balance(mech, q, v, tau, t):
    """For each body: the wrenches of joints and constraints, gravity and d'Alembert's add up to nothing."""
    model = mb.compile(mech)
    wrenches = [(mb.Marker(mech.bodies[0].name, (0.1, 0.2, -0.1)), jnp.array([0.3, -0.2, 0.1, 1.0, 2.0, 3.0]))]

    @jax.jit
    def run(model, q, v, tau):
        d = mb.dynamics(model, q, v, tau, t, wrenches)
        r = mb.reactions(model, q, v, tau, t, wrenches)
        return d, r, mb.kinematics(model, q, v, d.vd, t)

    d, r, motion = run(model, q, v, tau)
    total = {body.name: np.zeros(6) for body in mech.bodies}  # moment about the world's origin, then force

    def add(body, wrench, point):
        if body != "world":
            wrench, point = np.asarray(wrench), np.asarray(point)
            total[body] += np.concatenate([wrench[:3] + np.cross(point, wrench[3:]), wrench[3:]])

    for name, first, second in _ends(mech):
        point = motion[second].pose.translation if second.body != "world" else second.position
        add(second.body, r[name], point)
        add(first.body, -r[name], point)
    for marker, wrench in wrenches:
        add(marker.body, wrench, motion[marker].pose.translation)
    for body in mech.bodies:
        at = motion[mb.Marker(body.name, body.com)]
        R, w = np.asarray(at.pose.rotation), np.asarray(at.twist[:3])
        I = R @ np.asarray(body.inertia) @ R.T
        force = float(body.mass) * (np.asarray(at.acceleration[3:]) - np.asarray(mech.gravity))
        moment = I @ np.asarray(at.acceleration[:3]) + np.cross(w, I @ w)
        add(body.name, -np.concatenate([moment, force]), at.pose.translation)
    for name, rest in total.items():
        assert np.abs(rest).max() < 1e-9 * (1.0 + np.abs(np.asarray(r.wrenches)).max()), name
    return d, r, wrenches


def test_reactions_balance_every_body():
    """A spatial loop with a spherical cut, a rod, a reversed joint and a driven coordinate."""
    rng = np.random.default_rng(5)
    mech, q = loop_of("universal", seed=3)
    reversed_joint = mb.Revolute("tail", "b3", "b1", axis=(0.2, 1.0, 0.3))
    where = mb.kinematics(mb.compile(mech), q)
    post = where["b2"].pose.apply(jnp.array([0.1, 0.0, 0.2])) + jnp.array([0.0, 0.3, 0.4])
    mech = mb.Mechanism(
        [*mech.bodies, random_body(rng, "b3")],
        [*mech.joints, reversed_joint],
        constraints=[mb.Distance("rod", mb.Marker("world", post), mb.Marker("b2", (0.1, 0.0, 0.2)), 0.5)],
        drives=[mb.PositionDrive("motor", "tail", lambda t, p: p[0] * jnp.sin(p[1] * t), (0.4, 2.0))],
        gravity=mech.gravity,
    )
    model = mb.compile(mech)
    assert any(model.topology.reversed)
    start = model.pack({"J1": q[:7], "J2": q[7:11]})
    state = consistent(model, start)
    tau = jnp.asarray(rng.standard_normal(model.nv))
    d, r, wrenches = check_balance(mech, state.q, state.v, tau, T)
    check_laws(model, state.q, state.v, tau, T)
    # Ideal constraints do no work: the power of the rows is lam . nu, here the drive's alone.
    G = mb.constraint_jacobian(model, state.q, T)
    power = -float(d.lam @ (G @ state.v))
    assert abs(power - float(d.load("motor")) * 0.8 * np.cos(2.0 * T)) < 1e-9 * (1 + abs(power))
    assert bool(r.unique("rod").all()) and bool(r.unique("motor").all())
    # The motor's wrench is its torque about the axis of its joint, which the reaction of the joint contains.
    pose = mb.kinematics(model, state.q, t=T)["b1"].pose
    axis = np.asarray(pose.rotate(reversed_joint.axis))
    close(r["motor"], np.concatenate([float(d.load("motor")) * axis, np.zeros(3)]), 1e-9)
    drive_and_tau = float(d.load("motor")) + float(tau[model.speeds("tail")][0])
    assert abs(float(r["tail"][:3] @ axis) - drive_and_tau) < 1e-9 * (1 + abs(drive_and_tau))
    # Another frame turns the components only.
    own = mb.reactions(model, state.q, state.v, tau, T, wrenches, frame="b1")["rod"]
    close(np.asarray(pose.rotation) @ np.asarray(own[3:]), r["rod"][3:], 1e-9)


def test_planar_loop_in_space_marks_what_is_not_unique():
    model = mb.compile(four_bar())
    state = mb.assemble(model, {"A": 0.5}, {"A": 1.0}, guess={"B": 0.2, "C": 0.8})
    r = mb.reactions(model, state.q, state.v)
    for joint in "ABCD":  # the loads in its plane are determined, those across it are not
        assert r.unique(joint).tolist() == [False, False, True, True, True, False], joint
    open_chain = mb.compile(mb.Mechanism(four_bar().bodies, four_bar().joints[:3]))
    r = mb.reactions(open_chain, open_chain.neutral(), jnp.ones(3))
    assert all(bool(r.unique(j).all()) for j in "ABC")


# --- the two ways to solve ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 33])
@pytest.mark.parametrize("rank", [2, 4])
def test_by_rows_is_by_speeds(rank, batch):
    """Both solve [[M, G^T], [G, -N]], redundant rows and right-hand sides that contradict each other included."""
    mech = random_mechanism(1, ["revolute", "universal", "revolute", "cylindrical"])
    topology = mb.compile(mech).topology
    rng = np.random.default_rng(rank)
    S = jnp.asarray(rng.standard_normal((topology.nv, 6, batch)))
    root = rng.standard_normal((4, 3, 3))
    inertia = (np.eye(3) + root @ np.swapaxes(root, 1, 2)).reshape(4, 9)
    J = jnp.asarray(np.concatenate([np.ones((4, 1)), np.zeros((4, 3)), inertia], 1))[..., None] * jnp.ones(batch)
    G = jnp.asarray(np.einsum("irz,rdz->idz", *(rng.standard_normal((*s, batch)) for s in ((4, rank), (rank, 6)))))
    b1, b2 = (jnp.asarray(rng.standard_normal((k, batch))) for k in (6, 4))
    M = np.asarray(composite(topology, S, J))
    Z = jnp.asarray(np.moveaxis(np.linalg.solve(np.moveaxis(M, -1, 0), np.moveaxis(np.asarray(G), -1, 0).mT), 0, -1))
    solve = [prepare_rows(topology, S, J, G, Z).solve, prepare_speeds(topology, S, J, G).solve]
    (x, lam), (y, mu) = (f(b1, b2) for f in solve)
    close(x, y, 1e-9)
    close(lam, mu, 1e-9)
    for k in range(batch):
        m, g = M[..., k], np.asarray(G)[..., k]
        N = (np.eye(4) - g @ np.linalg.pinv(g, rcond=1e-9)) * (rank < 4)  # its round-off would weigh on lam
        whole = np.block([[m, g.T], [g, -N]])
        expected = np.linalg.solve(whole, np.concatenate([b1[:, k], b2[:, k]]))
        close(np.concatenate([x[:, k], lam[:, k]]), expected, 1e-8)
