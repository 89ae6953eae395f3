"""The same tree of revolute joints for diffmb and for the programs it is measured against.

    forward     vd  = M(q)^-1 (tau - c(q, v))                gradient    d(w . vd) / d(q, v, tau)
    inverse     tau = M(q) vd + c(q, v)                      mass_matrix M(q)

A `Tree` is plain numpy; each function below turns it into one contender's own model. A contender numbers joints in
its own way: `order[k]` is the tree's number of its joint k, and states are put in that order before any clock starts.
frax, Pinocchio, MuJoCo and MJX are optional; `contenders` leaves out those that are not installed.
"""

import dataclasses
import importlib.util
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

OPERATIONS = ("forward", "gradient", "inverse", "mass_matrix")
GRAVITY = 9.81


@dataclasses.dataclass(frozen=True)
class Tree:
    """n bodies on revolute joints; body i hangs on body `parent[i]` (-1: the ground), at `offset[i]` in its frame."""

    name: str
    parent: tuple[int, ...]
    axis: np.ndarray
    offset: np.ndarray
    mass: np.ndarray
    com: np.ndarray
    inertia: np.ndarray

    @property
    def n(self) -> int:
        return len(self.parent)

    def children(self, i: int) -> list[int]:
        return [k for k, p in enumerate(self.parent) if p == i]

    def depth(self) -> int:
        level: list[int] = []
        for parent in self.parent:
            level.append(1 + (level[parent] if parent >= 0 else 0))
        return max(level)

    def depth_first(self) -> list[int]:
        order, stack = [], self.children(-1)[::-1]
        while stack:
            order.append(stack.pop())
            stack += self.children(order[-1])[::-1]
        return order


def _tree(name: str, parent: list[int], offset: np.ndarray) -> Tree:
    """Axes x, y, z in turn; masses 1.0 ... 1.9 kg."""
    n = len(parent)
    return Tree(
        name=name,
        parent=tuple(parent),
        axis=np.eye(3)[np.arange(n) % 3],
        offset=offset,
        mass=1.0 + 0.1 * np.arange(n) % 1,
        com=np.tile([0.01, 0.02, 0.15], (n, 1)),
        inertia=np.tile(np.diag([0.01, 0.012, 0.004]), (n, 1, 1)),
    )


def chain(n: int) -> Tree:
    return _tree("chain", list(range(-1, n - 1)), np.array([[0.0, 0.0, 0.3 if i else 0.0] for i in range(n)]))


def binary_tree(n: int) -> Tree:
    """Numbered breadth first: the children of i are 2 i + 1 and 2 i + 2."""
    offset = [[0.1 if i % 2 else -0.1, 0.0, 0.3] if i else [0.0, 0.0, 0.0] for i in range(n)]
    return _tree("tree", [(i + 1) // 2 - 1 for i in range(n)], np.array(offset))


TREES: dict[str, Callable[[int], Tree]] = {"chain": chain, "tree": binary_tree}


@dataclasses.dataclass(frozen=True)
class Contender:
    """One program. `functions[op](model, q, v, x)` is one evaluation, x = tau or vd; jax compiles it if `traced`."""

    name: str
    traced: bool
    order: np.ndarray
    model: Any
    functions: dict[str, Callable[..., Any]]
    options: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)  # for XLA, by operation

    def states(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """Arrays over the tree's joints (last axis), in this contender's order."""
        return [np.ascontiguousarray(a[..., self.order]) for a in arrays]

    def restore(self, op: str, result: Any) -> np.ndarray:
        """A result in the tree's order; a gradient as q, v and tau parts one after the other."""
        back = np.argsort(self.order)
        if op == "mass_matrix":
            return np.asarray(result)[..., back, :][..., :, back]
        if op == "gradient":
            return np.concatenate([np.asarray(part)[..., back] for part in result], -1)
        return np.asarray(result)[..., back]


def weights(n: int) -> np.ndarray:
    """w in the scalar w . vd whose gradient is measured."""
    return np.cos(1.0 + np.arange(n))


def _gradient(forward: Callable[..., jax.Array], w: np.ndarray) -> Callable[..., tuple[jax.Array, ...]]:
    def scalar(q: jax.Array, v: jax.Array, tau: jax.Array, model: Any) -> jax.Array:
        return jnp.dot(jnp.asarray(w, q.dtype), forward(model, q, v, tau))

    return lambda model, q, v, tau: jax.grad(scalar, argnums=(0, 1, 2))(q, v, tau, model)


def diffmb(tree: Tree) -> Contender:
    import diffmb as mb

    names = [f"body{i}" for i in range(tree.n)]
    where = [names[p] if p >= 0 else "world" for p in tree.parent]
    bodies = [mb.RigidBody(names[i], tree.mass[i], tree.com[i], tree.inertia[i]) for i in range(tree.n)]
    joints = [
        mb.Revolute(f"joint{i}", mb.Marker(where[i], tree.offset[i]), names[i], axis=tree.axis[i])
        for i in range(tree.n)
    ]
    model = mb.compile(mb.Mechanism(bodies=bodies, joints=joints, gravity=(0, 0, -GRAVITY)))
    order = np.array([names.index(body) for body in model.topology.bodies])
    functions = {
        "forward": lambda m, q, v, tau: mb.forward_dynamics(m, q, v, tau),
        "gradient": _gradient(lambda m, q, v, tau: mb.forward_dynamics(m, q, v, tau), weights(tree.n)[order]),
        "inverse": lambda m, q, v, vd: mb.inverse_dynamics(m, q, v, vd),
        "mass_matrix": lambda m, q, v, x: mb.mass_matrix(m, q),
    }
    return Contender("diffmb", True, order, model, functions)


def pinocchio(tree: Tree) -> Contender:
    """Joints are added depth first: with any other order Pinocchio 4.1 returns wrong mass matrices and derivatives."""
    import pinocchio as pin

    model, order, joint_of = pin.Model(), tree.depth_first(), {-1: 0}
    for i in order:
        placement = pin.SE3(np.eye(3), tree.offset[i])
        kind = pin.JointModelRevoluteUnaligned(tree.axis[i])
        joint_of[i] = model.addJoint(joint_of[tree.parent[i]], kind, placement, f"joint{i}")
        inertia = pin.Inertia(tree.mass[i], tree.com[i], tree.inertia[i])
        model.appendBodyToJoint(joint_of[i], inertia, pin.SE3.Identity())
    data, w = model.createData(), weights(tree.n)[np.array(order)]

    def gradient(m: Any, q: np.ndarray, v: np.ndarray, tau: np.ndarray) -> tuple[np.ndarray, ...]:
        vd_q, vd_v, vd_tau = pin.computeABADerivatives(m, data, q, v, tau)
        return w @ vd_q, w @ vd_v, w @ vd_tau

    def mass_matrix(m: Any, q: np.ndarray, v: np.ndarray, x: np.ndarray) -> np.ndarray:
        return pin.crba(m, data, q)

    functions = {
        "forward": lambda m, q, v, tau: pin.aba(m, data, q, v, tau),
        "gradient": gradient,
        "inverse": lambda m, q, v, vd: pin.rnea(m, data, q, v, vd),
        "mass_matrix": mass_matrix,
    }
    return Contender("pinocchio", False, np.array(order), model, functions)


def _say(numbers: np.ndarray) -> str:
    return " ".join(repr(float(number)) for number in numbers)


def _urdf(tree: Tree) -> str:
    """frax reads URDF only."""
    text = ['<robot name="tree"><link name="ground"><inertial><mass value="1"/>']
    text.append('<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>')
    for i, parent in enumerate(tree.parent):
        xx, yy, zz = np.diag(tree.inertia[i])
        text.append(f'<link name="body{i}"><inertial><origin xyz="{_say(tree.com[i])}"/><mass value="{tree.mass[i]}"/>')
        text.append(f'<inertia ixx="{xx}" iyy="{yy}" izz="{zz}" ixy="0" ixz="0" iyz="0"/></inertial></link>')
        text.append(f'<joint name="joint{i}" type="revolute"><origin xyz="{_say(tree.offset[i])}"/>')
        text.append(f'<parent link="{f"body{parent}" if parent >= 0 else "ground"}"/><child link="body{i}"/>')
        text.append(f'<axis xyz="{_say(tree.axis[i])}"/>')
        text.append('<limit lower="-100" upper="100" effort="100" velocity="100"/></joint>')
    return "\n".join([*text, "</robot>"])


def frax(tree: Tree) -> Contender:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends environment variables; the run is the same for all contenders
        from frax import Robot

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tree.urdf"
            path.write_text(_urdf(tree))
            robot = Robot(str(path))
    order = np.array([int(name.removeprefix("joint")) for name in robot.joint_names])
    up = jnp.array([0.0, 0.0, GRAVITY, 0.0, 0.0, 0.0])
    functions = {
        "forward": lambda m, q, v, tau: robot.forward_dynamics(q, v, tau, None),
        "gradient": _gradient(lambda m, q, v, tau: robot.forward_dynamics(q, v, tau, None), weights(tree.n)[order]),
        "inverse": lambda m, q, v, vd: robot.rnea(q, v, vd, gravity_accel=up, F_ext=None),
        "mass_matrix": lambda m, q, v, x: robot.mass_matrix(q),
    }
    return Contender("frax", True, order, None, functions)


def _mjcf(tree: Tree) -> str:
    def body(i: int) -> str:
        I = np.diag(tree.inertia[i])
        return (
            f'<body name="body{i}" pos="{_say(tree.offset[i])}">'
            f'<joint name="joint{i}" type="hinge" axis="{_say(tree.axis[i])}"/>'
            f'<inertial pos="{_say(tree.com[i])}" mass="{tree.mass[i]}" diaginertia="{_say(I)}"/>'
            + "".join(map(body, tree.children(i)))
            + "</body>"
        )

    return (
        f'<mujoco><compiler angle="radian"/><option gravity="0 0 {-GRAVITY}"><flag constraint="disable"/></option>'
        f"<worldbody>{''.join(map(body, tree.children(-1)))}</worldbody></mujoco>"
    )


def mjx(tree: Tree) -> Contender:
    """MJX's `forward` and `inverse` with constraints switched off; it has no call for the smooth dynamics alone.

    On CPU (jax 0.10.2, MJX 3.17) XLA's fusion repeats the work of MJX's forward pass along a chain: 8 times longer per
    body, 0.19 s per evaluation at n = 7, however it is called, while the gradient is not affected. That is not MJX's
    speed: deep trees are compiled without fusion, which takes 39 us.
    """
    import mujoco
    from mujoco import mjx

    compiled = mujoco.MjModel.from_xml_string(_mjcf(tree))
    model = mjx.put_model(compiled)
    empty = mjx.make_data(compiled)

    def forward(m: Any, q: jax.Array, v: jax.Array, tau: jax.Array) -> jax.Array:
        return mjx.forward(m, empty.replace(qpos=q, qvel=v, qfrc_applied=tau)).qacc

    def mass_matrix(m: Any, q: jax.Array, v: jax.Array, x: jax.Array) -> jax.Array:
        return mjx.full_m(m, mjx.crb(m, mjx.com_pos(m, mjx.kinematics(m, empty.replace(qpos=q)))))

    functions = {
        "forward": forward,
        "gradient": _gradient(forward, weights(tree.n)[np.array(tree.depth_first())]),
        "inverse": lambda m, q, v, vd: mjx.inverse(m, empty.replace(qpos=q, qvel=v, qacc=vd)).qfrc_inverse,
        "mass_matrix": mass_matrix,
    }
    options = {"forward": {"xla_disable_hlo_passes": "fusion"}} if tree.depth() > 4 else {}
    return Contender("mjx", True, np.array(tree.depth_first()), model, functions, options)


BUILDERS = {"diffmb": diffmb, "pinocchio": pinocchio, "frax": frax, "mjx": mjx}


def installed() -> list[str]:
    needs = {"diffmb": "diffmb", "pinocchio": "pinocchio", "frax": "frax", "mjx": "mujoco"}
    return [name for name in BUILDERS if importlib.util.find_spec(needs[name])]
