"""Containers as of a snapshot. Knows ``_schema``, ``_data``, ``_query``, ``_objects`` and exports.

- ``view``: a container, or a range of its entries.
- ``picked``: objects picked by a mask or by their positions, which are a view as well.
"""
