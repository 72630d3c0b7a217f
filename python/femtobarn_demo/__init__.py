"""The demo: real and simulated collision events in one federation, from writing to a picture.

``python -m femtobarn_demo`` (or ``make demo``) writes everything to one folder. It

a. imports and attaches files of experiments that public packages ship;
b. streams simulated raw events from several writer processes, each into its own database;
c. reconstructs them in several processes, into other databases, with links back to the raw objects;
d. selects events by tag and follows their links to the space points;
e. seals a database and opens it with ROOT and uproot;
f. writes ``report.html`` and prints the numbers.

Needs the extra `demo`. `steps` has these steps, over `acquisition` (b and c, in processes of `workers`),
`external_readers` (e) and `demo_report` (f); `sources` simulates events, `reconstruction` reconstructs
them, `report` draws plain arrays.
"""
