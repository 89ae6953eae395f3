"""Programs of small arrays as one kernel: every rule against what JAX does with arrays, and whole programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed import bricard, four_bar
from jax import lax
from jax.extend.core import jaxpr_as_fun

import diffmb as mb
from diffmb import _batch, _motion
from diffmb._definite import definite
from diffmb._pseudo_inverse import pivoted_cholesky
from diffmb._spatial._vector import cross, dot, matmul, matvec, outer
from diffmb._straight._graph import Graph, TooLong
from diffmb._straight._kernel import Straight, straight
from diffmb._straight._machine import by_machine
from diffmb._straight._moves import Unknown
from diffmb._straight._schedule import NOTHING, ONE, SUM, SUMS, schedule

RNG = np.random.default_rng(3)
A, B, V = RNG.normal(size=(4, 3)), RNG.normal(size=(3, 4)), RNG.normal(size=5)
S = A @ A.T + np.eye(4)


def both(fun, *args):
    """Results by one kernel, and by arrays."""
    args = [jnp.asarray(a) for a in args]
    program = jax.make_jaxpr(fun)(*args)
    kernel = straight(program, 100_000)
    assert kernel is not None, "no kernel was made"
    return [jax.jit(f)(*args) for f in (kernel.over(1), jaxpr_as_fun(program))]


def same(fun, *args, tolerance=1e-13):
    found, wanted = both(fun, *args)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


RULES = {
    "arithmetic": (lambda a, b: (a + b.T) * a / (2.0 + jnp.abs(b.T)) - a**3 + b.T**-2, A, B),
    "functions": (lambda v: jnp.sin(v) + jnp.cos(v) * jnp.tan(v) + jnp.exp(v) - jnp.log1p(v * v) + jnp.tanh(v), V),
    "roots": (lambda v: jnp.sqrt(v * v) + lax.rsqrt(1.0 + v * v) + jnp.cbrt(v) + jnp.arctan2(v, v[::-1]), V),
    "steps": (lambda v: jnp.floor(v) + jnp.ceil(v) + jnp.sign(v) + jnp.clip(v, -0.5, 0.5), V),
    "choices": (lambda v: jnp.where((v > 0) & ~(v > 1) | (v == v[0]), v, -2.0 * v), V),
    "numbers of another kind": (lambda v: ((v > 0).astype(int) * 3, v > 0, jnp.isfinite(v)), V),
    "sums": (lambda a: (a.sum(), a.sum(1), a.max(0), a.min(1), a.prod(0), (a > 0).all(0), (a > 0).any(1)), A),
    "first": (lambda a: (jnp.argmax(a, 1), jnp.argmin(a, 0)), A),
    "products": (lambda a, b: (a @ b, jnp.einsum("ij,kj->kij", a, b.T), jnp.tensordot(a, b.T, 2), a @ b[:, 0]), A, B),
    "shapes": (lambda a: (2.0 * a.reshape(2, 6), a.T + 1.0, a[::-1, 1:], a[:, 1] * 2.0, jnp.tile(a, 2) + 1.0), A),
    "joins": (lambda a, v: (jnp.concatenate([a, 2 * a]), jnp.stack([v, v * v]), jnp.pad(v + 1, (1, 2))), A, V),
    "parts": (lambda v: tuple(v * 2) + tuple(jnp.split(v + 1, [2])), V),
    "picks": (lambda a: a[np.array([2, 0, 2])] + a[np.array([1, 1, 3]), np.array([0, 2, 1])][:, None], A),
    "places": (lambda a, v: a.at[1].set(v[:3]).at[np.array([0, 0])].add(1.0).at[2, 1].add(v[0]), A, V),
    "loops": (lambda v: lax.fori_loop(0, 4, lambda k, x: x * 0.5 + v[k], v), V),
    "scans": (lambda a: lax.scan(lambda c, x: (c + x, c * x), jnp.ones(3), a, reverse=True), A),
    "index in a loop": (lambda a: lax.fori_loop(0, 3, lambda k, x: x.at[k, 0].add(a[k + 1, 1]), a), A),
    "cholesky": (lambda s, v: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(s, lower=True), v[:4]), S, V),
    "triangle above": (lambda s, a: jax.scipy.linalg.solve_triangular(s, a), S, A),
    "triangle on the right": (lambda s, a: lax.linalg.triangular_solve(s, a.T, lower=True), S, A),
    "triangle turned": (lambda s, a: lax.linalg.triangular_solve(s, a, left_side=True, transpose_a=True), S, A),
    "either": (lambda a, b: lax.cond(a[0, 0] > b[0, 0], lambda: (a, b), lambda: (2.0 * a, b - 1.0)), A, B),
    "or": (lambda a, b: lax.cond(a[0, 0] <= b[0, 0], lambda: (a, b), lambda: (2.0 * a, b - 1.0)), A, B),
    "systems": (lambda s, a: definite(s[..., None]).solve(a[..., None]), S, A),
    "pivots": (lambda a: pivoted_cholesky((a @ a.T)[..., None]), A),
    "short products": (lambda a, b: (matmul(a[..., None], b[..., None]), matvec(a[..., None], b[:, :1])), A, B),
    "dot products": (lambda a: (dot(a[0], a[1]), dot(a, a), outer(a[0], a[1])), A),
    "nothing": (lambda a, v: (matmul(a[:, :0], a[:0]), dot(a[:, :0], a[:, :0]), a[:, :0] @ a[:0], v * 2.0,
                              jnp.concatenate([v[:0], v]), outer(v[:0], v), a[:0] + 1.0, v.at[:0].set(1.0)), A, V),
    "cross products": (lambda a: (cross(a[0], a[1]), jax.vmap(cross)(a, a[::-1])), A),
    "known results": (lambda v: (jnp.zeros(3), v, jnp.concatenate([v[:2], 2 * v[:1], jnp.ones(1)])), V),
    "one of three": (lambda a, v: lax.select_n((v > 0).astype(np.int32) + (v > 1), v, 2.0 * v, v * v + a[0, 0]), A, V),
    "one of two by number": (lambda v: lax.select_n((v > 0).astype(np.int32), v, 2.0 * v), V),
    "one number": (lambda v: v[0] * v[1], V),
    "other derivatives": (lambda v: jax.vjp(lambda v: jnp.sum(jnp.sin(v) * v[0]), v)[1](1.0), V),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_rules(name):
    same(*RULES[name])


@pytest.mark.parametrize("name", RULES)
def test_rules_side_by_side(name):
    """Five samples in one kernel, along the last axis; the first of several arguments is shared by all."""
    fun, *args = RULES[name]
    args = [jnp.asarray(a) for a in args]
    own = lambda *xs: jax.tree.map(lambda y: jnp.asarray(y)[..., None], fun(*(x[..., 0] for x in xs)))
    kernel = Straight(jax.make_jaxpr(own)(*(a[..., None] for a in args)), 100_000)
    shared = len(args) - 1
    spread = lambda a: a[..., None] * (1.0 + 0.03 * jnp.arange(5))
    wide = [a[..., None] if k < shared else spread(a) for k, a in enumerate(args)]
    found = jax.jit(kernel.over(5))(*wide)
    axes = [None] * shared + [-1]
    each = lambda *xs: jax.tree.leaves(fun(*xs))
    wanted = jax.vmap(each, axes, -1)(*(a[..., 0] if k < shared else a for k, a in enumerate(wide)))
    for a, b in zip(found, wanted, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", RULES)
def test_rules_by_machine(name):
    """By the kernel that reads from a table what to do, alone and in a loop."""
    fun, *args = RULES[name]
    args = [jnp.asarray(a) for a in args]
    kernel = straight(jax.make_jaxpr(fun)(*args), 100_000)
    assert kernel is not None
    machine = by_machine(kernel)
    assert machine is not None, "the machine cannot do it"
    repeated = lambda *args: lax.fori_loop(0, 3, lambda _, found: machine(*args), machine(*args))
    for found in (jax.jit(machine)(*args), jax.jit(repeated)(*args)):
        for a, b in zip(found, jax.jit(kernel.over(1))(*args), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a, b, rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize(
    "fun",
    [
        lambda v: v.astype(np.float32) * 2 + v[0].astype(np.float32),  # two kinds of floating numbers
        lambda v: (v > 0).astype(int) // 2 + v.astype(int),  # whole numbers that are not whole by themselves
        lambda v: jnp.arange(3.0),  # nothing to do
    ],
)
def test_machine_refuses(fun):
    kernel = straight(jax.make_jaxpr(fun)(jnp.asarray(V)), 100_000)
    assert kernel is None or by_machine(kernel) is None


def test_order_of_the_machine():
    """Four at a time, of one kind and none made of another; products that are used once go into sums."""
    fun = lambda a, v: (jnp.sin(a @ a.T) @ jnp.cos(a), (a * a).sum() / v, a @ v[:3] - v[:4])
    program = Straight(jax.make_jaxpr(fun)(A, V), 10_000)
    plan = schedule(program.graph, program.made, program.results)
    given, graph = {NOTHING, ONE, *program.given, *program.graph.fixed}, program.graph
    for kind, of, made in zip(plan.kind, plan.of, plan.made, strict=True):
        assert given.issuperset(of.ravel().tolist())
        own = [n for n in made.tolist() if n != NOTHING]
        assert own and all((graph.primitive[n] in SUMS) == (plan.kinds[kind] is SUM) for n in own)
        assert given.isdisjoint(own)
        given |= set(own)
    assert given.issuperset(program.results)
    products = sum(graph.primitive[n] is lax.mul_p for n in program.made)
    assert products > 30 and (plan.made != NOTHING).sum() <= len(program.made) - products // 2


def test_a_product_that_is_used_twice():
    """It is not made anew in each sum; nor is one that is a result itself."""
    same = lambda v: (v[0] * v[1] + v[2], v[0] * v[1] - v[2], v[1] * v[2], v[1] * v[2] + v[3], -(v[0] * v[3]))
    program = Straight(jax.make_jaxpr(same)(V), 100)
    machine = by_machine(program)
    assert machine is not None
    for a, b in zip(jax.jit(machine)(jnp.asarray(V)), same(V), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-15)


def test_zeros_keep_their_signs_in_the_machine():
    """Also where its constants are those that XLA could count up to."""
    for fun in (
        lambda v: (v[0] * v[1], -v[1], v[0] + v[1] * v[1], jnp.arctan2(v[0] * v[1], -1.0 - v[0])),
        lambda v: (v[0] * v[1], -v[1]),
        lambda v: (v[0] * v[1], 2.0 * v[1], 3.0 * v[1]),
    ):
        machine = by_machine(Straight(jax.make_jaxpr(fun)(V), 100))
        assert machine is not None
        for v in ([0.0, -2.0], [-0.0, 3.0], [0.0, 0.0], [-0.0, -0.0]):
            v = jnp.asarray([*v, 0.0, 0.0, 0.0])
            for a, b in zip(jax.jit(machine)(v), fun(v), strict=True):
                np.testing.assert_array_equal([a, jnp.copysign(1.0, a)], [b, jnp.copysign(1.0, b)])


def test_many_results_side_by_side():
    """XLA refuses kernels that hold an array of 256 kB, so these come out in pieces."""
    program = jax.make_jaxpr(lambda x: (x[:, None] * x[None], x > 0.0))(jnp.zeros((25, 1)))
    kernel, x = straight(program, 100_000), jnp.asarray(RNG.normal(size=(25, 100)))
    assert kernel is not None and len(kernel.pieces(100)) > 2
    found, positive = jax.jit(kernel.over(100))(x)
    np.testing.assert_array_equal(found, x[:, None] * x[None])
    np.testing.assert_array_equal(positive, x > 0.0)


def test_single_precision():
    same(lambda a, b: jnp.sin(a) @ b, A.astype(np.float32), B.astype(np.float32), tolerance=2e-6)


def test_arguments_that_are_constants():
    """XLA would end the process if an argument of the kernel were a constant: none of these may be one to it."""
    fun = lambda a, v: (jnp.sin(a) @ a.T + v[0], (v > 0) | (v < -1))
    program = jax.make_jaxpr(fun)(A, V)
    kernel = Straight(program, 1000).over(1)
    alone = Straight(jax.make_jaxpr(lambda v: jnp.cos(v) * v)(V), 1000).over(1)
    a, v = jnp.asarray(A), jnp.asarray(V)
    wanted = jaxpr_as_fun(program)(a, v)
    turns = lambda f, x: lax.fori_loop(0, 3, lambda _, x: x + f(x), x)
    found = [
        jax.jit(lambda: kernel(a, v))(),
        jax.jit(lambda a: kernel(a, v))(a),
        jax.jit(lambda v: kernel(a, v))(v),
        jax.jit(lambda go: lax.cond(go, lambda: kernel(a, v), lambda: kernel(a, 0.0 * v)))(True),
        jax.jit(lambda: lax.scan(lambda c, _: (c, kernel(a, v)), 0.0, None, length=2)[1])(),
    ]
    for found_so in found[:4]:
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-13), found_so, wanted)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x[1], y, rtol=1e-13), found[4], wanted)
    np.testing.assert_allclose(jax.jit(lambda: alone(v))()[0], np.cos(V) * V, rtol=1e-13)
    by_kernel = jax.jit(lambda: turns(lambda x: alone(x)[0] + alone(v)[0], v))()
    np.testing.assert_allclose(by_kernel, turns(lambda x: jnp.cos(x) * x + jnp.cos(v) * v, v), rtol=1e-13)
    zeros = jnp.zeros_like(v)  # a constant that is a broadcast
    np.testing.assert_allclose(jax.jit(lambda: alone(zeros))()[0], zeros)


def test_what_is_known_costs_nothing():
    """A product with zeros and ones is none; the same operation is made once; signs are joined with sums."""
    length = lambda fun, *args: len(Straight(jax.make_jaxpr(fun)(*args), 1000).made)
    eye = np.eye(5)[[3, 1, 0]]
    assert length(lambda v: eye @ v + v[:3], V) == 3
    assert length(lambda v: (v[0] * v[1] + 1.0, v[1] * v[0] + 1.0), V) == 2
    assert length(lambda v: v[0] + (-v[1]) * v[2], V) == 2


def test_refuses():
    """What is too long, and what it cannot write out: a loop whose end is open, an index that is not known."""
    with pytest.raises(TooLong):
        Straight(jax.make_jaxpr(lambda a, b: a @ b @ a)(A, B), 50)
    for fun in (
        lambda v: lax.while_loop(lambda x: x[0] < 9.0, lambda x: x * 2.0, jnp.abs(v)),
        lambda v: v[jnp.argmax(v)] * 2.0,
        jnp.sort,
    ):
        program = jax.make_jaxpr(fun)(V)
        with pytest.raises(Unknown):
            Straight(program, 1000)
        assert straight(program, 1000) is None


def test_nothing_hides():
    """What is not a number stays with the results that it concerns, and reaches those."""
    fun = lambda v: jnp.stack([v[0] * 2.0, v[1] * v[2], jnp.maximum(v[1], 0.0)])
    (found,), (wanted,) = both(fun, [1.0, np.nan, 0.0])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))


def test_nothing_over_something():
    """0 / x is nothing, so that zeros survive an elimination; 0 / 0 is not a number."""
    graph = Graph(10)
    zero, one, two = (graph.constant(np.float64(x)) for x in (0, 1, 2))
    (x,) = graph.inputs((1,), np.float64)
    assert graph.div(zero, x) == zero and graph.div(x, one) == x
    assert np.isnan(graph.value(graph.div(zero, zero))) and graph.value(graph.div(one, two)) == 0.5


def test_graph_keeps_kinds_apart():
    """The same bits as another dtype are another number."""
    graph = Graph(10)
    assert graph.constant(np.float64(0.0)) != graph.constant(np.int64(0))


@pytest.mark.parametrize("mechanism", [four_bar, bricard])
def test_motion(mechanism):
    """Accelerations, correction, choice of rows and all derivatives of closed loops, by one kernel and by arrays."""
    model = mb.compile(mechanism())
    state = mb.assemble(model, {"A": 0.4} if mechanism is four_bar else {})
    q, v, mask, t = state.q, state.v, jnp.ones(model.nc), jnp.zeros(())
    none = jnp.zeros(0)
    chosen = _motion.choose(model, q, t, mask)
    rates = lambda model, q, v: _motion.rates_of(model, chosen, q, v, none, jnp.ones(model.nv), none, t, None)[0]

    def everything(model, q, v):
        vd, back = jax.vjp(rates, model, q, v)
        forward = jax.jvp(lambda q, v: rates(model, q, v), (q, v), (v, q))[1]
        settled = _motion.settle_once(model, chosen, mask, q + 1e-4, v + 1e-3, t)
        return vd, back(jnp.cos(vd)), forward, settled, _motion.choose(model, q, t, mask)

    program = jax.make_jaxpr(everything)(model, q, v)
    calls = [eqn for eqn in program.jaxpr.eqns if eqn.primitive.name == "batch_last"]
    assert len(calls) >= 5
    for eqn in calls:
        own = _batch.program_of(eqn.params["fun"], [x.aval for x in eqn.invars])
        assert straight(own, 100_000) is not None
    ways = []
    many = lambda model, q, v: jax.vmap(lambda s: everything(model, q, v * s))(1.0 + 0.1 * jnp.arange(3.0))
    arrays, kernels, machine = (0, False), (100_000, False), (100_000, True)
    for most, table in (arrays, kernels, machine):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_batch, "longest", lambda *_: most)
            patch.setattr(_batch, "by_table", lambda *_: table)
            jax.clear_caches()
            ways.append(jax.tree.leaves(jax.jit(lambda *x: (everything(*x), many(*x)))(model, q, v)))
    wanted, *others = ways
    for found in others:
        for a, b in zip(found, wanted, strict=True):
            size = max(1.0, float(jnp.abs(b).max(initial=0.0)))
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * size)
