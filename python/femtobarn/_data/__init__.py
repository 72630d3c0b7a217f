"""Arrays in memory: of any library to columns of the engine, and back. Imports ``_schema`` and OIDs.

- ``casts``: numbers converted to the type of a field, or refused.
- ``arrow``: Arrow data as awkward layouts.
- ``layouts``: data of any library as awkward layouts.
- ``arrays``: layouts matched against a class, as columns that the engine takes.
- ``rows``: rows of columns, picked by their positions.
- ``arrow_maps``: dictionaries in Arrow tables.
- ``results``: columns from the engine as arrays of the library that the user chooses.
- ``picking``: items of lists picked by indices.
- ``layout_types``: the types of layouts; ``typed_layouts``: layouts converted to a type that holds more.

Each imports only those before it.
"""
