"""Files of other formats: objects exported to them, and imported from them.

- ``exports``: objects of views as RNTuple, Parquet or Arrow files. ``podio_files``: events in podio's layout.
- ``import_target``: a federation as far as imports use it, and the result of an import.
- ``origins``: which files the objects of a database came from, kept in the database.
- Trees: ``import_plan`` chooses the container and the class of each, ``batches`` reads them ahead in a thread
  or in processes, ``tree_imports`` copies them in one transaction, ``link_counts`` counts links that lead
  nowhere.
- Other files are known by their names (``file_kinds``). Each is opened as a ``file_source``, which
  ``file_imports`` copies: ``ntuples``; ``table_files`` and ``csv_files``, which pyarrow reads; ``hdf5_files``
  with ``hdf5_values`` and ``pandas_stores``; ``lhe_files`` and ``hepmc_files`` with ``column_layouts``. Files
  of text are ``text_streams``.
- ``imports``: the methods of a federation that import.

Views and snapshots know ``exports``. Imports use the public methods of a federation and its transactions,
and the sources of trees that :mod:`femtobarn.importers` makes.
"""
