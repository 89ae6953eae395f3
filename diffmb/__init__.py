"""diffmb: exact gradients of transient, stiff, closed-loop mechanisms."""

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
from ._dynamics import forward_dynamics as forward_dynamics
from ._dynamics import inverse_dynamics as inverse_dynamics
from ._dynamics import kinetic_energy as kinetic_energy
from ._dynamics import mass_matrix as mass_matrix
from ._dynamics import potential_energy as potential_energy
