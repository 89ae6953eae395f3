"""Sol's fuel-injection pump as a kinematic model: cam, roller and plunger.

    python experiments/10_pump_kinematics.py [config.toml]

Sol 1983, 9.1 and 9.2. A shaft with a cam (coordinate q1) lifts a plunger (q5) by a roller. The roller hangs on the
shaft by a hinge of three coordinates, the polar coordinates q2 and r of its centre and its turn q4, all relative to
the shaft; it touches the cam (holonomic), rolls on it (nonholonomic), and its centre is the pin of the plunger (two
holonomic rows): nd = 5 - 3 = 2 degrees of freedom, of which rolling takes one away at velocity level. q1 is driven.

The text gives no dimensions, but they follow from its figures. q4 counts relative to the shaft ((9.2.17) has no q1, and
J2 couples q1 and q4 in (9.3.3)), the angle of the normal equals q2 on base and top circle, so both are concentric with
the shaft, and 10 mm of lift set the scale. With w = |q1d|, rb, rr, rt the radii of base circle, roller and transition,
D = rb + lift, and a the pressure angle at the end of the line, of length l:

    base   q4d = w (rb + rr) / rr          top    q4d = w (D + rr) / rr                  gives rr and rb
    line   q4d = w (rb + rr) / rr / cos^2 a, the fastest at its end                      gives a and l = (rb + rr) tan a
    top circle about the shaft      (rb - rt)^2 + l^2 = (D - rt)^2                       gives rt

Only the angle of the lobe remains: slip changes sign at -145 deg, where the roller stops being accelerated, which
is the end of the line. All numbers of the text are then reproduced exactly, as they must be; the check is that the
mechanism finds the motion that the closed form for each piece of the profile gives. The figure goes to `out/`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb

jax.config.update("jax_enable_x64", True)


def dimensions(config):
    """rb, lift, top radius, rt, half the angle of the top circle: `mb.cam_profile`; then rr."""
    w, lift, base = abs(config["speed"]), config["lift"], config["base_speed"]
    rr = lift * w / (config["top_speed"] - base)
    rb = rr * (base / w - 1.0)
    top, slope = rb + lift, np.arccos(np.sqrt(base / config["fastest_speed"]))
    line = (rb + rr) * np.tan(slope)
    rt = (top**2 - rb**2 - line**2) / (2.0 * lift)
    flank = np.radians(180.0 - abs(config["end_of_line"])) + slope  # of its normal, from the lobe
    return (rb, lift, top, rt, flank - np.arctan2(line, rb - rt)), rr


# 1. Describe, with Sol's coordinates. The lobe points down at q1 = 0; the plunger moves along y.
def polar(q, t, params):
    c, s = jnp.cos(q[2]), jnp.sin(q[2])
    turn = jnp.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    return turn, q[1] * jnp.array([jnp.cos(q[0]), jnp.sin(q[0]), 0.0])


def turning(t, p):
    return p["first"] + p["speed"] * t


def pump(cam, rr, config):
    lobe = mb.Marker("shaft", rotation=((0.0, 1.0, 0.0), (-1.0, 0.0, 0.0), (0.0, 0.0, 1.0)))
    turn = {"first": np.radians(config["first"]), "speed": config["speed"]}
    return mb.Mechanism(
        [mb.RigidBody(name, 1.0, inertia=(1e-3,) * 3) for name in ("shaft", "roller", "plunger")],  # no part in it
        [
            mb.Revolute("q1", "world", "shaft"),
            mb.Hinge("polar", "shaft", "roller", polar, 3),
            mb.Prismatic("q5", "world", "plunger", axis="y"),
            mb.Revolute("pin", "plunger", "roller", cut=True),
        ],
        constraints=[mb.RollingOnProfile("contact", lobe, "roller", mb.cam_profile(*cam), rr)],
        drives=[mb.PositionDrive("drive", "q1", turning, turn)],
    )


def motion(cam, rr, config):
    model = mb.compile(pump(cam, rr, config))
    first = np.radians(config["first"])
    ts = jnp.linspace(0.0, np.radians(config["last"] - config["first"]) / config["speed"], config["positions"])
    start = model.pack({"q1": first, "polar": [np.pi / 2 - first, cam[0] + rr, 0.0], "q5": cam[0] + rr})
    return model, mb.simulate_kinematics(model, start, ts, throw=False)


# 2. The closed form, piece by piece: s(phi), the distance of the roller's centre at the angle phi from the lobe.
def by_hand(phi, cam, rr):
    rb, _, top, rt, half = cam
    phi = abs(phi)
    e, across = np.array([np.cos(phi), np.sin(phi)]), np.array([-np.sin(phi), np.cos(phi)])
    centre = (top - rt) * np.array([np.cos(half), np.sin(half)])
    flank = half + np.arccos((rb - rt) / (top - rt))
    end = flank - np.arctan(np.sqrt((top - rt) ** 2 - (rb - rt) ** 2) / (rb + rr))
    if phi > flank:
        s, n = rb + rr, e
    elif phi > end:
        s, n = (rb + rr) / np.cos(flank - phi), np.array([np.cos(flank), np.sin(flank)])
    elif phi > half:
        s = centre @ e + np.sqrt((centre @ e) ** 2 - centre @ centre + (rt + rr) ** 2)
        n = (s * e - centre) / (rt + rr)
    else:
        s, n = top + rr, e
    slope = -s * (n @ across) / (n @ e)  # the centre moves along the tangent (-n_y, n_x), as fast as the roller turns
    return s, (np.array([-n[1], n[0]]) @ (slope * e + s * across)) / rr


def main(config):
    cam, rr = dimensions(config)
    print("base, lift, top, transition radius: " + ", ".join(f"{1e3 * x:.3f}" for x in cam[:4]), end=" mm; ")
    print(f"top circle +-{np.degrees(cam[4]):.2f} deg, roller {1e3 * rr:.3f} mm")
    model, run = jax.jit(lambda *x: motion(*x, config))(cam, rr)
    assert bool(run.ok.all()), "the pump does not run"
    counted = mb.mobility(model, run.q[0])
    print(f"nd = {int(counted.dof)} degrees of freedom, {int(counted.velocity_dof)} at velocity level")
    assert (int(counted.dof), int(counted.velocity_dof)) == (2, 1)

    # 3. The roller stands above the shaft (9.2.15), lift and spin are those of the closed form.
    q1, w = np.asarray(run.coordinate("q1")), abs(config["speed"])
    column = lambda a, joint, k=0: np.asarray(a[:, model.speeds(joint)])[:, k]
    lift, q4d = np.asarray(run.coordinate("q5")) - cam[0] - rr, column(run.v, "polar", 2)
    exact = np.array([by_hand(np.pi + angle, cam, rr) for angle in q1])
    off = np.abs(lift + cam[0] + rr - exact[:, 0]).max(), np.abs(q4d / w - exact[:, 1]).max() * w
    print(f"against the closed form: lift {off[0]:.1e} m, q4d {off[1]:.1e} rad/s")
    assert off[0] < 1e-12 and off[1] < 1e-7
    assert np.abs(np.asarray(run.coordinate("polar"))[:, 0] - (np.pi / 2 - q1)).max() < 1e-12
    at_end = w * by_hand(np.radians(180 + config["end_of_line"]) + 1e-12, cam, rr)[1]
    found, told = (q4d[0], at_end, q4d[len(q4d) // 2]), [config[f"{k}_speed"] for k in ("base", "fastest", "top")]
    print("roller on base, line's end, top: " + ", ".join(f"{x:.2f}" for x in found), end=" rad/s; ")
    print(f"lift {1e3 * lift.max():.3f} mm")
    assert np.allclose(found, told, rtol=1e-9) and np.isclose(lift.max(), config["lift"], rtol=1e-9)
    decelerates, accelerates = -column(run.vd, "q5").min(), column(run.vd, "q5").max()
    print(f"plunger: up to {accelerates:.0f} m/s2 on the lines, down to {-decelerates:.0f} on the transition arcs")
    assert decelerates > accelerates  # as the book says

    # 4. What the transition radius does to height and speed of the plunger in the middle of its arc.
    middle = int(np.argmin(np.abs(np.degrees(q1) - 0.5 * (config["end_of_line"] - 180 + np.degrees(cam[4])))))

    def there(rt):
        model = mb.compile(pump((*cam[:3], rt, cam[4]), rr, config))
        state = mb.assemble(model, run.q[middle], t=run.ts[middle], throw=False)
        return jnp.stack([state.q[model.coordinates("q5")], state.v[model.speeds("q5")]])

    see, h = jax.jit(lambda rt: jax.jvp(there, (rt,), (1.0,))), config["step"]
    slope, difference = see(cam[3])[1], (see(cam[3] + h)[0] - see(cam[3] - h)[0]) / (2 * h)
    print(
        f"d (q5, q5d) / d transition radius at {np.degrees(q1[middle]):.1f} deg: {slope.ravel()}, {difference.ravel()}"
    )
    assert np.allclose(slope, difference, rtol=1e-6)
    plunger = [np.asarray(lift), column(run.v, "q5"), column(run.vd, "q5")]
    turn = [np.asarray(run.coordinate("polar"))[:, 2], q4d, column(run.vd, "polar", 2)]
    drawing = lambda axes: plot(axes, 1e3 * np.asarray(run.ts), plunger, turn, exact[:, 1] * w, cam, rr)
    mb.draw("out/10_pump_kinematics.png", drawing, columns=3, size=(14, 4.3))


def plot(axes, ms, plunger, turn, spin, cam, rr):
    phi = np.linspace(0.0, 1.0, 400)
    profile = np.asarray(jax.vmap(mb.cam_profile(*cam).point)(phi)) * 1e3
    axes[0].plot(-profile[:, 1], profile[:, 0], "C0")
    circle = 1e3 * rr * np.array([np.cos(2 * np.pi * phi), np.sin(2 * np.pi * phi)])
    axes[0].plot(circle[0], circle[1] + 1e3 * (cam[2] + rr), "C1")
    axes[0].plot([0], [0], "k+")
    axes[0].set(xlabel="mm", ylabel="mm", title="cam at the top, and its roller", aspect="equal")
    for axis, (a, ad, add), names, scales in (
        (axes[1], turn, ("q4, 10 rad", "q4d, 100 rad/s", "q4dd, 1e5 rad/s2"), (0.1, 0.01, 1e-5)),
        (axes[2], plunger, ("q5, 10 mm", "q5d, m/s", "q5dd, 1000 m/s2"), (100.0, 1.0, 1e-3)),
    ):
        for values, name, scale, color in zip((a, ad, add), names, scales, ("C7", "C0", "C3")):
            axis.plot(ms, scale * values, color, label=name)
        axis.legend()
        axis.set(xlabel="time, ms")
    axes[1].plot(ms[::16], 0.01 * spin[::16], "k.", label="closed form")
    axes[1].set(title="turn of the roller, relative to the cam")
    axes[2].set(title="plunger at 1000 rpm")


if __name__ == "__main__":
    main(mb.settings(__file__))
