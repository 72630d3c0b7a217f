"""Objects one by one, and the links between them. Knows ``_schema`` and ``_data``.

- ``live_entries``: the entries that have objects where some were deleted.
- ``objects``: values, records and links of one object. The extension module takes what is imported here.
- ``changes``: the arguments of updates and deletions: which objects, which new values.
- ``link_arrays``: links inside awkward arrays. It imports awkward, so that it is imported when first needed.
"""

from .objects import ElementRef, LinkList, LinkRef, Object, RecordValue, _object_at, plain_value

__all__ = ["ElementRef", "LinkList", "LinkRef", "Object", "RecordValue", "_object_at", "plain_value"]
