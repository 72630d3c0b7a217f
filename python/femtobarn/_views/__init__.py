"""Containers as of a snapshot. Knows ``_schema``, ``_data``, ``_query``, ``_objects`` and exports.

- ``scans``: a condition evaluated over ranges of entries, chunk by chunk.
- ``batches``: a range of entries part by part, read ahead.
- ``column_reader``: columns of a range of entries, whole or of the entries that a condition selects.
- ``view``: a container, or a range of its entries.
- ``picked``: the objects that a mask or positions pick, as a view. ``view`` and ``picked`` know each other:
  to index one gives the other.
"""
