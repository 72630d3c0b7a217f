"""Files of other formats: objects exported to them, and imported from them.

- ``exports``: objects of views as RNTuple, Parquet or Arrow files.
- ``origins``: which files were imported, kept in the database that they went to.
- ``import_plan``: which tree goes into which container, and of what class.
- ``batches``: trees read ahead, by a thread or by processes.
- ``imports``: trees copied into containers, in one transaction.
- ``table_files``: Parquet and Arrow files, and RNTuples of ROOT files, copied into a container.

Views and snapshots know ``exports``. The rest uses the public methods of a federation and its transactions,
and the sources of trees that :mod:`femtobarn.importers` makes.
"""
