"""Reads one field of an RNTuple at a URL in ROOT's three ways; prints the sums as JSON.

python root_remote.py URL NTUPLE FIELD
"""

from __future__ import annotations

import json
import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Open the RNTuple, and print the field's sum in each way."""
    import ROOT

    url, name, field = sys.argv[1:]
    # Otherwise ROOT opens files of a server on this machine as local files.
    ROOT.gEnv.SetValue("Path.ForceRemote", 1)
    file = ROOT.TFile.Open(url)
    keys = sorted(key.GetName() for key in file.GetListOfKeys())
    reader = ROOT.RNTupleReader.Open(name, url)
    view = reader.GetView["std::uint32_t"](field)
    by_reader = sum(view(entry) for entry in range(reader.GetNEntries()))
    frame = ROOT.RDataFrame(name, url)
    print(json.dumps({"keys": keys, "reader": int(by_reader), "frame": int(frame.Sum(field).GetValue())}))
    sys.stdout.flush()
    # At exit XRootD's client may be destroyed before ROOT closes its last remote file.
    os._exit(0)


if __name__ == "__main__":
    main()
