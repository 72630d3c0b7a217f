"""Hot files: many clients read one file, which caches copy meanwhile, and drop afterwards.

`site` runs an origin, caches of it and a redirector, each a process at an address of its own; `clients` are
threads in a few processes with XRootD's client; `phases` derives figures from what they read; `workload` is
the table ``[hot]`` of a workload's file, and runs it; `tables`, `plots` and `page` show a run.
"""
