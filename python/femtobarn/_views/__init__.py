"""Containers as of a snapshot. Knows ``_schema``, ``_data``, ``_query``, ``_objects`` and exports.

- ``scans``: a condition evaluated over ranges of entries, chunk by chunk.
- ``lazy_arrays``: arrays whose fields are read when they are used.
- ``explanations``: what a read with a condition does.
- ``batches``: a range of entries part by part, read ahead.
- ``column_reader``: columns of a range of entries, whole or of the entries that a condition selects.
- ``histograms``: histograms of the entries that a condition selects.
- ``summaries``: what people look at first.
- ``view``: a container, or a range of its entries.
- ``picked``: the objects that a mask or positions pick, as a view. ``view`` and ``picked`` know each other:
  to index one gives the other.
"""
