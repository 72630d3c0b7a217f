"""Tracks with links to their hits in another database, followed one by one and for all tracks at once."""

import tempfile

import awkward as ak

import femtobarn as fb


@fb.persistent
class Hit:
    x: fb.float32
    charge: fb.float32


@fb.persistent
class Track:
    pt: fb.float32
    hits: list[fb.link["Hit"]]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, fb.create(f"{folder}/lhc.fed") as fed:
        with fed.transaction() as txn:
            hits = txn.database("raw", create=True).container("hits", Hit, create=True)
            tracks = txn.database("reco", create=True).container("tracks", Track, create=True)
            for n in range(100):
                found = [hits.append(Hit(x=n + 0.1 * layer, charge=layer)) for layer in range(5)]
                tracks.append(Track(pt=n, hits=[*found]))

        track = fed["reco/tracks"][42]
        print("hits of track 42 at", [round(hit.x, 1) for hit in track.hits])
        # For all tracks at once: a link in an array has the entry number of its target.
        links = fed["reco/tracks"].arrays("hits")["hits"]
        charge = fed["raw/hits"].arrays("charge")["charge"][ak.flatten(links.entry)]
        print("charge of each track:", ak.sum(ak.unflatten(charge, ak.num(links)), axis=1)[:3].to_list())


if __name__ == "__main__":
    main()
