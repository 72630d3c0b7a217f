"""Which fields and which entries are read. Knows ``_schema`` and ``_data``.

- ``paths``: expressions for fields, such as ``"Muon_*"``, expanded to dotted names.
- ``projections``: the fields to read, and the order in which they are returned.
- ``missing_values``, ``comparisons``: parts of the evaluation of a condition.
- ``selection``: the condition ``where``, parsed and evaluated.
- ``intervals``, ``pruning``: clusters that no selected entry can be in, by their statistics.

Each knows only those before it.
"""
