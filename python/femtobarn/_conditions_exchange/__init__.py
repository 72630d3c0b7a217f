"""Conditions of other systems, imported into a federation; and conditions exported to files.

Imports ``_conditions`` and what it imports.

- ``sources``: the sources of an import: series, their conditions, payloads and global tags.
- ``checksums``, ``sqlite_files``, ``rest``: reading files and servers, every answer checked.
- One reader for each system: ``cms``, ``belle2``, ``nopayloaddb``, ``crest``.
- ``json_values``: values of classes as JSON and back. ``row_files``: CSV and JSON lines.
- ``sqlite_exports``: the SQLite files that exports write.
- ``payload_store``: payloads as objects, each stored once.
- ``import_records``: which series came from which source.
- ``imports`` and ``exports``: the two public functions.

Invariants
----------
1. An import is one transaction. It commits only after all of its source was read and every hash was checked.
2. A series is never mixed from two sources, and never has the conditions of its source twice.
"""
