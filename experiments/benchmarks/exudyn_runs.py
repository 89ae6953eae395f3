"""The problems of `iftomm.py` as Exudyn solves them: bodies in absolute coordinates, implicit steps of one length.

Planar mechanisms become 2D rigid bodies and 2D joints, the point pendulum a mass and a distance, as in Exudyn's own
IFToMM examples; Bricard's linkage rigid bodies in space with a dense solver that bears redundant rows. Generalised
alpha at position level is Exudyn's default and that of its examples; where its trapezoidal rule at velocity level gets
to the accuracy sooner, that is taken (`TRAPEZOIDAL`). It fails on the four-bars, whose folds lead it to wrong branches.
Only `SolveDynamic` is timed, without sensors and without files.
"""

import contextlib
import importlib.util
import io
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from iftomm import Problem, error_of

import diffmb as mb

TRAPEZOIDAL = ("pendulum", "Andrews")
FIRST_STEPS = 500


class Run(NamedTuple):
    """What one accuracy costs: steps, their length, seconds, end error; `guessed` if extrapolated."""

    method: str
    steps: int
    step: float
    seconds: float
    error: float
    guessed: bool


def _at(p: Problem, motion: mb.Motion, body: mb.RigidBody) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Place of the centre of mass, rotation, twist there (angular first, world axes)."""
    centre = motion[mb.Marker(body.name, body.com)]
    return np.asarray(centre.pose.translation), np.asarray(centre.pose.rotation), np.asarray(centre.twist)


def _point(p: Problem, mbs: Any, tools: Any, motion: mb.Motion) -> int:
    """The pendulum."""
    (body,) = p.mechanism.bodies
    place, _, twist = _at(p, motion, body)
    node = mbs.AddNode(tools.NodePoint2D(referenceCoordinates=place[:2], initialVelocities=twist[3:5]))
    mass = mbs.AddObject(tools.MassPoint2D(physicsMass=float(body.mass), nodeNumber=node))
    ground = mbs.AddMarker(tools.MarkerBodyPosition(bodyNumber=mbs.AddObject(tools.ObjectGround())))
    marker = mbs.AddMarker(tools.MarkerNodePosition(nodeNumber=node))
    mbs.AddObject(tools.DistanceConstraint(markerNumbers=[ground, marker], distance=p.arm))
    mbs.AddLoad(tools.Force(markerNumber=marker, loadVector=np.asarray(p.mechanism.gravity) * float(body.mass)))
    return mass


def _flat(p: Problem, mbs: Any, tools: Any, motion: mb.Motion) -> dict[str, int]:
    """2D bodies and joints, springs, and moments on cranks; the numbers of the bodies."""
    mech, bodies, com = p.mechanism, {"world": mbs.AddObject(tools.ObjectGround())}, {"world": np.zeros(3)}
    for body in mech.bodies:
        place, R, twist = _at(p, motion, body)
        turned = [*place[:2], np.arctan2(R[1, 0], R[0, 0])]
        node = mbs.AddNode(
            tools.NodeRigidBody2D(referenceCoordinates=turned, initialVelocities=[*twist[3:5], twist[2]])
        )
        spin, m = float(np.asarray(body.inertia)[2, 2]), float(body.mass)
        bodies[body.name] = mbs.AddObject(tools.RigidBody2D(nodeNumber=node, physicsMass=m, physicsInertia=spin))
        com[body.name] = np.asarray(body.com)
        marker = mbs.AddMarker(tools.MarkerBodyMass(bodyNumber=bodies[body.name]))
        mbs.AddLoad(tools.LoadMassProportional(markerNumber=marker, loadVector=np.asarray(mech.gravity)))
    where = lambda m: {"bodyNumber": bodies[m.body], "localPosition": np.asarray(m.position) - com[m.body]}
    for joint in mech.joints:
        ends = joint.parent, joint.child
        if isinstance(joint, mb.Revolute):
            markers = [mbs.AddMarker(tools.MarkerBodyPosition(**where(m))) for m in ends]
            mbs.AddObject(tools.RevoluteJoint2D(markerNumbers=markers))
        else:  # along x of bodies that do not turn
            markers = [mbs.AddMarker(tools.MarkerBodyRigid(**where(m))) for m in ends]
            mbs.AddObject(tools.PrismaticJoint2D(markerNumbers=markers, axisMarker0=[1, 0, 0], normalMarker1=[0, 1, 0]))
        if joint.name in p.inputs:
            marker = mbs.AddMarker(tools.MarkerBodyRigid(**where(joint.child)))
            mbs.AddLoad(tools.Torque(markerNumber=marker, loadVector=[0, 0, p.inputs[joint.name]]))
    for s in mech.connections:
        markers = [mbs.AddMarker(tools.MarkerBodyPosition(**where(m))) for m in (s.first, s.second)]
        mbs.AddObject(
            tools.SpringDamper(
                markerNumbers=markers, referenceLength=float(s.length), stiffness=float(s.k), damping=float(s.c)
            )
        )
    return bodies


def _spatial(p: Problem, mbs: Any, tools: Any, motion: mb.Motion) -> dict[str, int]:
    """Rigid bodies and revolutes in space, written at an attitude without rotations; the numbers of the bodies."""
    mech, bodies = p.mechanism, {"world": mbs.CreateGround()}
    for body in mech.bodies:
        place, R, twist = _at(p, motion, body)
        bodies[body.name] = mbs.CreateRigidBody(
            inertia=tools.RigidBodyInertia(float(body.mass), np.asarray(body.inertia), com=[0, 0, 0]),
            referencePosition=place, referenceRotationMatrix=R, initialVelocity=twist[3:],
            initialAngularVelocity=twist[:3], gravity=np.asarray(mech.gravity),
        )  # fmt: skip
    for joint in mech.joints:
        end = joint.child
        place = np.asarray(end.position if end.body == "world" else motion[end].pose.translation)
        ends = [bodies[joint.parent.body], bodies[joint.child.body]]
        mbs.CreateRevoluteJoint(bodyNumbers=ends, position=place, axis=np.asarray(joint.axis), useGlobalFrame=True)
    return bodies


def _system(exu: Any, tools: Any, p: Problem, motion: mb.Motion) -> tuple[Any, int, np.ndarray]:
    """The system at its start, the observed body, and the point in it."""
    container = exu.SystemContainer()
    mbs = container.AddSystem()
    on = p.mechanism[p.point.body]
    if len(p.mechanism.bodies) == 1:
        observed, local = _point(p, mbs, tools, motion), np.zeros(3)
    else:
        build = _flat if p.planar else _spatial
        observed, local = build(p, mbs, tools, motion)[on.name], np.asarray(p.point.position) - np.asarray(on.com)
    mbs.Assemble()
    return mbs, observed, local


def _settings(exu: Any, p: Problem, steps: int) -> Any:
    s = exu.SimulationSettings()
    s.timeIntegration.numberOfSteps, s.timeIntegration.endTime = steps, p.end
    s.timeIntegration.verboseMode = 0
    s.solution.file.write = False
    s.timeIntegration.newton.useModifiedNewton = True
    s.timeIntegration.generalizedAlpha.computeInitialAccelerations = True
    s.timeIntegration.generalizedAlpha.spectralRadius = 0.95
    kinds = exu.LinearSolverType
    many = len(p.mechanism.bodies) > 8
    s.linearSolver.solverType = kinds.EigenSparse if many else kinds.EXUdense if p.planar else kinds.EigenDense
    s.linearSolver.ignoreSingularJacobian = not p.planar
    return s


def _once(p: Problem, motion: mb.Motion, steps: int, reference: np.ndarray) -> Run | None:
    import exudyn as exu
    from exudyn import utilities as tools

    method = "trapezoidal" if p.name in TRAPEZOIDAL else "gen. alpha"
    kind = exu.DynamicSolverType
    solver = kind.TrapezoidalIndex2 if p.name in TRAPEZOIDAL else kind.GeneralizedAlpha
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore", DeprecationWarning)
        mbs, body, local = _system(exu, tools, p, motion)
        settings = _settings(exu, p, steps)
        start = time.perf_counter()
        try:
            mbs.SolveDynamic(settings, solverType=solver)
        except Exception:
            return None
        seconds = time.perf_counter() - start
        place = mbs.GetObjectOutputBody(body, exu.OutputVariableType.Position, local)
    return Run(method, steps, p.end / steps, seconds, error_of(p, place, reference), False)


def search(p: Problem, reference: np.ndarray, accuracy: float, budget: float) -> Run | None:
    """The fewest steps that reach the accuracy: doubled, or, once the error is near, as many as second order asks for.

    Beyond `budget` seconds in all the rest is extrapolated: seconds with the steps, the error with their square.
    """
    if not importlib.util.find_spec("exudyn"):
        return None
    motion = mb.kinematics(p.model, p.q, p.rate * p.direction)
    steps, spent, last = FIRST_STEPS, 0.0, None
    while True:
        run = _once(p, motion, steps, reference)
        spent += run.seconds if run else 0.0
        if run and run.error <= accuracy:
            return _again(p, motion, run, reference)
        more = 2.0
        if run:
            last = run
            more = min(2.0, 1.03 * np.sqrt(run.error / accuracy)) if run.error < 1e-2 else 2.0
        if steps > 2_000_000 or (last and spent + last.seconds * steps * more / last.steps > budget):
            return _extrapolated(p, last, accuracy)
        steps = int(np.ceil(steps * more))


def _again(p: Problem, motion: mb.Motion, run: Run, reference: np.ndarray) -> Run:
    """The best time of three, if they are short."""
    others = [_once(p, motion, run.steps, reference) for _ in range(2 if run.seconds < 3.0 else 0)]
    return run._replace(seconds=min([run.seconds, *(r.seconds for r in others if r)]))


def _extrapolated(p: Problem, run: Run | None, accuracy: float) -> Run | None:
    if run is None or run.error > 1e-2:
        return None
    more = np.sqrt(run.error / accuracy)
    return run._replace(steps=int(run.steps * more), step=run.step / more, seconds=run.seconds * more, error=accuracy,
                        guessed=True)  # fmt: skip
