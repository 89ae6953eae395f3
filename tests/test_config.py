"""Studies in TOML: units, where mistakes stand, what a file may name, and that it builds what Python builds."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed import four_bar
from studies import PENDULUM

import diffmb as mb
from diffmb._config._build import law_of, mechanism
from diffmb._config._document import LIMIT, Document, find_line, override, parse_document
from diffmb._config._expression import expression
from diffmb._config._registry import FAMILIES, family
from diffmb._config._schema import config_of
from diffmb._errors import StudyError
from diffmb._study._study import Study
from diffmb._units import quantity


def document(text: str) -> Document:
    return parse_document("study.toml", text.encode())


def says(text: str, *words: str, settings=()) -> str:
    """The refusal of a study."""
    with pytest.raises(StudyError) as caught:
        found = override(document(text), list(settings))
        study = Study(config_of(found), found)
        study.mechanism, study.ts, study.inputs({})
    message = str(caught.value)
    for word in words:
        assert word in message, (word, message)
    return message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("25 mm", 0.025),
        ("1000 rpm", 1000 * 2 * math.pi / 60),
        ("30 deg", math.pi / 6),
        ("5 N/mm", 5000.0),
        ("9.81 m/s^2", 9.81),
        ("2 kg mm2", 2e-6),
        ("3 N m/deg", 3 * 180 / math.pi),
        ("-1e-3 s", -1e-3),
        ("5 %", 0.05),
        ("2 Hz", 4 * math.pi),
        ("1 g/cm3", 1000.0),
    ],
)
def test_units(text, value):
    assert quantity(text) == pytest.approx(value, rel=1e-14)


def test_units_that_are_none():
    with pytest.raises(ValueError, match=r"furlong.*known: mm"):
        quantity("25 furlong")
    with pytest.raises(ValueError, match="measures something else; give it in m"):
        quantity("25 kg", "m")
    with pytest.raises(ValueError, match=r'write 1e-3 without quotes, or with a unit: "1e-3 s"'):
        quantity("1e-3", "s")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("pieces = 4", "rtoll = 1e-6", ("solver.rtoll is not known; did you mean 'rtol'", ":24: ")),
        ("end = 0.4", 'end = "1e-3"', ('time.end is the text "1e-3"', ":20: ", '"1e-3 s"')),
        ("end = 0.4", "end = true", ("time.end is true; give a number",)),
        ("end = 0.4", "end = nan", ("time.end is nan; give a finite number",)),
        ("end = 0.4", "end = -inf", ("time.end is -inf",)),
        ("end = 0.4", "end = 0", ("time.end is 0 s, not after the start at 0 s",)),
        ("end = 0.4\npoints = 9", "times = [0, 0.1, 0.1]", ("time.times[3] is 0.1 after 0.1; times must increase",)),
        ("points = 9", "points = 1", ("time.points is 1; give a whole number from 2",)),
        ("points = 9", "points = 9.0", ("time.points is 9.0; give a whole number",)),
        ("pieces = 4", "step = 0", ("solver.step is 0; give a number above zero",)),
        ("pieces = 4", "rtol = 1e-20", ("solver.rtol is 1e-20, below what float64 can keep",)),
        ("pieces = 4", 'method = "implict"', ("did you mean 'implicit'",)),
        ("mass = 1.0", "mass = [1]", ("parameters.mass is a list; give a number",)),
        ("schema_version = 1", "schema_version = 2", ("reads up to 1: pip install --upgrade diffmb", ":1: ")),
        ("schema_version = 1", "schema_version = 0", ("write schema_version = 1",)),
        ("schema_version = 1", "", ("has no schema_version; write schema_version = 1",)),
        ('"=mass"', "0", ("bodies[1]", ":10: ", "mass = 0; it must be positive and finite")),
        ('"=mass"', "inf", ("bodies[1].mass is inf; give a finite number",)),
        ('"=length"', '"=lenght"', ('there is no parameter "lenght"; did you mean \'length\'?', ":10: ")),
        ('"=length"', '"25 furlong"', ("bodies[1].length has the unknown unit", "known: mm")),
        ('"=length"', '"25 kg"', ("is in kg, which measures something else; give it in m",)),
        ('kind = "rod"', 'kind = "rood"', ("did you mean 'rod'",)),
        ('kind = "rod"', 'kind = "rod", masss = 1', ("bodies[1].masss is not known; did you mean 'mass'?",)),
        ('child = "arm"', 'child = "amr"', ("joint 'A': its child is on 'amr'", "did you mean 'arm'?")),
        ('child = "arm"', 'child = "world"', ("connects 'world' with itself",)),
        ('name = "A"', 'name = "arm"', ("both named 'arm'", "rename one of them")),
        ('child = "arm"', 'child = "arm", axis = [0, 0, 0]', ("joints[1] is refused", "has no direction")),
        ('child = "arm"', "child = 3", ("joints[1].child is 3; give a table",)),
        ('child = "arm" }]', 'child = "arm", cut = 1 }]', ("joints[1].cut is 1; give true or false",)),
        ('"world"', '{ body = "world", posit = [0, 0, 0] }', ("parent.posit is not known; did you mean 'position'?",)),
        ('"rod", name = "arm", length = "=length"', '"box", name = "arm", size = [1, 1]', ("size has 2 numbers",)),
    ],
)  # fmt: skip
def test_mistakes_are_named(old, new, words):
    assert old in PENDULUM
    says(PENDULUM.replace(old, new, 1), *words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", ("is empty",)),
        (b"  \n", ("is empty",)),
        (b"\x89PNG\r\n", ("is no text", "not UTF-8")),
        (b"a = 1\x00", ("zero bytes",)),
        (b"a = 1\nb = = 2\n", ("study.toml:2:5: not TOML",)),
        (b"a = 1\na = 2\n", ("study.toml:2", "overwrite")),
        (b"x" * (LIMIT + 1), ("larger than 4 MB",)),
        (b"a = " + b"[" * 5000 + b"]" * 5000, ("nested",)),
        (b"a = " + b"[" * 50 + b"]" * 50, ("nested more than 32 deep",)),
        (b"a = [" + b"1," * 200_001 + b"]", ("entries; the limit is 200000",)),
    ],
)
def test_files_that_are_no_study(text, words):
    with pytest.raises(StudyError) as caught:
        parse_document("study.toml", text)
    for word in words:
        assert word in str(caught.value)


def test_the_line_of_an_entry():
    text = '[a]\nx = 1\n\n[[b.c]]\ny = 1\n[[b.c]]\ny = 2\n[d]\nlist = [\n  { k = 1 },\n  { k = 2 },\n]\n'
    assert find_line(text, ("a", "x")) == 2
    assert find_line(text, ("b", "c", 1, "y")) == 7
    assert find_line(text, ("d", "list", 1, "k")) == 11
    assert find_line(text, ("a", "z")) == 1
    assert find_line(text, ("e",)) is None


def test_settings_replace_values():
    settings = ["parameters.length=2", "mechanism.bodies.arm.mass = 3.5", "title=Long", 'start.q.A="1 rad"']
    found = override(document(PENDULUM), settings)
    config = config_of(found)
    assert config.parameters["length"] == 2.0 and config.title == "Long"
    assert float(Study(config, found).mechanism["arm"].mass) == 3.5
    assert document(PENDULUM).data["parameters"]["length"] == "800 mm"
    says(PENDULUM, "--set solver.rtoll is not known; did you mean 'rtol'", settings=["solver.rtoll=1"])
    says(PENDULUM, "write --set section.key=value", settings=["solver"])
    says(PENDULUM, "there is no 'arn'; did you mean 'arm'?", settings=["mechanism.bodies.arn.mass=1"])
    says(PENDULUM, "which has no entries", settings=["title.x=1"])


def test_expressions_are_arithmetic_and_nothing_else():
    functions = {name: getattr(math, name, abs) for name in ("sin", "cos", "tan", "sqrt", "abs")}
    value = lambda text: expression(text, ["a", "b"]).value({"a": 2.0, "b": 3.0}, functions)
    assert value("=a/2 + b**2*-1") == -8.0
    assert value("=sqrt(a*2)*cos(0)+pi") == pytest.approx(2 + math.pi)
    for bad in ("=__import__('os')", "=a.b", "=[a]", "=a if b else 1", "=lambda: 1", "=c", "=a**a", "=a**99", "=a**'x'",
                "=sin(a, b)", "=1e999", "=" + "(" * 300 + "a" + ")" * 300, "=", "=a b", "=" + "a+" * 400 + "a", "=a<b",
                "=9**9**9", "=a and b", "='a'*3", "=True"):  # fmt: skip
        with pytest.raises(ValueError):
            expression(bad, ["a", "b"])
    with pytest.raises(ValueError, match="did you mean 'crank'"):
        expression("=krank", ["crank"])


def test_every_public_part_can_be_named():
    """Whoever adds a joint, constraint, connection, drive or body to the library has it in files at once."""
    for name, bases in FAMILIES.items():
        public = [getattr(mb, n) for n in dir(mb) if not n.startswith(("_", "Abstract"))]
        classes = {c.__name__ for c in public if isinstance(c, type) and issubclass(c, bases)}
        assert name == "pieces" or classes <= set(family(name)), name
    assert {"SplineProfile", "cam_profile", "DcMotor", "FrictionLaw"} <= set(family("pieces"))
    assert not {"Revolute", "Marker", "Model", "Trajectory"} & set(family("pieces"))
    assert {"rod", "box", "cylinder", "sphere"} <= set(family("bodies"))
    assert {"gear", "rack", "screw_coupling"} <= set(family("constraints"))
    assert family("joints")["Revolute"].arguments["parent"].type == "marker"
    assert family("joints")["Screw"].arguments["pitch"].needed
    assert family("drives")["PositionDrive"].arguments["function"].type == "function"


FOUR_BAR = """\
schema_version = 1
[parameters]
base = 0.3
[mechanism]
gravity = [0, -9.81, 0]
bodies = [
    { kind = "rod", name = "crank", length = 0.1, mass = "200 g" },
    { kind = "rod", name = "coupler", length = "300 mm", mass = 0.5 },
    { kind = "rod", name = "rocker", length = "25 cm", mass = 0.4 },
]
joints = [
    { kind = "Revolute", name = "A", parent = "world", child = "crank" },
    { kind = "Revolute", name = "B", parent = { body = "crank", position = [0.1, 0, 0] }, child = "coupler" },
    { kind = "Revolute", name = "C", parent = { body = "coupler", position = [0.3, 0, 0] }, child = { body = "rocker", \
position = [0.25, 0, 0] } },
    { kind = "Revolute", name = "D", parent = { body = "world", position = ["=base", 0, 0] }, child = "rocker" },
]
"""


def test_a_file_builds_what_python_builds():
    built = mechanism(document(FOUR_BAR).root["mechanism"], {"base": 0.3})
    own = four_bar(0.1, 0.3, 0.25, 0.3)
    assert jax.tree.structure(built) == jax.tree.structure(own)
    for a, b in zip(jax.tree.leaves(built), jax.tree.leaves(own), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-15, atol=1e-18)


def test_parts_of_every_family_from_a_file():
    more = """\
[[mechanism.constraints]]
kind = "gear"
name = "teeth"
first = "A"
second = "D"
teeth = [20, 40]
[[mechanism.constraints]]
kind = "LinearCoupling"
name = "sum"
terms = { A = 2.0, "D[0]" = -1.0 }
[[mechanism.constraints]]
kind = "CamContact"
name = "cam"
first = "crank"
second = "rocker"
profile = { kind = "SplineProfile", points = [[0.1, 0], [0, 0.1], [-0.1, 0], [0, -0.1]] }
[[mechanism.connections]]
kind = "SpringDamper"
name = "spring"
first = "coupler"
second = { body = "world", position = [0, "10 cm", 0] }
k = "5 N/mm"
[[mechanism.connections]]
kind = "bar"
name = "strut"
first = { body = "coupler", position = [0.1, 0, 0] }
second = "world"
EA = "2 kN"
length = 0.2
[[mechanism.connections]]
kind = "OnCoordinates"
name = "drive"
terms = ["A"]
law = { kind = "ForceInput" }
[[mechanism.drives]]
kind = "PositionDrive"
name = "motor"
target = ["A", 0]
law = { kind = "linear", slope = "60 rpm" }
"""
    built = mechanism(document(FOUR_BAR + more).root["mechanism"], {"base": 0.3})
    assert built["teeth"].terms == (("A", 0), ("D", 0)) and built["sum"].terms == (("A", 0), ("D", 0))
    assert isinstance(built["cam"].profile, mb.SplineProfile)
    assert float(built["spring"].k) == 5000.0
    assert built["strut"].markers[0].body == "coupler" and isinstance(built["drive"].law, mb.ForceInput)
    assert float(built["motor"].function(jnp.asarray(0.5), built["motor"].params)) == pytest.approx(math.pi)
    head = FOUR_BAR + "[[mechanism.constraints]]\nname = 'c'\nfirst = 'crank'\nsecond = 'rocker'\n"
    says(head + "kind = 'Constraint'\n", "needs a function in Python", "--mechanism")
    says(head + "kind = 'Constraint'\nphi = 'os.system'\n", "a file cannot hold")
    says(head, "has no kind; give one of CamContact")
    says(head + "kind = 'Distance'\n", "is a Distance and has no length")
    says(FOUR_BAR + "[[mechanism.drives]]\nkind = 'PositionDrive'\nname = 'd'\ntarget = 'A'\n", "has no law")


LAWS = [
    ({"kind": "constant", "value": 2.0}, lambda t: 2.0 + 0 * t),
    ({"kind": "linear", "slope": "60 rpm", "offset": 1.0}, lambda t: 1.0 + 2 * math.pi * t),
    ({"kind": "polynomial", "coefficients": [1.0, 0.0, 3.0]}, lambda t: 1.0 + 3.0 * t * t),
    ({"kind": "sine", "amplitude": 2.0, "speed": "1 Hz", "phase": "90 deg"}, lambda t: 2 * np.cos(2 * np.pi * t)),
    ({"kind": "step", "final": 2.0, "start": 0.2, "end": 0.8},
     lambda t: 2 * np.polyval([6, -15, 10, 0, 0, 0], np.clip((t - 0.2) / 0.6, 0, 1))),
    ({"kind": "table", "times": [0, 1], "values": [0, "2 m"], "interpolation": "linear"}, lambda t: 2 * t),
    (3.0, lambda t: 3.0 + 0 * t),
]  # fmt: skip


@pytest.mark.parametrize(("given", "law"), LAWS)
def test_laws(given, law):
    found = law_of(Document("x", "", {"law": given}).root["law"], {})
    ts = np.linspace(0.0, 1.0, 7)
    np.testing.assert_allclose(jax.vmap(found)(jnp.asarray(ts)), law(ts), rtol=1e-12, atol=1e-12)


def test_laws_that_are_none():
    fail = lambda given: law_of(Document("x", "", {"law": given}).root["law"], {})
    for given, words in (
        ({"kind": "sin"}, "did you mean 'sine'"),
        ({"kind": "sine", "speed": 1}, "has no amplitude"),
        ({"kind": "linear", "slop": 1}, "did you mean 'slope'"),
        ({"slope": 1}, "has no kind"),
        ({"kind": "table", "times": [0, 0], "values": [1, 2]}, "must increase"),
    ):
        with pytest.raises(StudyError, match=words):
            fail(given)


def test_parameters_move_what_belongs_together():
    found = document(PENDULUM)
    study = Study(config_of(found), found)
    slope = jax.jacfwd(lambda l: study.build({"length": l})["arm"].com[0])(0.8)
    assert float(slope) == 0.5
    changed = study.build({"length": 1.0, "arm.com[1]": 0.1})
    np.testing.assert_allclose(changed["arm"].com, (0.5, 0.1, 0.0))
    assert float(study.markers({"length": 1.0})["tip"].position[0]) == 1.0
    assert eqx.tree_equal(study.build({}), study.mechanism)
    for name, words in (("lenght", "did you mean 'length'"), ("arm.mas", "did you mean 'mass'"), ("amr.mass", "'arm'"),
                        ("arm.com", r'choose one, "arm.com\[0\]"'), ("arm.name", "there is no number")):  # fmt: skip
        with pytest.raises(StudyError, match=words):
            study.current([name])


def test_variables_and_limits_must_make_sense():
    head = PENDULUM + '[optimise]\nminimise = "miss"\n'
    says(head + "variables.length = { lower = 2, upper = 1 }\n", "lower must be below upper")
    says(head + "variables.length = { lower = 1, start = 0.5 }\n", "starts at 0.5, outside of its bounds 1.0 to None")
    limit = "constraints = [{ response = 'last', lower = 2, upper = 1 }]\n"
    says(head + "variables.length = {}\n" + limit, "nothing satisfies")
    says(head + "variables.length = {}\nconstraints = [{ response = 'lst', lower = 2 }]\n", "did you mean 'last'?")
    says(head + "variables.length = {}\nconstraints = [{ response = 'last' }]\n", "has no lower, upper or equals")
    says(PENDULUM + '[optimise]\nminimise = "mis"\nvariables.length = {}\n', "did you mean 'miss'?")
    says(PENDULUM + "[optimise]\nvariables.length = {}\n", "has no minimise")
    says(PENDULUM + '[optimise]\nminimise = "miss"\nvariables = {}\n', "is empty; name at least one number")


def test_large_numbers_are_pointed_at():
    found = document(PENDULUM.replace('"=length"', "800", 1))
    with pytest.warns(UserWarning, match='did you mean "800 mm"'):
        Study(config_of(found), found).build({})
    found = document(PENDULUM.replace('"-60 deg"', "-60"))
    with pytest.warns(UserWarning, match='did you mean "-60 deg"'):
        Study(config_of(found), found).start({}, "q")
