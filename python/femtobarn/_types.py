"""For extension modules built before ``_schema`` was a room."""

from ._schema.types import *  # noqa: F403
from ._schema.types import DTYPES as DTYPES
