"""Eviction: policies that choose the files to remove from a full disk, replayed on traces of reads.

`traces` reads a recorded trace, `synthetic` makes one from a model of a site; `policies` has the policies and
`bound` what a policy that knew the future would do; `replay` runs one on a disk with a high and a low mark;
`workload` is the table ``[replay]`` of a workload's file, and runs it; `tables`, `plots` and `page` show a
run. No client, server or federation takes part, so a replay has no noise: a seed determines all numbers.
"""
