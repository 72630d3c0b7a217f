"""The demo: real and simulated collision events in one federation, from writing to a picture.

``python -m femtobarn_demo`` (or ``make demo``) writes everything to one folder. It

a. imports and attaches files of experiments that public packages ship;
b. streams simulated raw events from several writer processes, each into its own database;
c. reconstructs them in several processes, into other databases, with links back to the raw objects and with
   nominal constants of calibration;
d. measures better constants by hours of the run, reconstructs some events again with them, and repeats the
   first pass on some events to show that it gives the same bytes;
e. selects events by tag and follows their links to the space points;
f. seals a database and opens it with ROOT and uproot;
g. copies that database to an object store, removes it from the disk, and reads it by a selection of tags;
h. writes ``report.html`` and prints the numbers.

Needs the extra `demo`. The command ``femtobarn demo`` makes a smaller federation without it, of steps b to d
(`small_federation`). `steps` has these steps, over `acquisition` (b and c) and `reprocessing` (d), in
processes of `workers`, `calibration` (d), `external_readers` (f), `object_store` (g) and `demo_report` (h);
`sources` simulates events, `reconstruction` reconstructs them, `report` draws plain arrays.
"""
