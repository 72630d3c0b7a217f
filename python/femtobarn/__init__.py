"""An object database for physics events whose database files are ROOT files.

Examples
--------
>>> import femtobarn as fb, tempfile
>>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
>>> @fb.persistent
... class Event:
...     run: fb.uint32
...     pt: list[fb.float32]
>>> with fed.transaction(message="run 7") as txn:
...     events = txn.database("run7", create=True).container("events", Event, create=True)
...     oid = events.append(Event(run=7, pt=[1.5, 2.5]))
...     oids = events.extend({"run": [7, 7], "pt": [[], [3.5]]})
>>> fed["run7/events"].arrays("pt", where="npt > 0").to_list()
[{'pt': [1.5, 2.5]}, {'pt': [3.5]}]
>>> fed["run7/events"][0].pt
array([1.5, 2.5], dtype=float32)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._conditions.payloads import LinkedPayload, Payload, payload_bytes
from ._exceptions import (
    BusyError,
    ClosedError,
    ConflictError,
    CorruptError,
    DeniedError,
    ExistsError,
    FemtobarnError,
    InternalError,
    InvalidError,
    MergeConflictError,
    NotFoundError,
    StorageError,
    UnavailableError,
    UnsupportedError,
    WrongTypeError,
)
from ._federations import Federation, create, open
from ._femtobarn import __version__
from ._forks import Fork, Receipt, Task, TaskContainer
from ._objects.objects import ElementRef, LinkList, LinkRef, Object
from ._objects.vectors import vector
from ._oid import Oid, OidArray, OidRange
from ._schema.annotations import (
    array,
    bitset,
    bool_,
    byte,
    char,
    element_link,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    link,
    quantised,
    string,
    truncated,
    uint8,
    uint16,
    uint32,
    uint64,
    variant,
)
from ._schema.classes import definition_of, field, is_persistent, persistent
from ._schema.types import Definition
from ._snapshots import Snapshot
from ._storage import AppliedRules, Copy, MovedCatalogue, Pin, Residence, SiteServer
from ._tiers import TierStatistics
from ._transactions import Savepoint, Transaction
from ._upkeep import (
    Attached,
    BackupReport,
    CheckReport,
    Compacted,
    Problem,
    RepairReport,
    VacuumReport,
)
from ._views.view import View
from ._writers import ContainerWriter, Database

if TYPE_CHECKING:
    from ._conditions.comparisons import Difference, changed
    from ._conditions.conditions_files import ConditionsFile
    from ._conditions.global_tags import Conditions
    from ._conditions.job_plans import JobPlan
    from ._conditions.jobs import Job
    from ._conditions.merges import Conflict, Merged
    from ._conditions.plan_costs import PlanCosts, SeriesCosts
    from ._conditions.plan_files import load_plan
    from ._conditions.planned_jobs import PlannedJob
    from ._conditions.reduction_runs import Reduced
    from ._conditions.reductions import DeadBand, Function, Mean, RawField
    from ._conditions.run_tables import RunTable
    from ._conditions.series import Interval, Series
    from ._conditions.series_writers import SeriesWriter
    from ._conditions_exchange.exports import export_conditions
    from ._conditions_exchange.imports import ImportedConditions, import_conditions
    from ._exchange.import_target import Imported
    from ._friend_writers import FriendWriter
    from ._open_conditions import conditions, open_conditions
    from ._recovery import identify, rebuild_catalogue, restore
    from ._replication import Follower, FollowerState, Promotion, follow, forget_former_leader, promote
    from ._serving import Server, serve
    from ._views.collection import Collection, concat
    from .datamodel import Model, load_model

__all__ = [
    "AppliedRules",
    "Attached",
    "BackupReport",
    "BusyError",
    "CheckReport",
    "ClosedError",
    "Collection",
    "Compacted",
    "Conditions",
    "ConditionsFile",
    "Conflict",
    "ConflictError",
    "ContainerWriter",
    "Copy",
    "CorruptError",
    "Database",
    "DeadBand",
    "Definition",
    "DeniedError",
    "Difference",
    "ElementRef",
    "ExistsError",
    "Federation",
    "FemtobarnError",
    "Follower",
    "FollowerState",
    "Fork",
    "FriendWriter",
    "Function",
    "Imported",
    "ImportedConditions",
    "InternalError",
    "Interval",
    "InvalidError",
    "Job",
    "JobPlan",
    "LinkList",
    "LinkRef",
    "LinkedPayload",
    "Mean",
    "MergeConflictError",
    "Merged",
    "Model",
    "MovedCatalogue",
    "NotFoundError",
    "Object",
    "Oid",
    "OidArray",
    "OidRange",
    "Payload",
    "Pin",
    "PlanCosts",
    "PlannedJob",
    "Problem",
    "Promotion",
    "RawField",
    "Receipt",
    "Reduced",
    "RepairReport",
    "Residence",
    "RunTable",
    "Savepoint",
    "Series",
    "SeriesCosts",
    "SeriesWriter",
    "Server",
    "SiteServer",
    "Snapshot",
    "StorageError",
    "Task",
    "TaskContainer",
    "TierStatistics",
    "Transaction",
    "UnavailableError",
    "UnsupportedError",
    "VacuumReport",
    "View",
    "WrongTypeError",
    "__version__",
    "array",
    "bitset",
    "bool_",
    "byte",
    "changed",
    "char",
    "concat",
    "conditions",
    "create",
    "definition_of",
    "element_link",
    "export_conditions",
    "field",
    "float16",
    "float32",
    "float64",
    "follow",
    "forget_former_leader",
    "identify",
    "import_conditions",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_persistent",
    "link",
    "load_model",
    "load_plan",
    "open",
    "open_conditions",
    "payload_bytes",
    "persistent",
    "promote",
    "quantised",
    "rebuild_catalogue",
    "restore",
    "serve",
    "string",
    "truncated",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "variant",
    "vector",
]

_LATE = {
    "_conditions.comparisons": ("Difference", "changed"),
    "_conditions.conditions_files": ("ConditionsFile",),
    "_conditions.global_tags": ("Conditions",),
    "_conditions.job_plans": ("JobPlan",),
    "_conditions.jobs": ("Job",),
    "_conditions.merges": ("Conflict", "Merged"),
    "_conditions.plan_costs": ("PlanCosts", "SeriesCosts"),
    "_conditions.plan_files": ("load_plan",),
    "_conditions.planned_jobs": ("PlannedJob",),
    "_conditions.reduction_runs": ("Reduced",),
    "_conditions.reductions": ("DeadBand", "Function", "Mean", "RawField"),
    "_conditions.run_tables": ("RunTable",),
    "_conditions.series": ("Interval", "Series"),
    "_conditions.series_writers": ("SeriesWriter",),
    "_conditions_exchange.exports": ("export_conditions",),
    "_conditions_exchange.imports": ("ImportedConditions", "import_conditions"),
    "_exchange.import_target": ("Imported",),
    "_friend_writers": ("FriendWriter",),
    "_open_conditions": ("conditions", "open_conditions"),
    "_recovery": ("identify", "rebuild_catalogue", "restore"),
    "_replication": ("Follower", "FollowerState", "Promotion", "follow", "forget_former_leader", "promote"),
    "_serving": ("Server", "serve"),
    "_views.collection": ("Collection", "concat"),
    "datamodel": ("Model", "load_model"),
}
"""Names that not every program needs, by their modules, which take longer to import than all others."""

_MODULE_OF = {name: module for module, names in _LATE.items() for name in names}
_MODULES = ("coffea", "dask", "datamodel", "root")
"""Modules that are imported when they are first used."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, *_MODULES})
