"""Value types that travel between the folders and into files: tensors, bundles, processors, profiles, plans.

Plain frozen records without behaviour beyond look-up; nothing here does I/O or imports a runtime.
"""

from edgeengine.spec.bundle import Manifest, SubgraphSpec
from edgeengine.spec.effects import Effects, Link, Throttle
from edgeengine.spec.placement import Fallback, Placement
from edgeengine.spec.plan import Guarantee, Guidance, Plan, Slot, Step, TaskPlan, Timetable
from edgeengine.spec.processor import Processor
from edgeengine.spec.profile import Latency, MachineRow, ProfileRow
from edgeengine.spec.schema import Versioned
from edgeengine.spec.tensor import TensorSpec, format_shape, parse_shape

__all__ = [
    "Effects",
    "Fallback",
    "Guarantee",
    "Guidance",
    "Latency",
    "Link",
    "MachineRow",
    "Manifest",
    "Placement",
    "Plan",
    "Processor",
    "ProfileRow",
    "Slot",
    "Step",
    "SubgraphSpec",
    "TaskPlan",
    "TensorSpec",
    "Throttle",
    "Timetable",
    "Versioned",
    "format_shape",
    "parse_shape",
]
