"""For extension modules built before ``_schema`` was a room."""

from ._schema.declared_fields import surplus_of as surplus_of
