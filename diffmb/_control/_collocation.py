"""COLLOCATION: from a problem to an optimal motion, with a mesh that is refined until its error is small enough."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .._errors import MechanismError
from . import _radau as radau
from ._guess import course_of, unknowns
from ._interior_point import Iterate, first_iterate, minimise
from ._mesh import estimate, refined
from ._nlp import Program
from ._problem import Problem
from ._solution import REASONS, Progress, Solution, all_lam, check, missed
from ._system import System, choose_system
from ._transcription import Mesh, Unknowns, leaps, transcribe, unpack


def collocation(
    problem: Problem,
    nodes: int = 40,
    *,
    points: int = 3,
    guess: Any = None,
    accuracy: float | None = None,
    tolerance: float = 1e-8,
    max_rounds: int = 8,
    max_iterations: int = 500,
    callback: Callable[[Progress], Any] | None = None,
    resume: Progress | None = None,
    throw: bool = True,
) -> Solution:
    """The optimal motion by direct collocation on the implicit equations, loops included.

    **Arguments:**

    - `nodes`: number of intervals at first; `points`: Radau points in each, order 2 points - 1.
    - `guess`: a trajectory of `mb.simulate`, a solution (of another mesh or a similar problem), a `Guess`, or None for
        a straight way from start to end.
    - `accuracy`: refine the mesh until the estimated relative error of each interval is below; None keeps the mesh.
    - `tolerance`: of all conditions and of optimality.
    - `max_rounds`, `max_iterations`: limits of refinements and of iterations on one mesh.
    - `callback`: sees the `Progress` after each iteration; True from it ends the search.
    - `resume`: a `Progress`, to go on from there, bitwise as if there had been no break; other arguments as before.
    - `throw`: whether a search that does not converge is an error; else look at `.converged` and `.reason`.
    """
    if nodes < 1 or points < 1:
        raise MechanismError(f"nodes = {nodes}, points = {points}: at least one interval, and one point in each")
    mesh = Mesh(tuple(np.linspace(0.0, 1.0, nodes + 1).tolist()), points)
    course = course_of(problem, guess)
    system = choose_system(problem, course.T, course.states(mesh.fractions), mesh.fractions)
    if resume is not None:
        mesh = Mesh(tuple(np.asarray(resume.ends).tolist()), points)
    rounds = 0
    while True:
        program = transcribe(system, mesh)
        begin = lambda: _begin(program, system, mesh, course, rounds)
        iterate = begin() if resume is None else same_size(program, resume.iterate)
        ends = np.array(mesh.ends)
        tell = None if callback is None else (lambda it: callback(Progress(ends, it)))
        found = minimise(program, iterate, tolerance=tolerance, max_iterations=max_iterations, callback=tell)
        solution = finish(system, mesh, program, unpack(system, mesh, found[0]), *found, throw)
        rounds, resume = rounds + 1, None
        if accuracy is None or solution.errors.max() <= accuracy or not solution.converged or rounds > max_rounds:
            return solution
        course, mesh = solution.course(), refined(mesh, solution.errors, accuracy)


def _begin(program: Program, system: System, mesh: Mesh, course: Any, rounds: int) -> Iterate:
    """The first iterate of a round; a mesh that was refined starts near the optimum."""
    w = unknowns(system, mesh, course).pack()
    return first_iterate(program, w) if rounds == 0 else first_iterate(program, w, mu=1e-4, room=1e-5)


def same_size(program: Program, iterate: Iterate) -> Iterate:
    """The iterate, refused if it belongs to another program."""
    if len(iterate.y) != program.rows:
        raise MechanismError(
            f"resume holds an iterate with {len(iterate.y)} rows, the problem has {program.rows}; resume with the same "
            "problem, guess and points"
        )
    return iterate


def finish(system: System, mesh: Mesh, program: Program, w: Unknowns, x: np.ndarray, it: Iterate, ended: str,
           throw: bool, inputs: np.ndarray | None = None) -> Solution:  # fmt: skip
    """What was found, looked at from outside: all rows, all conditions, the error of the mesh."""
    cost, rows = program.values(x)
    by_row, by_bound = program.violation(x, rows)
    worst = int(np.argmax(by_row)) if len(by_row) else 0
    violation = max(by_row.max(initial=0.0), by_bound.max(initial=0.0))
    reason = REASONS[ended]
    if ended != "converged" and violation > 1e-6:
        reason += f": {program.row_name(worst)} misses by {by_row[worst]:.3g}"
    dropped, name = missed(system, mesh.fractions, w)
    if ended == "converged" and dropped > max(1e-6, 100 * violation):
        ended, reason = "infeasible", f"{REASONS['infeasible']}: {name} misses by {dropped:.3g}, whatever the motion"
    first = lambda a: np.concatenate([mesh.values_at(a, np.zeros(1)), a])
    q, v, z = system.split(w.x)
    signal = (radau.points(mesh.s), w.u.reshape(len(mesh.ends) - 1, mesh.s, -1))
    if inputs is None:
        errors = estimate(system, mesh, w) if np.isfinite(x).all() else np.full(len(mesh.ends) - 1, np.nan)
    else:
        signal, errors = (np.array([0.0, 1.0]), inputs), np.zeros(0)
    solution = Solution(
        mesh.fractions * float(w.T), q, v, z, first(w.u), first(all_lam(system, w.lam)), cost - leaps(mesh, w),
        float(max(violation, dropped)), float(it.errors[2]), errors, Progress(np.array(mesh.ends), it), system,
        signal[1], tuple(signal[0].tolist()), mesh, ended == "converged", reason,
    )  # fmt: skip
    return check(solution, throw)
