"""Recalls: files on tapes that several clients request at once, in the order of the tapes or of the requests.

`site` makes a federation whose files are in a played tape library alone; `clients` ask a server for them, by
the WLCG Tape REST API, or stage one after the other; `fairness` computes when a client's last file was due;
`workload` is the table ``[recall]`` of a workload's file, and runs it; `tables`, `plots` and `page` show a
run.
"""
