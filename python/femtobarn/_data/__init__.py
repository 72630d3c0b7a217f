"""Arrays in memory: from any library to the engine's columns, and back. Knows ``_schema`` and OIDs.

- ``casts``: which numbers go into which type, rounded or refused.
- ``arrow``: data that come as Arrow streams.
- ``layouts``: data of any library as awkward layouts.
- ``arrays``: layouts matched against a class, as the columns that the engine takes.
- ``results``: columns that the engine gave, as arrays of the library that the user asked for.

Each knows only those before it.
"""
