"""Closed loops against other programs: accelerations and reactions as Pinocchio and Exudyn solve them."""

from typing import Any

import jax
import numpy as np
import pytest
from helpers import close
from oracles import mechanism_to_pinocchio, random_rotation, random_tree

import diffmb as mb


@jax.jit
def moved(model: mb.Model, q, v, tau):
    """Accelerations, reactions in the axes of the first markers, and the motion of the bodies."""
    vd = mb.forward_dynamics(model, q, v, tau)
    return vd, mb.reactions(model, q, v, tau, frame="parent"), mb.kinematics(model, q, v, vd)


def allowed(model: mb.Model, q, rng) -> np.ndarray:
    """Random speeds that keep every loop closed."""
    G = np.asarray(mb.constraint_jacobian(model, q))
    v = rng.standard_normal(model.nv)
    return v - np.linalg.pinv(G) @ (G @ v)


# --- Pinocchio


def two_loops(seed: int):
    """A random chain whose tip is welded to the ground, and a ball that ties two of its bodies: nine rows, all needed.

    The second markers are put where the loops close at q. Also the open chain, which Pinocchio shall close itself.
    """
    pin = pytest.importorskip("pinocchio")
    rng = np.random.default_rng(seed)
    kinds = ["revolute", "spherical", "revolute", "prismatic", "spherical", "revolute", "revolute"]
    tree = random_tree(rng, kinds, near=1)
    model = mb.compile(tree)
    theirs, order = mechanism_to_pinocchio(tree, model)
    q = np.array(pin.integrate(theirs, pin.neutral(theirs), 0.7 * rng.standard_normal(theirs.nv)))
    poses = mb.kinematics(model, q[order.q])
    tip, side = (mb.Marker(b, 0.3 * rng.standard_normal(3), random_rotation(rng)) for b in ("b6", "b2"))
    ground, across = poses[tip].pose, poses["b4"].pose.inverse() @ poses[side].pose
    closing = [
        mb.Weld("weld", tip, mb.Marker("world", ground.translation, ground.rotation), cut=True),
        mb.Spherical("ball", side, mb.Marker("b4", across.translation, random_rotation(rng)), cut=True),
    ]
    mech = mb.Mechanism(tree.bodies, [*tree.joints, *closing], gravity=tree.gravity)
    return pin, tree, closing, theirs, order, q, mb.compile(mech), rng


def close_in_pinocchio(pin: Any, tree: mb.Mechanism, closing, theirs: Any) -> tuple[Any, Any]:
    """The closing joints as rigid constraints: a weld has six rows, a ball three."""
    pose = lambda marker: pin.SE3(np.asarray(marker.pose.rotation), np.asarray(marker.pose.translation))
    child = {joint.child.body: joint.child for joint in tree.joints}

    def place(marker):
        if marker.body == "world":
            return 0, pose(marker)
        return theirs.getJointId(marker.body), pose(child[marker.body]).inverse() * pose(marker)

    kinds = {mb.Weld: pin.ContactType.CONTACT_6D, mb.Spherical: pin.ContactType.CONTACT_3D}
    models, datas = pin.StdVec_RigidConstraintModel(), pin.StdVec_RigidConstraintData()
    for joint in closing:
        ends = (*place(joint.parent), *place(joint.child))
        models.append(pin.RigidConstraintModel(kinds[type(joint)], theirs, *ends, pin.ReferenceFrame.LOCAL))
        datas.append(models[len(models) - 1].createData())
    return models, datas


def test_two_loops_as_pinocchio_closes_them():
    """Measured 2e-14 in accelerations and forces."""
    pin, tree, closing, theirs, order, q, model, rng = two_loops(7)
    models, datas = close_in_pinocchio(pin, tree, closing, theirs)
    data = theirs.createData()
    pin.initConstraintDynamics(theirs, data, models, datas)
    assert model.nc == 9 and len(model.topology.cuts) == 2
    for _ in range(3):
        v, tau = allowed(model, q[order.q], rng), rng.standard_normal(model.nv)
        vd, reactions, _ = moved(model, q[order.q], v, tau)
        their_v, their_tau = np.zeros((2, model.nv))
        their_v[order.v], their_tau[order.v] = v, tau
        exact = pin.ProximalSettings(1e-14, 0.0, 1)
        their_vd = pin.constraintDynamics(theirs, data, q, their_v, their_tau, models, datas, exact)
        close(vd, np.asarray(their_vd)[order.v], 1e-11)
        for k, joint in enumerate(closing):  # their force acts on the first body, in the axes of its marker
            force = datas[k].contact_force
            close(-reactions[joint.name], np.concatenate([force.angular, force.linear]), 1e-11)


# --- Exudyn


def ball_bar_ball() -> mb.Mechanism:
    """Two cranks on skew axes and a bar between their tips: two balls close the loop without a redundant row."""
    rng = np.random.default_rng(11)
    R = [random_rotation(rng) for _ in range(3)]
    P, Q = np.array([0.1, 0.2, 0.0]), np.array([0.6, 0.1, 0.3])  # where the balls are at q = 0
    feet = np.array([0.0, 0.0, 0.1]), np.array([0.7, -0.2, 0.2])
    names = ("left", "bar", "right")
    moments = ((0.02, 0.03, 0.025), (0.001, 0.04, 0.04), (0.03, 0.02, 0.03))
    coms = ((0.05, 0.02, 0.0), (0.2, 0.0, 0.02), (0.0, 0.1, 0.03))
    bodies = [mb.RigidBody(n, m, c, I) for n, m, c, I in zip(names, (0.6, 0.8, 0.5), coms, moments, strict=True)]
    # The frames of the bodies stand at the foot, at P and at the foot, turned by R.
    on = lambda k, where, origin: mb.Marker(names[k], R[k].T @ (where - origin), R[k].T)
    return mb.Mechanism(
        bodies,
        [
            mb.Revolute("A", mb.Marker("world", feet[0]), on(0, feet[0], feet[0]), axis=(0.2, 0.3, 1.0)),
            mb.Revolute("B", mb.Marker("world", feet[1]), on(2, feet[1], feet[1]), axis=(1.0, -0.4, 0.1)),
            mb.Spherical("P", on(0, P, feet[0]), on(1, P, P)),
            mb.Spherical("Q", on(1, Q, P), on(2, Q, feet[1]), cut=True),
        ],
        gravity=(0.3, -1.0, -9.0),
    )


def mechanism_to_exudyn(exu: Any, mech: mb.Mechanism, motion: mb.Motion) -> tuple[Any, dict[str, int], dict[str, int]]:
    """Revolutes and balls between bodies in absolute coordinates, in the given motion: the system, bodies, joints."""
    from exudyn import utilities as tools

    mbs = exu.SystemContainer().AddSystem()
    bodies, com = {"world": mbs.CreateGround()}, {"world": np.zeros(3)}
    for body in mech.bodies:
        com[body.name] = np.asarray(body.com)
        centre = motion[mb.Marker(body.name, body.com)]
        bodies[body.name] = mbs.CreateRigidBody(
            inertia=tools.RigidBodyInertia(float(body.mass), np.asarray(body.inertia), com=[0, 0, 0]),
            referencePosition=np.asarray(centre.pose.translation),
            referenceRotationMatrix=np.asarray(centre.pose.rotation),
            initialVelocity=np.asarray(centre.twist[3:]),
            initialAngularVelocity=np.asarray(centre.twist[:3]),
            gravity=np.asarray(mech.gravity),
        )
    joints = {}
    for joint in mech.joints:
        ends = [(m, bodies[m.body], np.asarray(m.position) - com[m.body]) for m in (joint.parent, joint.child)]
        if isinstance(joint, mb.Spherical):
            markers = [mbs.AddMarker(tools.MarkerBodyPosition(bodyNumber=b, localPosition=p)) for _, b, p in ends]
            joints[joint.name] = mbs.AddObject(tools.SphericalJoint(markerNumbers=markers))
            continue
        axis = np.asarray(joint.axis)
        across = np.cross(axis, (0.3, 0.5, 0.8))
        across /= np.linalg.norm(across)
        frame = np.stack([across, np.cross(axis, across), axis], 1)  # its z axis is that of the hinge
        places = [exu.HT(rotation=np.asarray(m.pose.rotation) @ frame, translation=p) for m, _, p in ends]
        markers = [
            mbs.AddMarker(tools.MarkerBodyRigid(bodyNumber=b, localHT=place))
            for place, (_, b, _) in zip(places, ends, strict=True)
        ]
        joints[joint.name] = mbs.AddObject(tools.ObjectJointRevoluteZ(markerNumbers=markers))
    mbs.Assemble()
    return mbs, bodies, joints


def test_ball_bar_ball_as_exudyn_starts_it():
    """Accelerations and forces in the balls as Exudyn solves them before its first step.

    At rest measured 2e-14. In motion Exudyn takes the rate of its Jacobian by differences: the accelerations of its two
    bodies at a ball differ by 6e-7 m/s2 of 190, and the agreement is no better than that; diffmb's differ by 2e-14.
    """
    exu = pytest.importorskip("exudyn")
    mech = ball_bar_ball()
    model = mb.compile(mech)
    q, rng = model.neutral(), np.random.default_rng(0)
    for speed, tolerance in ((0.0, 1e-12), (10.0, 1e-6)):
        v = speed * allowed(model, q, rng)
        _, reactions, motion = moved(model, q, v, np.zeros(model.nv))
        mbs, bodies, joints = mechanism_to_exudyn(exu, mech, motion)
        settings, solver = exu.SimulationSettings(), exu.MainSolverImplicitSecondOrder()
        settings.timeIntegration.verboseMode = 0
        settings.solution.file.write = False  # else it leaves a folder in the working directory
        settings.timeIntegration.newton.numericalDifferentiation.relativeEpsilon = 1e-6  # its best
        assert solver.InitializeSolver(mbs, settings)
        now, kind = exu.ConfigurationType.Current, exu.OutputVariableType
        ours, theirs = [], []
        for body in mech.bodies:
            at = lambda what, name=body.name: mbs.GetObjectOutputBody(bodies[name], what, [0, 0, 0], now)
            ours.append(motion[mb.Marker(body.name, body.com)].acceleration)
            theirs.append(np.concatenate([at(kind.AngularAcceleration), at(kind.Acceleration)]))
        close(ours, theirs, tolerance)
        for name in ("P", "Q"):  # their force acts on the first body, in world axes
            axes = motion[mech[name].parent].pose.rotation
            close(-axes @ reactions[name][3:], mbs.GetObjectOutput(joints[name], kind.Force, now), tolerance)
            close(reactions[name][:3], np.zeros(3), 1e-12)
        assert speed == 0.0 or np.abs(theirs).max() > 30.0
