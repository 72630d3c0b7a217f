"""Conditions: calibrations and detector states, each valid for a range of time or of runs.

Imports ``_snapshots``, ``_views``, ``_writers`` and what these import.

- ``clocks``: times and runs as the integers that are stored, and back.
- ``channels``: channels as the integers that are stored.
- ``payloads``: conditions that are opaque bytes, with their hash.
- ``series``: reading one series as of a snapshot.
- ``series_writers``: inserting into a series, within a transaction.
- ``run_tables``: from times to runs and back.
- ``segments``: the resolved validities of one channel as arrays, and their differences.
- ``event_joins``: events with the conditions at their moments.
- ``planned_jobs``: events of any containers, in the order of time.
- ``event_lists``, ``plan_costs``, ``job_plans``: events divided into planned jobs, and the reads that this
  saves.
- ``plan_files``: plans as JSON.
- ``jobs``: the series that a global tag names, resolved once.
- ``comparisons``: the differences between two jobs, with their ranges.
- ``checks``: whether global tags still name the same versions.
- ``coverages``: the parts of series that snapshot files have.
- ``manifests``: the contents of a snapshot file, and their hashes.
- ``conditions_files``: snapshot files as jobs.
- ``snapshot_files``: writing them.
- ``readings``, ``reading_lines``, ``mqtt_source``: raw values from text and messages, checked and converted.
- ``recorders``, ``reading_sources``: recording them, a transaction for each batch.
- ``corrections``: the ranges that new, updated, ended and deleted conditions can have changed.
- ``reductions``, ``derived_series``, ``reduction_runs``: offline series that are derived from raw ones.
- ``merges``: the changes of a branch, put into the series.
- ``global_tags``: names for a version of every series.

Each imports only those before it.
"""
