"""What a motion looks like: shapes that are the bodies, places that are the motion, a page that needs nothing."""

import base64
import json
import re

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import diffmb as mb
from diffmb import _plots
from diffmb._spatial._pose import quat_to_rotation
from diffmb._viewer._html import page
from diffmb._viewer._scene import scene, with_ghost


@pytest.fixture(scope="module")
def motion():
    """An arm, a bob that hangs on it, and a spring; the tip of the bob is traced."""
    joints = [
        mb.Revolute("A", "world", "arm"),
        mb.Spherical("P", mb.Marker("arm", (0.3, 0.1, 0.0)), mb.Marker("bob", (0, 0.1, 0))),
    ]
    spring = mb.SpringDamper("spring", "bob", mb.Marker("world", (0.1, -0.2, 0)), k=10.0)
    bodies = [mb.rod("arm", 0.3, mass=0.5), mb.box("bob", (0.1, 0.05, 0.02), mass=0.3)]
    mech = mb.Mechanism(bodies, joints, connections=[spring], gravity=(0, -9.81, 0))
    model = mb.compile(mech)
    state = mb.assemble(model, {"A": 0.5}, {"A": 4.0, "P": [1.0, 2.0, 3.0]})
    return mech, mb.simulate(model, state, np.linspace(0.0, 0.2, 5))


@pytest.fixture(scope="module")
def still():
    """A sphere that falls: its motion serves every other single body as well."""
    model = mb.compile(mb.Mechanism([mb.sphere("a", 0.1, mass=1.0)]))
    return mb.simulate(model, mb.assemble(model), [0.0, 0.01])


def drawn(body, traj):
    return next(s for s in scene(mb.Mechanism([body]), traj).shapes if s.body == 0)


def test_bodies_look_like_themselves(still):
    """The solid of the inertia is the solid that was described."""
    rod = drawn(mb.rod("a", 2.0, mass=3.0, radius=0.1), still)
    np.testing.assert_allclose(rod.size[2], np.sqrt(2.0**2 - 3 * 0.1**2), rtol=1e-9)  # thin: no m r^2 / 4 across
    np.testing.assert_allclose(rod.position, (1.0, 0.0, 0.0))
    axis = np.asarray(quat_to_rotation(jnp.asarray(rod.rotation)))[:, 2]
    np.testing.assert_allclose(np.abs(axis), (1, 0, 0), atol=1e-12)
    cylinder = drawn(mb.cylinder("a", 0.3, 0.8, axis="y", mass=2.0), still)
    assert cylinder.kind == "cylinder"
    np.testing.assert_allclose(cylinder.size, (0.3, 0.3, 0.8), rtol=1e-9)
    axis = np.asarray(quat_to_rotation(jnp.asarray(cylinder.rotation)))[:, 2]
    np.testing.assert_allclose(np.abs(axis), (0, 1, 0), atol=1e-12)
    sphere = drawn(mb.sphere("a", 0.25, mass=2.0), still)
    assert sphere.kind == "sphere"
    np.testing.assert_allclose(sphere.size, 0.25, rtol=1e-9)
    box = drawn(mb.box("a", (0.4, 0.2, 0.9), mass=2.0), still)
    rotation = np.asarray(quat_to_rotation(jnp.asarray(box.rotation)))
    assert box.kind == "box"
    np.testing.assert_allclose(np.abs(rotation) @ box.size, (0.4, 0.2, 0.9), rtol=1e-9)


def test_the_scene_is_the_motion(motion):
    mech, traj = motion
    tip = mb.Marker("bob", (0.05, 0.0, 0.0))
    found = scene(mech, traj, {"tip": tip})
    assert found.bodies == tuple(body.name for body in mech.bodies)
    for row, q in enumerate(traj.q):
        motion = mb.kinematics(traj.model, q)
        for k, name in enumerate(found.bodies):
            np.testing.assert_allclose(found.positions[row, k], motion[name].pose.translation, atol=1e-12)
            turned = quat_to_rotation(jnp.asarray(found.rotations[row, k]))
            np.testing.assert_allclose(turned, motion[name].pose.rotation, atol=1e-12)
        np.testing.assert_allclose(dict(found.paths)["tip"][row], motion[tip].pose.translation, atol=1e-12)
    np.testing.assert_array_equal(found.up, (0, 1, 0))
    coil = [tie for tie in found.ties if tie.width]
    assert len(coil) == 1 and coil[0].second == -1 and np.allclose(coil[0].b, (0.1, -0.2, 0))
    assert found.floor < found.positions[..., 1].min()


def test_the_page_stands_alone(motion, tmp_path):
    mech, traj = motion
    title = 'A <b>"loop"</b> & </script><script>alert(1)</script>'
    mb.animate(mech, traj, tmp_path / "run.html", title=title, trace={"tip": mb.Marker("bob")}, speed=0.3)
    text = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert not re.search(r"https?://|src=|@import|fetch\(|XMLHttp|WebSocket", text)
    assert "Content-Security-Policy" in text and "default-src 'none'" in text
    assert "alert(1)</script>" not in text and "&lt;script&gt;" in text
    assert "__SCENE__" not in text and "__TITLE__" not in text
    data = json.loads(re.search(r'type="application/json">(.*?)</script>', text, re.DOTALL)[1])
    poses = np.frombuffer(base64.b64decode(data["poses"]), "<f4").reshape(5, 2, 7)
    np.testing.assert_allclose(poses[:, 1, :3], scene(mech, traj).positions[:, 1], atol=1e-6)
    assert data["speed"] == 0.3 and [b["name"] for b in data["bodies"]][-1] == "bob" and len(data["paths"]) == 1
    assert page(scene(mech, traj)) == page(scene(mech, traj))
    with pytest.raises(mb.MechanismError, match="there is no folder"):
        mb.animate(mech, traj, tmp_path / "no" / "run.html")


def test_before_and_after_on_one_page(motion, tmp_path):
    """The earlier motion is drawn behind, in one colour and without names, each body where it was."""
    mech, traj = motion
    model, tip = traj.model, mb.Marker("bob", (0.05, 0.0, 0.0))
    other = mb.simulate(model, mb.assemble(model), traj.ts)
    found = with_ghost(scene(mech, traj, {"tip": tip}), scene(mech, other, {"tip": tip}))
    count = len(mech.bodies)
    assert found.bodies == (*(body.name for body in mech.bodies), *[""] * count)
    np.testing.assert_allclose(found.positions[:, count:], scene(mech, other).positions)
    half = len(found.shapes) // 2
    assert all(s.body == -1 or s.body >= count for s in found.shapes[half:])
    assert len({s.colour for s in found.shapes[half:]}) == 1
    assert [name for name, _ in found.paths] == ["tip", "tip before"]
    mb.animate(mech, traj, tmp_path / "both.html", before=(mech, other))
    assert (tmp_path / "both.html").stat().st_size > (len(page(scene(mech, traj))))
    short = mb.simulate(model, mb.assemble(model), [0.0, 0.1])
    with pytest.raises(mb.MechanismError, match="simulate both at the same times"):
        mb.animate(mech, traj, tmp_path / "both.html", before=(mech, short))


def test_names_cannot_break_out():
    mech = mb.Mechanism([mb.sphere("</script><script>x", 0.1, mass=1.0)])
    model = mb.compile(mech)
    text = page(scene(mech, mb.simulate(model, mb.assemble(model), [0.0, 0.01])))
    assert "</script><script>x" not in text and "\\u003c/script>" in text


def test_long_motions_are_thinned(motion):
    mech, traj = motion
    times = np.linspace(0.0, 0.2, 1501)
    rows = lambda a: jnp.stack([jnp.interp(times, traj.ts, column) for column in a.T], 1)
    long = eqx.tree_at(lambda t: (t.ts, t.q, t.v), traj, (jnp.asarray(times), rows(traj.q), rows(traj.v)))
    found = scene(mech, long)
    assert len(found.times) == 600 and found.times[0] == 0.0 and found.times[-1] == 0.2


def test_live_view_is_for_this_machine_only(motion):
    pytest.importorskip("viser")
    mech, traj = motion
    server = mb.view(mech, traj, trace={"tip": mb.Marker("bob")}, port=8765, block=False)
    try:
        assert server.host == "127.0.0.1"
    finally:
        server.stop()
    with pytest.raises(mb.MechanismError, match="speed = 0"):
        mb.view(mech, traj, speed=0.0, block=False)


def test_plots_are_pictures():
    ts = np.linspace(0.0, 1.0, 11)
    curves = {"a": (ts**2, "m"), "b": (ts, "m"), "c": (np.sin(ts), "N")}
    pictures = [
        _plots.plot_channels(ts, curves, "title", before=curves),
        _plots.plot_history({"objective": [1.0, 0.1, 0.001], "rest": [1.0, -1.0, 2.0]}),
        _plots.plot_influence(["a", "b"], [0.3, -1.2], "y"),
        _plots.plot_sweep(ts, ts**2, ("x", "y"), ts < 0.9),
        _plots.plot_fit(ts, {"a": ts}, {"a": ts**2}),
    ]
    for picture in pictures:
        assert picture[:8] == b"\x89PNG\r\n\x1a\n" and len(picture) > 5000
    assert pictures[0] == _plots.plot_channels(ts, curves, "title", before=curves)
    with pytest.raises(mb.MechanismError, match="nothing to plot"):
        _plots.plot_channels(ts, {})
