"""Files of other formats: objects exported to them, and imported from them.

- ``exports``: objects of views as RNTuple, Parquet or Arrow files.
- ``import_target``: a federation as far as imports use it, and the result of an import.
- ``origins``: which files the objects of a database came from, kept in the database.
- Trees: ``import_plan`` chooses the container and the class of each, ``batches`` reads them ahead in a thread
  or in processes, ``tree_imports`` copies them in one transaction.
- Tables and RNTuples: ``table_files`` and ``ntuples`` open one as a ``file_source``, ``file_imports`` copies
  it.
- ``imports``: the methods of a federation that import.

Views and snapshots know ``exports``. Imports use the public methods of a federation and its transactions,
and the sources of trees that :mod:`femtobarn.importers` makes.
"""
