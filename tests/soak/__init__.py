"""The soak: a site of three servers under clients, operators and faults for minutes or hours; `make soak`.

``python -m soak --minutes 60`` writes ``soak/report.html``. From the processes to the verdict: `clients`
are programs of all kinds, whose operations `log` keeps; `operators` does what operators do, and what
befalls a site; `samples` measures the servers meanwhile; `judge` compares the federation with what clients
were told; `slopes` finds what grows; `report` draws all of it. `run` puts them together, on the site of
`examples/site`.
"""
