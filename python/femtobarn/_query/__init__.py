"""The fields and the entries that are read. Imports ``_schema`` and ``_data``.

- ``paths``: expressions for fields, such as ``"Muon_*"``, expanded to dotted names.
- ``projections``: the fields to read, and the order in which they are returned.
- ``syntax``: texts as Python's syntax trees.
- ``missing_values``: conditions on values that may be missing.
- ``comparisons``: conditions that NumPy evaluates faster than numexpr.
- ``elements``: paths that lead through an index to an element of a collection of the same object.
- ``array_terms``: terms that awkward computes, of texts, lists, missing values and links.
- ``function_terms``: functions of arrays.
- ``meant_constants``: times and members that a condition names, as fields store them.
- ``rewriting``: the text of a condition as an expression of numexpr.
- ``aliases``: columns that are computed as conditions are.
- ``selection``: the condition ``where``, parsed, divided into parts, and evaluated.
- ``intervals``: interval arithmetic on the statistics of clusters.
- ``pruning``: the clusters that a selection leaves out by their statistics.

Each imports only those before it.
"""
