"""Writes an RNTuple with an optional field, with real ROOT.

python root_optional.py FILE
"""

from __future__ import annotations

import sys

import ROOT

model = ROOT.RNTupleModel.Create()
model.MakeField["int"]("number")
model.MakeField["std::optional<float>"]("weight")
writer = ROOT.RNTupleWriter.Recreate(model, "ntuple", sys.argv[1])
writer.Fill(writer.CreateEntry())
del writer
