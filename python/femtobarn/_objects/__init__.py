"""Objects one by one, and the links between them. Imports ``_schema`` and ``_data``.

- ``live_entries``: the entries that have objects where some were deleted.
- ``objects``: values, records and links of one object. The extension module uses the names imported below.
- ``changes``: the arguments of updates and deletions: which objects, which new values.
- ``link_arrays``: links in awkward arrays. It imports awkward, and so is imported only when it is needed.
"""

from .objects import ElementRef, LinkList, LinkRef, Object, RecordValue, _object_at, plain_value

__all__ = ["ElementRef", "LinkList", "LinkRef", "Object", "RecordValue", "_object_at", "plain_value"]
