"""Objects one by one, and the links between them. Imports ``_schema`` and ``_data``.

- ``live_entries``: the entries that have objects where some were deleted.
- ``objects``: values, records and links of one object. The extension module uses the names imported below.
- ``plain_values``: values in Python's own types; it and ``objects`` know each other.
- ``changes``: the arguments of updates and deletions: which objects, which new values.
- ``behaviours``: the methods of declared classes on objects and arrays; ``vectors``: those of scikit-hep's
  vector.
- ``owned_collections``: collections of an object that lead to each other by indices.
- ``friend_objects``: objects of a container that has friends.
- ``link_arrays``, ``array_classes``: links, and objects of declared classes, in awkward arrays. They import
  awkward, and so are imported only when they are needed.
"""

from .objects import (
    ElementRef,
    LinkList,
    LinkRef,
    Object,
    RecordValue,
    _object_at,
    has_python_values,
)
from .plain_values import _object_html, plain_value

__all__ = [
    "ElementRef",
    "LinkList",
    "LinkRef",
    "Object",
    "RecordValue",
    "_object_at",
    "_object_html",
    "has_python_values",
    "plain_value",
]
