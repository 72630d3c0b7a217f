"""Conditions: calibrations and detector states, each valid for a range of time or of runs.

Imports ``_snapshots``, ``_views``, ``_writers`` and what these import.

- ``clocks``: times and runs as the integers that are stored, and back.
- ``channels``: channels as the integers that are stored.
- ``payloads``: conditions that are opaque bytes, with their hash.
- ``series``: reading one series as of a snapshot.
- ``series_writers``: inserting into a series, within a transaction.
- ``run_tables``: from times to runs and back.
- ``segments``: what is valid when in one channel, as arrays; what differs.
- ``event_joins``: events with the conditions at their moments.
- ``planned_jobs``: events of any containers, in the order of time.
- ``event_lists``, ``plan_costs``, ``job_plans``: events divided into such jobs, and what that saves.
- ``plan_files``: plans as JSON.
- ``jobs``: the series that a global tag names, resolved once.
- ``comparisons``: what differs between two jobs, and when.
- ``checks``: whether global tags still name what they named.
- ``coverages``: the parts of series that snapshot files have.
- ``manifests``: what a snapshot file has, and its hashes.
- ``conditions_files``: snapshot files as jobs.
- ``snapshot_files``: writing them.
- ``readings``, ``reading_lines``, ``mqtt_source``: raw values from text and messages, checked and converted.
- ``recorders``, ``reading_sources``: recording them, a transaction for each batch.
- ``corrections``: what new, updated, ended and deleted conditions can have changed.
- ``reductions``, ``derived_series``, ``reduction_runs``: offline series that are derived from raw ones.
- ``merges``: what a branch has changed, put into the series.
- ``global_tags``: names for a version of every series.

Each imports only those before it.
"""
