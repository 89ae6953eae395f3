"""Closed curves in the x-y plane, walked counter-clockwise: profiles of cams. All methods are for one sample.

    c(s)                          a point, s in [0, 1) and periodic
    t = c' / |c'|                 unit tangent;  n = (t_y, -t_x): unit normal, outward
    d(p) = n(s) . (p - c(s))      distance of p, positive outside, at the nearest c(s): c'(s) . (p - c(s)) = 0

**Arcs and lines.** An arc has the centre C, the signed radius r (negative: hollow, with the centre outside) and covers
the directions u(a) = (cos a, sin a) of its normal: c = C + r u(a).

    arc to arc        C_2 = C_1 + (r_1 - r_2) u(a)                    both have the normal u(a) where they meet
    arc, line, arc    n = ((r_1 - r_2) D + L (D_y, -D_x)) / |D|^2     D = C_2 - C_1, L^2 = |D|^2 - (r_1 - r_2)^2
                      from C_1 + r_1 n to C_2 + r_2 n, of length L
    d on an arc       +-|p - C| - r, with the sign of r
    d on a line       n . (p - C_1) - r_1

so neighbours are tangent whatever the numbers: moving one of them, as derivatives and optimisers do, leaves the curve
closed and C1. s is the length along the curve divided by the whole.

**Spline.** Through points P_i at s = i/m, cubic in between with f = m s - i, and twice differentiable:

    c = P_i + f (P_i+1 - P_i - (2 M_i + M_i+1) / 6) + f^2 M_i / 2 + f^3 (M_i+1 - M_i) / 6
    M_i-1 + 4 M_i + M_i+1 = 6 (P_i-1 - 2 P_i + P_i+1)                     M = c'' with respect to f
"""

from abc import abstractmethod
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .._errors import MechanismError
from .._spatial._axis import as_array, is_concrete
from .._spatial._vector import dot, stack, unit
from ._geometry import length_and_direction, nearest

_TURN = 2.0 * np.pi
_TIE = 1e-10  # relative: squared distances that differ by less are taken to be equal
_SLACK = 1e-4  # rad: an arc of no length may come out this much shorter


class AbstractProfile(eqx.Module):
    """A closed curve in the x-y plane, counter-clockwise."""

    @abstractmethod
    def point(self, s: Array) -> Array:
        """c(s), (2,), m."""

    @abstractmethod
    def closest(self, p: Array) -> Array:
        """The s in [0, 1) of the point nearest to p (2,)."""

    def tangent(self, s: Array) -> Array:
        """Unit vector along the curve, (2,)."""
        return unit(jax.jvp(self.point, (s,), (jnp.ones_like(s),))[1])

    def contact(self, p: Array) -> tuple[Array, Array]:
        """The signed distance of p (2,) from the curve, m, and the outward unit normal (2,) at the nearest point."""
        s = self.closest(p)
        foot, velocity = jax.jvp(self.point, (s,), (jnp.ones_like(s),))
        normal = unit(stack([velocity[1], -velocity[0]]))
        return dot(normal, p - foot), normal

    def signed_distance(self, p: Array) -> Array:
        """Positive outside, m."""
        return self.contact(p)[0]


def _heading(angle: Array) -> Array:
    """u(a), with the components last."""
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)], -1)


def _wrapped(angle: Array, least: float) -> Array:
    """The same angle in [least, least + 2 pi)."""
    return angle - _TURN * lax.stop_gradient(jnp.floor((angle - least) / _TURN))


def _fraction(s: Array) -> Array:
    return s - lax.stop_gradient(jnp.floor(s))


def _as_row(value) -> Array:
    return jnp.atleast_1d(as_array(value))


class Arcs(eqx.Module):
    """Arcs that follow each other, each tangent to the next.

    **Arguments:**

    - `centre`: of the first arc, two numbers, m. The other centres follow.
    - `radii`: one number, or one per arc, m; negative for a hollow arc, zero for a sharp corner.
    - `angles`: direction of the normal where an arc goes over into the next, rad from the x axis; one number less than
        radii, rising over arcs that bulge and falling over hollow ones.
    """

    centre: Array = eqx.field(converter=as_array)
    radii: Array = eqx.field(converter=_as_row)
    angles: Array = eqx.field(converter=_as_row, default=())

    def __check_init__(self):
        shapes = self.centre.shape, self.radii.shape, self.angles.shape
        if shapes != ((2,), (self.radii.size,), (self.radii.size - 1,)):
            raise MechanismError(
                f"Arcs have a centre, radii and angles of shapes {shapes[0]}, {shapes[1]} and {shapes[2]}; give two "
                "numbers, k numbers and k - 1 numbers"
            )

    def centres(self) -> Array:
        """(k, 2)."""
        steps = (self.radii[:-1] - self.radii[1:])[:, None] * _heading(self.angles)
        return self.centre + jnp.concatenate([jnp.zeros_like(self.centre)[None], jnp.cumsum(steps, 0)])


def _as_runs(runs) -> tuple[Arcs, ...]:
    return tuple(run if isinstance(run, Arcs) else Arcs(*run) for run in runs)


class ArcsAndLines(AbstractProfile):
    """A closed C1 curve: runs of arcs, each joined to the next, and the last to the first, by a tangent line.

    **Arguments:**

    - `runs`: a list of `Arcs`, or of pairs (centre, radius) for single circles, counter-clockwise. One run of one
        radius is a full circle.
    """

    runs: tuple[Arcs, ...] = eqx.field(converter=_as_runs)

    def __check_init__(self):
        if not self.runs:
            raise MechanismError("ArcsAndLines has no runs; give a list of Arcs, or of pairs (centre, radius)")
        if not is_concrete(*jax.tree.leaves(self.runs)):
            return
        pieces = np.asarray(jax.jit(lambda profile: profile.pieces())(self))
        for i, end in enumerate(np.cumsum([run.radii.size + 1 for run in self.runs]) - 1):
            if len(pieces) > 1 and not pieces[end, 5] > 0.0:
                raise MechanismError(
                    f"ArcsAndLines: no line is tangent to the last arc of run {i + 1} and the first of run "
                    f"{(i + 1) % len(self.runs) + 1}, because one circle holds the other; move a centre or change a "
                    "radius, or put both arcs into one run"
                )
        turn = pieces[:, 4].sum()
        if not abs(turn - _TURN) < 1e-3:
            raise MechanismError(
                f"ArcsAndLines turns by {np.degrees(turn):.6g} degrees on its way round, not by 360: some arc covers "
                "its angles the wrong way; order the runs, and the angles in each, counter-clockwise"
            )

    def pieces(self) -> Array:
        """A row (C_x, C_y, r, angle of the normal at the start, how far it turns, length of the line) for each piece.

        The pieces of a run are its arcs, then the line to the next run; an arc has no line and a line does not turn.
        """
        centres = jnp.concatenate([run.centres() for run in self.runs])
        radii = jnp.concatenate([run.radii for run in self.runs])
        if len(radii) == 1:
            return jnp.concatenate([centres, radii[:, None], jnp.array([[0.0, _TURN, 0.0]], radii.dtype)], 1)
        last = np.cumsum([run.radii.size for run in self.runs]) - 1
        first = np.concatenate([[0], last[:-1] + 1])
        follower = np.roll(first, -1)

        D, dr = (centres[follower] - centres[last]).T, radii[last] - radii[follower]
        line = jnp.sqrt(dot(D, D) - dr * dr)
        normal = dr * D + line * stack([D[1], -D[0]])
        angle = jnp.arctan2(normal[1], normal[0])

        inner = np.delete(np.arange(len(radii)), last)  # arcs that go over into another one
        between = jnp.concatenate([run.angles for run in self.runs])
        leave = jnp.zeros_like(radii).at[last].set(angle).at[inner].set(between)
        enter = jnp.zeros_like(radii).at[first].set(jnp.roll(angle, 1)).at[inner + 1].set(between)
        sign = jnp.where(radii < 0.0, -1.0, 1.0)
        turn = sign * _wrapped(sign * (leave - enter), -_SLACK)

        none = jnp.zeros_like
        arcs = stack([*centres.T, radii, enter, turn, none(radii)], 1)
        lines = stack([*centres[last].T, radii[last], angle, none(angle), line], 1)
        order = np.argsort(np.concatenate([np.arange(len(radii)), last + 0.5]))
        return jnp.concatenate([arcs, lines])[order]

    def point(self, s: Array) -> Array:
        pieces = self.pieces()
        ends = jnp.cumsum(_lengths(pieces))
        along = _fraction(s) * ends[-1]
        k = jnp.minimum((along >= ends).sum(), len(ends) - 1)
        length = _lengths(pieces)[k]
        return _place(pieces[k], (along - ends[k] + length) / jnp.where(length == 0.0, 1.0, length))

    def closest(self, p: Array) -> Array:
        pieces = self.pieces()
        k = _choose(pieces, p)
        lengths = _lengths(pieces)
        ends = jnp.cumsum(lengths)
        return _fraction((ends[k] - lengths[k] * (1.0 - _share(pieces[k], p))) / ends[-1])

    def contact(self, p: Array) -> tuple[Array, Array]:
        pieces = self.pieces()
        piece = pieces[_choose(pieces, p)]
        arm, radius, straight = p - piece[:2], piece[2], piece[5] > 0.0
        level = _heading(piece[3])
        far, away = length_and_direction(jnp.where(straight, level, arm))
        sign = jnp.where(radius < 0.0, -1.0, 1.0)
        normal = jnp.where(straight, level, sign * away)
        return jnp.where(straight, dot(level, arm), sign * far) - radius, normal


def _lengths(pieces: Array) -> Array:
    return pieces[..., 2] * pieces[..., 4] + pieces[..., 5]


def _place(piece: Array, share: Array) -> Array:
    """The point after a share (0 to 1) of a piece."""
    level = _heading(piece[3])
    along = share * piece[5] * stack([-level[1], level[0]])
    return piece[:2] + piece[2] * _heading(piece[3] + share * piece[4]) + along


def _share(piece: Array, p: Array) -> Array:
    """Where on a piece, continued beyond its ends, the foot of p is: 0 at its start, 1 at its end."""
    arm, turn, line = p - piece[:2], piece[4], piece[5]
    straight = line > 0.0
    level = _heading(piece[3])
    side = jnp.where(straight, level, jnp.where(piece[2] < 0.0, -arm, arm))
    side = jnp.where(dot(side, side) == 0.0, level, side)
    from_middle = _wrapped(jnp.arctan2(side[1], side[0]) - piece[3] - 0.5 * turn, -np.pi)
    on_arc = 0.5 + from_middle / jnp.where(turn == 0.0, 1.0, turn)
    return jnp.where(straight, dot(stack([-level[1], level[0]]), arm) / jnp.where(straight, line, 1.0), on_arc)


def _choose(pieces: Array, p: Array) -> Array:
    """The number of the piece nearest to p."""
    pieces, p = lax.stop_gradient((pieces, p))

    def apart(piece):
        share = _share(piece, p)
        gap = _place(piece, jnp.clip(share, 0.0, 1.0)) - p
        beyond = (share < 0.0) | (share > 1.0)  # near a seam squared distances are equal to round-off, shares are not
        return dot(gap, gap) * jnp.where(beyond, 1.0 + _TIE, 1.0)

    return jnp.argmin(jax.vmap(apart)(pieces))


def cam_profile(base_radius, lift, top_radius, transition_radius, top_angle) -> ArcsAndLines:
    """A symmetric cam with its lobe along x: base circle about the origin, tangent line, transition arc, top circle,
    transition arc, tangent line (Sol 1983, figure 9.4).

    **Arguments:**

    - `base_radius`: m. The farthest point of the cam is at `base_radius + lift` from the origin.
    - `top_radius`: of the top circle, m.
    - `transition_radius`: of the arcs between top circle and lines, m.
    - `top_angle`: half the angle that the top circle covers, rad.
    """
    base, height, top, small, angle = (
        as_array(value) for value in (base_radius, lift, top_radius, transition_radius, top_angle)
    )
    start = stack([base + height - top, 0.0]) + (top - small) * stack([jnp.cos(angle), -jnp.sin(angle)])
    lobe = Arcs(start, stack([small, top, small]), stack([-angle, angle]))
    return ArcsAndLines([Arcs(jnp.zeros_like(start), base), lobe])


@lru_cache
def _spline(count: int) -> np.ndarray:
    """The matrix (4 m, m) that makes the coefficients of 1, f, f^2 and f^3 in each interval from P."""
    here = np.eye(count)
    ahead = np.roll(here, 1, axis=1)
    bend = np.linalg.solve(4.0 * here + ahead + ahead.T, 6.0 * (ahead - 2.0 * here + ahead.T))
    powers = here, ahead - here - (2.0 * bend + ahead @ bend) / 6.0, bend / 2.0, (ahead @ bend - bend) / 6.0
    return np.stack(powers, 1).reshape(4 * count, count)


def _cubic(s: Array, coefficients: Array) -> Array:
    along = s * len(coefficients)
    whole = lax.stop_gradient(jnp.floor(along))
    f = along - whole
    a, b, c, d = coefficients[whole.astype(int) % len(coefficients)]
    return a + f * (b + f * (c + f * d))


class SplineProfile(AbstractProfile):
    """A closed C2 cubic spline.

    **Arguments:**

    - `points`: (m, 2), m, four or more, counter-clockwise and about evenly spaced (s grows by 1/m from each to the
        next: uneven spacing makes the curve wavy). Do not repeat the first one at the end.
    """

    points: Array = eqx.field(converter=as_array)

    def __check_init__(self):
        shape = self.points.shape
        if len(shape) != 2 or shape[0] < 4 or shape[1] != 2:
            raise MechanismError(f"SplineProfile has points of shape {shape}; give (m, 2) with m of 4 or more")
        if not is_concrete(self.points):
            return
        x, y = np.asarray(self.points).T
        area = 0.5 * (x * np.roll(y, -1) - np.roll(x, -1) * y).sum()
        if not area > 0.0:
            raise MechanismError(
                f"the points of SplineProfile enclose the area {area:.6g} m2; walk them counter-clockwise, for example "
                "points[::-1]"
            )

    def _coefficients(self) -> Array:
        """(m, 4, 2)."""
        make = jnp.asarray(_spline(len(self.points)), self.points.dtype)
        return jnp.matmul(make, self.points, precision="highest").reshape(-1, 4, 2)

    def point(self, s: Array) -> Array:
        return _cubic(s, self._coefficients())

    def closest(self, p: Array) -> Array:
        return _fraction(nearest(_cubic, (0.0, 1.0, 4 * len(self.points) + 1), self._coefficients(), p))
