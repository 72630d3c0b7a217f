// RDataFrame in the chapters sequential and selection; root_scan.cxx does the same with RNTupleReader.
//
//    root_frame objects FILE                all 10 KB objects: {id: uint64, blob: vector<uint8>}
//    root_frame rows FILE                   all objects of 10 fields and 100 bytes
//    root_frame columns FILE NAMES [THREADS]   jagged columns, those named: "a,b"
//    root_frame flat FILE NAMES             columns of one float in each entry
//    root_frame select FILE THREADS         the cut and the sums of the chapter selection
//
// FILE is ROOT's, or a federation (.fed) with the same data, which is read by Femtobarn's data source.
// All loops are compiled: the functions are typed, so the interpreter is not involved.

#include "root_common.hxx"

#include <ROOT/RDataFrame.hxx>
#include <ROOT/RNTupleDS.hxx>
#include <ROOT/RVec.hxx>
#include <TROOT.h>

#include <femtobarn_rdf.hxx>

namespace {

bool is_federation(const std::string &path)
{
   return path.size() > 4 && path.compare(path.size() - 4, 4, ".fed") == 0;
}

// The container that has the entries of an RNTuple (benches/chapters/inputs.py).
std::string container_of(const std::string &name)
{
   return (name == "objects" ? "objects/" : "own/") + name;
}

auto frame_of(std::string name, std::string path)
{
   return [=] {
      if (is_federation(path))
         return std::make_unique<ROOT::RDataFrame>(ROOT::RDF::FromFemtobarn(path, container_of(name)));
      return std::make_unique<ROOT::RDataFrame>(name, path);
   };
}

std::uint64_t entries_of(const std::string &name, const std::string &path)
{
   if (is_federation(path))
      return femtobarn::Federation::Open(path).Newest().Open(container_of(name)).Entries();
   return ROOT::RNTupleReader::Open(name, path)->GetNEntries();
}

// What a thread has seen; no two threads write to one line of the processor's cache.
struct alignas(64) Slot : Seen {};

Seen sum_of(const std::vector<Slot> &slots)
{
   Seen seen;
   for (const auto &slot : slots)
      seen += slot;
   return seen;
}

template <typename... Columns>
void by_dataframe(const char *ntuple, const char *path, const Names &names)
{
   measure(frame_of(ntuple, path), [&](auto frame) {
      std::vector<Slot> slots(frame->GetNSlots());
      frame->ForeachSlot(
         [&slots](unsigned slot, const Columns &...columns) {
            auto &seen = slots[slot];
            ++seen.fEntries;
            (seen.add(columns), ...);
         },
         names);
      return sum_of(slots);
   });
}

// Calls RDataFrame with columns of one type; their number must be one of those compiled here.
template <typename T, std::size_t>
using Same = T;

template <typename T, std::size_t... Indexes>
void by_dataframe(const char *ntuple, const char *path, const Names &names, std::index_sequence<Indexes...>)
{
   by_dataframe<Same<T, Indexes>...>(ntuple, path, names);
}

template <typename T>
void by_dataframe_of(const char *ntuple, const char *path, const Names &names)
{
   if (names.size() == 2)
      by_dataframe<T>(ntuple, path, names, std::make_index_sequence<2>());
   else if (names.size() == 41)
      by_dataframe<T>(ntuple, path, names, std::make_index_sequence<41>());
   else
      throw std::runtime_error("no loop is compiled for this number of columns");
}

void use_threads(const std::string &threads)
{
   if (threads != "1")
      ROOT::EnableImplicitMT(std::stoul(threads));
}

void select(const char *path)
{
   const auto entries = entries_of("events", path);
   measure(frame_of("events", path), [&](auto frame) {
      std::vector<Slot> slots(frame->GetNSlots());
      auto survivors = frame->Filter(passes, {"f00", "f01"});
      survivors.ForeachSlot(
         [&slots](unsigned slot, float f10, float f20, float f30) {
            slots[slot].add(f10);
            slots[slot].add(f20);
            slots[slot].add(f30);
         },
         {"f10", "f20", "f30"});
      Seen seen{entries};
      seen += sum_of(slots);
      return seen;
   });
}

void run(const Names &arguments)
{
   const auto &mode = arguments.at(0);
   const auto *path = arguments.at(1).c_str();
   if (mode == "objects")
      by_dataframe<std::uint64_t, ROOT::RVec<std::uint8_t>>("objects", path, {"id", "blob"});
   else if (mode == "rows")
      by_dataframe<std::uint32_t, std::uint64_t, double, double, double, double, double, ROOT::RVecF, ROOT::RVecF,
                   ROOT::RVec<std::uint16_t>>("rows", path, kRowFields);
   else if (mode == "columns") {
      use_threads(arguments.size() > 3 ? arguments[3] : "1");
      by_dataframe_of<ROOT::RVecF>("events", path, names_in(arguments.at(2)));
   }
   else if (mode == "flat")
      by_dataframe_of<float>("events", path, names_in(arguments.at(2)));
   else if (mode == "select") {
      use_threads(arguments.at(2));
      select(path);
   }
   else
      throw std::runtime_error("no mode " + mode);
}

} // namespace

int main(int count, char **arguments)
{
   return guarded("root_frame", run, count, arguments);
}
