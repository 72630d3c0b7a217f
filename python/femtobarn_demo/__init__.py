"""The demo: real and simulated collision events through a federation, from writing to a picture.

``python -m femtobarn_demo`` (or ``make demo``) makes everything in one folder:

a. imports and attaches the files of experiments that public packages ship;
b. lets writer processes stream simulated raw events into a database each, in transactions;
c. lets clients reconstruct them into other databases, with links back to the raw objects;
d. selects events by tag and follows their links to the space points;
e. seals a database and opens it as the ROOT file that it is;
f. writes ``report.html`` and prints the numbers.

Needs the extra `demo`.
"""
