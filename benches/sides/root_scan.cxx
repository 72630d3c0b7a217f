// ROOT's RNTupleReader in the chapters sequential and selection.
//
//    root_scan objects FILE views|bulk               all 10 KB objects: {id: uint64, blob: vector<uint8>}
//    root_scan rows FILE entries|views               all objects of 10 fields and 100 bytes
//    root_scan columns FILE NAMES views|bulk         jagged columns, those named: "a,b"
//    root_scan flat FILE NAMES views|bulk            columns of one float in each entry
//    root_scan select FILE                           the cut and the sums of the chapter selection, with views

#include "root_common.hxx"

#include <ROOT/RNTupleModel.hxx>
#include <ROOT/RNTupleReader.hxx>
#include <ROOT/RVec.hxx>

namespace {

using Bytes = ROOT::RVec<std::uint8_t>;

auto reader_of(std::string name, std::string path)
{
   return [=] { return ROOT::RNTupleReader::Open(name, path); };
}

// One view for each field, entry by entry, like an analysis loop.
template <typename T>
void by_views(const char *ntuple, const char *path, const Names &names)
{
   measure(reader_of(ntuple, path), [&](auto reader) {
      std::vector<ROOT::RNTupleView<T>> views;
      for (const auto &name : names)
         views.push_back(reader->template GetView<T>(name));
      Seen seen{reader->GetNEntries()};
      for (std::uint64_t entry = 0; entry < seen.fEntries; ++entry) {
         for (auto &view : views)
            seen.add(view(entry));
      }
      return seen;
   });
}

// The values of one field in a cluster, read at once.
template <typename T>
void add_cluster(ROOT::RNTupleReader &reader, ROOT::DescriptorId_t cluster, const std::string &name, Seen &seen)
{
   const auto entries = reader.GetDescriptor().GetClusterDescriptor(cluster).GetNEntries();
   const auto mask = std::make_unique<bool[]>(entries);
   std::fill_n(mask.get(), entries, true);
   auto bulk = reader.GetModel().CreateBulk(name);
   const auto *values = static_cast<const T *>(bulk.ReadBulk(ROOT::RNTupleLocalIndex(cluster, 0), mask.get(), entries));
   if constexpr (std::is_arithmetic_v<T>)
      return seen.add(values, entries * sizeof(T));
   for (std::uint64_t i = 0; i < entries; ++i)
      seen.add(values[i]);
}

// Cluster by cluster, field by field; each field is a type and names.
template <typename... T>
void in_bulk(const char *ntuple, const char *path, const std::array<Names, sizeof...(T)> &names)
{
   const auto each = [&names](auto visit) {
      std::size_t kind = 0;
      const auto visit_all = [&](auto type) {
         for (const auto &name : names[kind])
            visit(type, name);
         ++kind;
      };
      (visit_all(static_cast<T *>(nullptr)), ...);
   };
   const auto open = [&] {
      auto model = ROOT::RNTupleModel::CreateBare();
      each([&](auto *type, const auto &name) { model->MakeField<std::remove_pointer_t<decltype(type)>>(name); });
      return ROOT::RNTupleReader::Open(std::move(model), ntuple, path);
   };
   measure(open, [&](auto reader) {
      Seen seen{reader->GetNEntries()};
      const auto &descriptor = reader->GetDescriptor();
      for (auto cluster = descriptor.FindClusterId(0, 0); cluster != ROOT::kInvalidDescriptorId;
           cluster = descriptor.FindNextClusterId(cluster)) {
         each([&](auto *type, const auto &name) {
            add_cluster<std::remove_pointer_t<decltype(type)>>(*reader, cluster, name, seen);
         });
      }
      return seen;
   });
}

void objects_by_views(const char *path)
{
   measure(reader_of("objects", path), [](auto reader) {
      auto id = reader->template GetView<std::uint64_t>("id");
      auto blob = reader->template GetView<std::vector<std::uint8_t>>("blob");
      Seen seen{reader->GetNEntries()};
      for (std::uint64_t entry = 0; entry < seen.fEntries; ++entry) {
         seen.add(id(entry));
         seen.add(blob(entry));
      }
      return seen;
   });
}

void rows_by_entries(const char *path)
{
   measure(reader_of("rows", path), [](auto reader) {
      const Row row(reader->GetModel().GetDefaultEntry());
      Seen seen{reader->GetNEntries()};
      for (std::uint64_t entry = 0; entry < seen.fEntries; ++entry) {
         reader->LoadEntry(entry);
         row.each([&](const auto &field) { seen.add(*field); });
      }
      return seen;
   });
}

void rows_by_views(const char *path)
{
   measure(reader_of("rows", path), [](auto reader) {
      auto run = reader->template GetView<std::uint32_t>("run");
      auto event = reader->template GetView<std::uint64_t>("event");
      std::vector<ROOT::RNTupleView<double>> doubles;
      for (const auto *name : {"time", "x", "y", "z", "energy"})
         doubles.push_back(reader->template GetView<double>(name));
      auto momentum = reader->template GetView<std::array<float, 3>>("momentum");
      auto covariance = reader->template GetView<std::array<float, 5>>("covariance");
      auto hits = reader->template GetView<std::array<std::uint16_t, 8>>("hits");
      Seen seen{reader->GetNEntries()};
      for (std::uint64_t entry = 0; entry < seen.fEntries; ++entry) {
         seen.add(run(entry));
         seen.add(event(entry));
         for (auto &view : doubles)
            seen.add(view(entry));
         seen.add(momentum(entry));
         seen.add(covariance(entry));
         seen.add(hits(entry));
      }
      return seen;
   });
}

void select(const char *path)
{
   measure(reader_of("events", path), [](auto reader) {
      auto f00 = reader->template GetView<float>("f00"), f01 = reader->template GetView<float>("f01");
      auto f10 = reader->template GetView<float>("f10"), f20 = reader->template GetView<float>("f20");
      auto f30 = reader->template GetView<float>("f30");
      Seen seen{reader->GetNEntries()};
      for (std::uint64_t entry = 0; entry < seen.fEntries; ++entry) {
         if (passes(f00(entry), f01(entry))) {
            seen.add(f10(entry));
            seen.add(f20(entry));
            seen.add(f30(entry));
         }
      }
      return seen;
   });
}

void run(const Names &arguments)
{
   const auto &mode = arguments.at(0), &way = arguments.back();
   const auto *path = arguments.at(1).c_str();
   if (mode == "select")
      select(path);
   else if (mode == "objects" && way == "views")
      objects_by_views(path);
   else if (mode == "objects" && way == "bulk")
      in_bulk<std::uint64_t, Bytes>("objects", path, {{{"id"}, {"blob"}}});
   else if (mode == "rows" && way == "entries")
      rows_by_entries(path);
   else if (mode == "rows" && way == "views")
      rows_by_views(path);
   else if (mode == "columns" && way == "views")
      by_views<std::vector<float>>("events", path, names_in(arguments.at(2)));
   else if (mode == "columns" && way == "bulk")
      in_bulk<ROOT::RVecF>("events", path, {names_in(arguments.at(2))});
   else if (mode == "flat" && way == "views")
      by_views<float>("events", path, names_in(arguments.at(2)));
   else if (mode == "flat" && way == "bulk")
      in_bulk<float>("events", path, {names_in(arguments.at(2))});
   else
      throw std::runtime_error("no mode " + mode + " " + way);
}

} // namespace

int main(int count, char **arguments)
{
   return guarded("root_scan", run, count, arguments);
}
