"""Composite: an assembly of connections with massless nodes inside (Sol 1983, ch. 7).

The ends of its elements are its markers "0", "1", ... and its nodes. With w the coordinates of the nodes in the frame
of marker "0", Q the load of all elements (and of what acts on the nodes from outside) along wd,

    Q(t, x, w, z, u) = 0            elastic elements: w from the equilibrium, by Newton's method                     (1)
    Q(t, x, xd, w, wd, z, u) = 0    damped ones: w are states, and (2) gives their rates                             (2)

solved and differentiated by the implicit function theorem (`_roots.py`). In both cases w stands in the states: for (1)
it moves with the equilibrium, and is where Newton's method starts the next time, so that an assembly with several
equilibria stays in the one that it is in. The other elements' loads on the markers follow by virtual work.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._bodies._marker import Marker
from .._errors import MechanismError
from .._names import nearest
from .._roots import root
from .._spatial._axis import as_array, is_concrete
from .._spatial._pose import Pose, quat_exp, quat_to_rotation
from .._spatial._twist import body_twist
from ._abstract import AbstractConnection, AbstractSpan, answer, exerted, stored


class Node(eqx.Module):
    """A massless node of a `Composite`.

    **Arguments:**

    - `position`: about where it is, in the frame of marker "0", m; from there its equilibrium is looked for.
    - `force`: that acts on it from outside, in the axes of marker "0", N.
    - `turns`: whether it is a frame, which takes moments, or a point; static. Beams need frames.
    """

    position: Array = eqx.field(converter=as_array)
    force: Array = eqx.field(converter=as_array, default=(0.0, 0.0, 0.0))
    turns: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        for what, value in (("position", self.position), ("force", self.force)):
            if value.shape != (3,):
                raise MechanismError(f"the {what} of a node has shape {value.shape}; give three numbers")

    @property
    def size(self) -> int:
        return 6 if self.turns else 3

    def start(self) -> Array:
        return jnp.concatenate([self.position, jnp.zeros(self.size - 3)])

    def pose(self, w: Array) -> Pose:
        turn = quat_to_rotation(quat_exp(w[3:])) if self.turns else jnp.eye(3, dtype=w.dtype)
        return Pose(turn, w[:3])


class Composite(AbstractSpan):
    """Connections in series and in parallel, with massless nodes between them.

    **Arguments:**

    - `markers`: where the assembly is attached; its elements call them "0", "1", ...
    - `nodes`: `Node`s, or just positions, by name.
    - `elements`: connections of two ends each, which are names of nodes or markers of the assembly, or `mb.Marker`s on
        them. States and inputs of the elements are those of the composite, in their order, behind the nodes' w.
    - `damped`: whether every node is held by dampers; then nodes creep to their equilibrium instead of being in it.
        Elements of an assembly that is not damped must have no dampers at its nodes. Static.
    """

    nodes: tuple[Node, ...]
    elements: tuple[AbstractConnection, ...]
    ends: tuple[tuple[int, int], ...] = eqx.field(static=True)
    damped: bool = eqx.field(static=True)

    def __init__(self, name: str, markers: Any, nodes: Mapping[str, Any], elements: Sequence, *, damped: bool = False):
        self.name, self.damped = name, damped
        self.markers = tuple(m if isinstance(m, Marker) else Marker(m) for m in markers)
        self.nodes = tuple(node if isinstance(node, Node) else Node(node) for node in nodes.values())
        self.elements = tuple(elements)
        names = [*map(str, range(len(self.markers))), *nodes]
        title = f"Composite {name!r}"
        for part in self.elements:
            if not isinstance(part, AbstractConnection) or part.follows:
                raise MechanismError(f"{title} has an element {part!r}; give connections of two markers")
            for marker in part.markers:
                if marker.body not in names:
                    where = f"element {part.name!r} of {title} ends at {marker.body!r}, which is no node or marker"
                    raise MechanismError(f"{where}; {nearest(marker.body, names)}")
        self.ends = tuple((names.index(e.first.body), names.index(e.second.body)) for e in self.elements)
        free = set(range(len(self.markers), len(names))) - {k for pair in self.ends for k in pair}
        if free:
            raise MechanismError(f"no element of {title} holds the node {names[min(free)]!r}; remove it, or hold it")
        if self.nu and not damped:
            raise MechanismError(f"{title} has elements with inputs; hold its nodes by dampers, and set damped=True")

    def __check_init__(self):
        if is_concrete(*jax.tree.leaves((self.nodes, self.elements))):
            self._check_dampers()

    def _check_dampers(self) -> None:
        """Whether dampers hold all nodes (`damped`) or none."""
        still = tuple(Pose(jnp.eye(3), 1.0 + m.position) for m in self.markers[1:])  # any other place would do
        xd, u, z = jnp.zeros((len(still), 6)), jnp.zeros(self.nu), self.start()
        rate = lambda wd: self._loads(jnp.zeros(()), still, xd, self._split(z)[0], wd, self._split(z)[1], u)[1]
        D = np.asarray(jax.jacfwd(rate)(jnp.zeros(self._width)))
        size = np.abs(D).max(initial=0.0)
        if self.damped and (size == 0.0 or np.linalg.cond(D) > 1e12):
            raise MechanismError(f"Composite {self.name!r} is damped=True, but dampers do not hold all of its nodes")
        if not self.damped and size > 0.0:
            raise MechanismError(f"Composite {self.name!r} has dampers at its nodes; set damped=True")

    @property
    def _width(self) -> int:
        return sum(node.size for node in self.nodes)

    @property
    def nz(self) -> int:
        return self._width + sum(e.nz for e in self.elements)

    @property
    def nu(self) -> int:
        return sum(e.nu for e in self.elements)

    def start(self) -> Array:
        return jnp.concatenate([*(node.start() for node in self.nodes), *(e.start() for e in self.elements)])

    def _split(self, z: Array) -> tuple[Array, Array]:
        return z[: self._width], z[self._width :]

    def _frames(self, x: tuple[Pose, ...], w: Array) -> list[Pose]:
        """The poses of all markers and nodes in marker "0"."""
        cuts = np.cumsum([0, *(node.size for node in self.nodes)])
        own = [node.pose(w[a:b]) for node, a, b in zip(self.nodes, cuts[:-1], cuts[1:], strict=True)]
        return [Pose.identity(w.dtype), *x, *own]

    def _relative(self, x: tuple[Pose, ...], w: Array) -> list[Pose]:
        frames = self._frames(x, w)
        pairs = zip(self.elements, self.ends, strict=True)
        return [(frames[a] @ e.first.pose).inverse() @ (frames[b] @ e.second.pose) for e, (a, b) in pairs]

    def _moving(self, x: tuple[Pose, ...], w: Array, xd: Array, wd: Array) -> tuple[list[Pose], list[Array]]:
        rel, rate = jax.jvp(self._relative, (x, w), (self.flow(x, xd), wd))
        return rel, [body_twist(X, Xdot) for X, Xdot in zip(rel, rate, strict=True)]

    def _parts(self, z: Array, u: Array) -> list[tuple[AbstractConnection, Array, Array]]:
        """The elements with their states and inputs."""
        found, a, b = [], 0, 0
        for e in self.elements:
            found.append((e, z[a : a + e.nz], u[b : b + e.nu]))
            a, b = a + e.nz, b + e.nu
        return found

    @eqx.filter_jit  # it is asked for in many places, and traced once
    def _loads(self, t, x, xd, w, wd, z, u) -> tuple[Array, Array]:
        """Loads along xd, (k, 6), and Q along wd."""
        rel = self._relative(x, w)
        twists, pull = jax.vjp(lambda xd, wd: self._moving(x, w, xd, wd)[1], xd, wd)
        parts = zip(self._parts(z, u), rel, twists, strict=True)
        outer, inner = pull([exerted(e, t, X, V, own_z, own_u) for (e, own_z, own_u), X, V in parts])
        return outer, inner + self._given(w)

    def _given(self, w: Array) -> Array:
        given = [jnp.concatenate([n.force, jnp.zeros(n.size - 3)]) for n in self.nodes]
        return jnp.concatenate(given).astype(w.dtype)

    @eqx.filter_jit
    def nodes_at(self, t: Array, x: tuple[Pose, ...], xd: Array, z: Array, u: Array) -> tuple[Array, Array]:
        """(w, wd): (1) and its rate, or the states and (2)."""
        guess, own = self._split(z)
        still = jnp.zeros_like(guess)
        if self.damped:
            balance = lambda wd: self._loads(t, x, xd, guess, wd, own, u)[1]
            return guess, root(balance, still)
        place = lambda t, x, own: root(lambda w: self._loads(t, x, 0.0 * xd, w, still, own, u)[1], guess)
        rates = jnp.ones_like(t), self.flow(x, xd)
        if not own.shape[0]:
            return jax.jvp(lambda t, x: place(t, x, own), (t, x), rates)
        w = place(t, x, own)
        zd = lambda wd: self._element_rates(t, x, xd, w, wd, own, u)
        move = lambda wd: jax.jvp(place, (t, x, own), (*rates, zd(wd)))[1]
        return w, root(lambda wd: move(wd) - wd, move(still))

    def _element_rates(self, t, x, xd, w, wd, z, u) -> Array:
        rel, twists = self._moving(x, w, xd, wd)
        parts = zip(self._parts(z, u), rel, twists, strict=True)
        return jnp.concatenate([answer(e, type(e).zdot, t, X, V, own, inputs) for (e, own, inputs), X, V in parts])

    def load(self, t: Array, x: tuple[Pose, ...], xd: Array, z: Array, u: Array) -> Array:
        w, wd = self.nodes_at(t, x, xd, z, u)
        return self._loads(t, x, xd, w, wd, self._split(z)[1], u)[0]

    def zdot(self, t: Array, x: tuple[Pose, ...], xd: Array, z: Array, u: Array) -> Array:
        w, wd = self.nodes_at(t, x, xd, z, u)
        return jnp.concatenate([wd, self._element_rates(t, x, xd, w, wd, self._split(z)[1], u)])

    def energy(self, t: Array, x: tuple[Pose, ...], z: Array) -> Array:
        still, none = jnp.zeros((len(x), 6), z.dtype), jnp.zeros(self.nu, z.dtype)
        w = self._split(z)[0] if self.damped else self.nodes_at(t, x, still, z, none)[0]
        rel = self._relative(x, w)
        parts = zip(self._parts(self._split(z)[1], none), rel, strict=True)
        return sum((stored(e, t, X, own) for (e, own, _), X in parts), jnp.zeros((), z.dtype))

    def _total(self, what: str, t, x, xd, z, u) -> tuple[Array, Array]:
        """The sum over the elements, and wd."""
        w, wd = self.nodes_at(t, x, xd, z, u)
        parts = zip(self._parts(self._split(z)[1], u), *self._moving(x, w, xd, wd), strict=True)
        powers = [answer(e, getattr(type(e), what), t, X, V, own, inputs) for (e, own, inputs), X, V in parts]
        return sum(powers, jnp.zeros((), z.dtype)), wd

    def dissipation(self, t: Array, x: tuple[Pose, ...], xd: Array, z: Array, u: Array) -> Array:
        return self._total("dissipation", t, x, xd, z, u)[0]

    def supply(self, t: Array, x: tuple[Pose, ...], xd: Array, z: Array, u: Array) -> Array:
        total, wd = self._total("supply", t, x, xd, z, u)
        return total + self._given(wd) @ wd
