"""diffmb: exact gradients of transient, stiff, closed-loop mechanisms."""

from typing import TYPE_CHECKING

from ._lazy import lazily as lazily

# For the type checker; while a program runs, `_lazy.py` reads these lines and imports each name when it is asked for.
if TYPE_CHECKING:
    # DESCRIBE
    from ._bodies._marker import Marker as Marker
    from ._bodies._pseudo_inertia import body_from_log_cholesky as body_from_log_cholesky
    from ._bodies._pseudo_inertia import inertia_to_log_cholesky as inertia_to_log_cholesky
    from ._bodies._rigid import RigidBody as RigidBody
    from ._bodies._rigid import box as box
    from ._bodies._rigid import cylinder as cylinder
    from ._bodies._rigid import massless as massless
    from ._bodies._rigid import rod as rod
    from ._bodies._rigid import sphere as sphere
    from ._connections._abstract import AbstractConnection as AbstractConnection
    from ._connections._abstract import AbstractJointConnection as AbstractJointConnection
    from ._connections._abstract import AbstractLoad as AbstractLoad
    from ._connections._abstract import AbstractSpan as AbstractSpan
    from ._connections._beam import Beam as Beam
    from ._connections._beam import PlanarBeam as PlanarBeam
    from ._connections._beam import bar as bar
    from ._connections._bushing import Bushing as Bushing
    from ._connections._composite import Composite as Composite
    from ._connections._composite import Node as Node
    from ._connections._contact import AbstractContact as AbstractContact
    from ._connections._contact import ContactLaw as ContactLaw
    from ._connections._contact import DiscOnPlane as DiscOnPlane
    from ._connections._contact import SphereOnPlane as SphereOnPlane
    from ._connections._contact import SphereOnSphere as SphereOnSphere
    from ._connections._controller import ForceInput as ForceInput
    from ._connections._controller import PdController as PdController
    from ._connections._controller import PidController as PidController
    from ._connections._controller import PositionServo as PositionServo
    from ._connections._elastic_laws import LinearLaw as LinearLaw
    from ._connections._elastic_laws import PotentialLaw as PotentialLaw
    from ._connections._elastic_laws import TableLaw as TableLaw
    from ._connections._fields import Drag as Drag
    from ._connections._fields import PointField as PointField
    from ._connections._fields import UniformField as UniformField
    from ._connections._film import CamTraction as CamTraction
    from ._connections._film import JournalBearing as JournalBearing
    from ._connections._film import Lubrication as Lubrication
    from ._connections._friction_laws import FrictionLaw as FrictionLaw
    from ._connections._friction_laws import Grip as Grip
    from ._connections._friction_laws import LuGreLaw as LuGreLaw
    from ._connections._hydraulic import HydraulicCylinder as HydraulicCylinder
    from ._connections._law import AbstractLaw as AbstractLaw
    from ._connections._law import ParallelLaw as ParallelLaw
    from ._connections._motor import DcMotor as DcMotor
    from ._connections._mounts import AboutAxis as AboutAxis
    from ._connections._mounts import AlongAxis as AlongAxis
    from ._connections._mounts import AlongLine as AlongLine
    from ._connections._mounts import AlongPath as AlongPath
    from ._connections._mounts import OnCoordinates as OnCoordinates
    from ._connections._muscle import Muscle as Muscle
    from ._connections._muscle import RigidTendonMuscle as RigidTendonMuscle
    from ._connections._muscle_curves import Activation as Activation
    from ._connections._muscle_curves import MuscleCurves as MuscleCurves
    from ._connections._muscle_curves import muscle_curves as muscle_curves
    from ._connections._muscle_curves import muscle_curves_2016 as muscle_curves_2016
    from ._connections._one_sided_laws import BumperLaw as BumperLaw
    from ._connections._one_sided_laws import RopeLaw as RopeLaw
    from ._connections._one_sided_laws import StopLaw as StopLaw
    from ._connections._split_muscle import SplitMuscle as SplitMuscle
    from ._connections._spring import SpringDamper as SpringDamper
    from ._connections._triangle import PlaneElement as PlaneElement
    from ._connections._tyre import RadialTyre as RadialTyre
    from ._connections._tyre import SlipTyre as SlipTyre
    from ._connections._user import Connection as Connection
    from ._connections._user import JointConnection as JointConnection
    from ._connections._user import Span as Span
    from ._connections._viscous_laws import FungLaw as FungLaw
    from ._connections._viscous_laws import PronyLaw as PronyLaw
    from ._constraints._abstract import AbstractConstraint as AbstractConstraint
    from ._constraints._abstract import AbstractCoupling as AbstractCoupling
    from ._constraints._cam import CamContact as CamContact
    from ._constraints._cam import RollingOnProfile as RollingOnProfile
    from ._constraints._chain import Chain as Chain
    from ._constraints._coupling import Coupling as Coupling
    from ._constraints._coupling import LinearCoupling as LinearCoupling
    from ._constraints._coupling import gear as gear
    from ._constraints._coupling import rack as rack
    from ._constraints._coupling import screw_coupling as screw_coupling
    from ._constraints._curve_contact import CurveContact as CurveContact
    from ._constraints._drive import AccelerationDrive as AccelerationDrive
    from ._constraints._drive import PositionDrive as PositionDrive
    from ._constraints._drive import VelocityDrive as VelocityDrive
    from ._constraints._points import Distance as Distance
    from ._constraints._points import PointOnLine as PointOnLine
    from ._constraints._points import PointOnPath as PointOnPath
    from ._constraints._points import PointOnPlane as PointOnPlane
    from ._constraints._points import PointOnSurface as PointOnSurface
    from ._constraints._prescribed_pose import PrescribedPose as PrescribedPose
    from ._constraints._profile import AbstractProfile as AbstractProfile
    from ._constraints._profile import Arcs as Arcs
    from ._constraints._profile import ArcsAndLines as ArcsAndLines
    from ._constraints._profile import SplineProfile as SplineProfile
    from ._constraints._profile import cam_profile as cam_profile
    from ._constraints._rolling import RollingDisc as RollingDisc
    from ._constraints._rolling import RollingSphere as RollingSphere
    from ._constraints._rolling import Skate as Skate
    from ._constraints._user import Constraint as Constraint
    from ._constraints._user import Nonholonomic as Nonholonomic
    from ._errors import MechanismError as MechanismError
    from ._joints._abstract import AbstractConstantJoint as AbstractConstantJoint
    from ._joints._abstract import AbstractJoint as AbstractJoint
    from ._joints._abstract import rank_deficient as rank_deficient
    from ._joints._angles123 import Angles123 as Angles123
    from ._joints._cylindrical import Cylindrical as Cylindrical
    from ._joints._free import Free as Free
    from ._joints._hinge import Hinge as Hinge
    from ._joints._planar import Planar as Planar
    from ._joints._point_on_curve import PointOnCurve as PointOnCurve
    from ._joints._prismatic import Prismatic as Prismatic
    from ._joints._revolute import Revolute as Revolute
    from ._joints._rotation_translation import RotationTranslation as RotationTranslation
    from ._joints._screw import Screw as Screw
    from ._joints._spherical import Spherical as Spherical
    from ._joints._universal import Universal as Universal
    from ._joints._weld import Weld as Weld
    from ._mechanism import Mechanism as Mechanism
    from ._spatial._pose import Pose as Pose
    from ._spatial._pose import rotation_about as rotation_about

    # TOPOLOGY and MODEL
    from ._model import Model as Model
    from ._model import compile as compile
    from ._topology import Topology as Topology

    # KINEMATICS
    from ._kinematics import Motion as Motion
    from ._kinematics import bias_acceleration as bias_acceleration
    from ._kinematics import center_of_mass as center_of_mass
    from ._kinematics import difference as difference
    from ._kinematics import jacobian as jacobian
    from ._kinematics import kinematics as kinematics
    from ._kinematics import momentum as momentum
    from ._kinematics import qdot as qdot
    from ._kinematics import retract as retract

    # DYNAMICS
    from ._dynamics import bias as bias
    from ._dynamics import inverse_dynamics as inverse_dynamics
    from ._dynamics import kinetic_energy as kinetic_energy
    from ._dynamics import mass_matrix as mass_matrix
    from ._dynamics import potential_energy as potential_energy

    # CLOSURE: loops, constraints, drives
    from ._closure import constraint_acceleration as constraint_acceleration
    from ._closure import constraint_bias as constraint_bias
    from ._closure import constraint_jacobian as constraint_jacobian
    from ._closure import constraint_rate as constraint_rate
    from ._closure import constraint_residual as constraint_residual
    from ._constrained import Dynamics as Dynamics
    from ._constrained import connection_power as connection_power
    from ._constrained import dynamics as dynamics
    from ._constrained import forward_dynamics as forward_dynamics

    # ASSEMBLY
    from ._assembly import State as State
    from ._assembly import assemble as assemble

    # MOBILITY and REACTIONS
    from ._mobility import Mobility as Mobility
    from ._mobility import mobility as mobility
    from ._reactions import Reactions as Reactions
    from ._reactions import reactions as reactions

    # KINEMATIC SIMULATION
    from ._kinematic_simulation import KinematicSimulation as KinematicSimulation
    from ._kinematic_simulation import simulate_kinematics as simulate_kinematics

    # SIMULATE
    from ._event import Event as Event
    from ._event import Instant as Instant
    from ._event import impact as impact
    from ._inputs import Table as Table
    from ._plan import FixedStep as FixedStep
    from ._results import RESULTS as RESULTS
    from ._simulate import simulate as simulate
    from ._solver import Auto as Auto
    from ._solver import Baumgarte as Baumgarte
    from ._solver import StoredSteps as StoredSteps
    from ._solver import Tolerance as Tolerance
    from ._solver import explicit as explicit
    from ._solver import implicit as implicit
    from ._trajectory import Statistics as Statistics
    from ._trajectory import Trajectory as Trajectory

    # SMALL MOTIONS: equilibrium and linearisation
    from ._equilibrium import Equilibrium as Equilibrium
    from ._equilibrium import equilibrium as equilibrium
    from ._independent import Independent as Independent
    from ._linearise import Linearisation as Linearisation
    from ._linearise import linearise as linearise

    # RESULTS in files
    from ._io._results import load as load
    from ._io._results import save as save

    # DIFFERENTIATE and BATCH
    from ._batches import batch as batch
    from ._curves import Bar as Bar
    from ._curves import Curves as Curves
    from ._curves import Tornado as Tornado
    from ._sensitivity import Influence as Influence
    from ._sensitivity import Sensitivity as Sensitivity
    from ._sensitivity import sensitivity as sensitivity
    from ._studies import AbstractSpread as AbstractSpread
    from ._studies import Failure as Failure
    from ._studies import LogNormal as LogNormal
    from ._studies import Normal as Normal
    from ._studies import Sweep as Sweep
    from ._studies import Uniform as Uniform
    from ._studies import monte_carlo as monte_carlo
    from ._studies import sweep as sweep

    # OPTIMISE
    from ._evaluations import Evaluations as Evaluations
    from ._evaluations import Record as Record
    from ._methods import SLSQP as SLSQP
    from ._methods import AbstractMethod as AbstractMethod
    from ._methods import Adam as Adam
    from ._methods import DifferentialEvolution as DifferentialEvolution
    from ._methods import LBFGSB as LBFGSB
    from ._methods import NelderMead as NelderMead
    from ._methods import Optax as Optax
    from ._methods import TrustConstr as TrustConstr
    from ._optimise import optimise as optimise
    from ._optimum import Iterate as Iterate
    from ._optimum import Optimum as Optimum
    from ._optimum import Start as Start
    from ._problem import Limit as Limit
    from ._transforms import Log as Log
    from ._transforms import Same as Same

    # FIT
    from ._channels import read_channel as read_channel
    from ._experiment import Experiment as Experiment
    from ._fit import Fit as Fit
    from ._fit import fit as fit
    from ._identify import Identified as Identified
    from ._measurement import Measurement as Measurement
    from ._measurement import read_csv as read_csv

    # OPTIMAL CONTROL
    from . import control as control

    # OTHER FORMULATIONS of the same motion
    from . import formulations as formulations

    # SHOW
    from ._literate import draw as draw
    from ._literate import settings as settings
    from ._viewer._html import animate as animate
    from ._viewer._live import view as view

__getattr__, __dir__ = lazily(__name__, __file__)
