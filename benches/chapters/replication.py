"""A copy that follows its leader."""

from __future__ import annotations

from framework import Figure, Headline, Side, at_last, cpu_per_100_mb, flat, highest, last

TITLE = "Copies that follow"
INTRO = """A follower, its leader's server and a process that commits, all on one machine."""

WORK = "{work}/replicated"
RATE = "200"
SECONDS = "5"
COMMITS = "50"
CONTAINERS = ("10", "1000", "20000")
CLIENTS = "60"
READ_SECONDS = "10"
FOLLOWERS = ("0", "1", "2")
SCALING = "rate, by that of the leader alone"
BEHIND = "s until the copy had a commit, at most"

GROUP = "Stores and copies"
NO_PEER = "no peer follows commits"

PREPARATIONS = ()

FIGURES: tuple[Figure, ...] = (
    Figure(
        "replication-rate",
        "Follow commits of 10 MB",
        "commits",
        (Side("Follower", ("replicated.py", "rate", WORK, RATE, SECONDS), "ours", cores=2),),
        (cpu_per_100_mb("Follower", 0.1),),
        x="MB/s committed",
        y=BEHIND,
        headlines=(
            Headline(
                GROUP,
                f"Wait until a copy has a commit, while {RATE} MB are committed a second",
                "Follower",
                last("s at most"),
                highest("Follower", 1.0, BEHIND),
                no_limit="the network's round trip",
                no_peer=NO_PEER,
            ),
        ),
    ),
    Figure(
        "replication-containers",
        "Follow commits in federations of many containers",
        "commits",
        (
            Side(
                "Leader's server",
                ("replicated.py", "containers", WORK, COMMITS, *CONTAINERS),
                "ours",
                cores=2,
            ),
        ),
        (flat("Leader's server", 2.0),),
        x="containers",
        y="us of CPU of the leader's server for a commit",
    ),
    Figure(
        "replication-readers",
        "60 clients read at a leader and its followers, with a played disk each",
        "reads",
        (
            Side(
                "Followers",
                ("followers.py", "{work}/followers", CLIENTS, READ_SECONDS, *FOLLOWERS),
                "ours",
                cores=2,
                needs=("xrdcp",),
            ),
        ),
        x="followers",
        y=SCALING,
        headlines=(
            Headline(
                GROUP,
                "Read with 60 clients at a leader and two copies, with a simulated disk each",
                "Followers",
                last("times the leader's rate", less=False),
                at_last("Followers", 2.8, SCALING),
                no_limit="three disks: 3",
                no_peer=NO_PEER,
            ),
        ),
    ),
)
"""The chapter's figures."""
