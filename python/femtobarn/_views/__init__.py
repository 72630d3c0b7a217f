"""Containers as of a snapshot. Knows ``_schema``, ``_data``, ``_query``, ``_objects`` and exports.

- ``scans``: a condition evaluated over ranges of entries, chunk by chunk.
- ``lazy_arrays``: arrays whose fields are read when they are used.
- ``explanations``: explanations of reads with a condition.
- ``batches``: a range of entries part by part, read ahead.
- ``column_reader``: columns of a range of entries, whole or of the entries that a condition selects.
- ``requests``: the fields that a call reads, and the columns that it returns, also computed ones and those
  behind links.
- ``columns``: fields of many objects as arrays: at once, in batches, and in files.
- ``arrow_streams``: the objects of a read as a stream of Arrow; ``lazy_frames``: as a lazy frame of Polars.
- ``polars_conditions``: conditions of Polars in the words of ``where``.
- ``partitions``: ranges of objects for other processes.
- ``histograms``: histograms of the entries that a condition selects.
- ``summaries``: a container at a glance.
- ``descriptions``: numbers, limits and means of the values of fields.
- ``ordering``: the order of objects by the values of fields.
- ``object_values``: the interface by which the extension module makes objects.
- ``view``: a container, or a range of its entries.
- ``picked``: the objects that a mask or positions pick, as a view. ``view`` and ``picked`` know each other:
  to index one gives the other.
- ``friends``: a container with others that have more columns for its objects, read as one.
- ``collection``: several views as one; ``picked_collection``: the objects of it that a mask, positions or an
  order pick. These know each other, too.
"""
