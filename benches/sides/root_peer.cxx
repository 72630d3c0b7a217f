// ROOT's RNTuple writer and reader, measured by benches/run.py.
//
//    root_peer write-objects FILE POOL COUNT COMPRESSION     10 KB objects: {id: uint64, blob: vector<uint8>}
//    root_peer write-columns FILE COLUMNS COUNT COMPRESSION  jagged float columns, replicated to COUNT entries
//    root_peer random-objects FILE READS                     objects at random, by entry number
//    root_peer rows FILE COUNT                               objects of 10 fields and 100 bytes, one by one
//
// Prints one JSON object (benches/README.md). A first, untimed access loads dictionaries and plug-ins.

#include "measure.hxx"

#include <ROOT/RNTupleModel.hxx>
#include <ROOT/RNTupleReadOptions.hxx>
#include <ROOT/RNTupleReader.hxx>
#include <ROOT/RNTupleWriteOptions.hxx>
#include <ROOT/RNTupleWriter.hxx>

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kObjectBytes = 10240;

std::vector<std::uint8_t> bytes_of(const std::string &path)
{
   std::ifstream file(path, std::ios::binary);
   if (!file)
      throw std::runtime_error("cannot open " + path);
   return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

ROOT::RNTupleWriteOptions write_options(const std::string &compression)
{
   ROOT::RNTupleWriteOptions options;
   options.SetCompression(compression == "zstd" ? 505 : compression == "lz4" ? 404 : 0);
   return options;
}

void write_objects(const char *path, const char *pool_path, std::uint64_t count, const std::string &compression)
{
   const auto pool = bytes_of(pool_path);
   const auto distinct = pool.size() / kObjectBytes;
   auto model = ROOT::RNTupleModel::Create();
   auto id = model->MakeField<std::uint64_t>("id");
   auto blob = model->MakeField<std::vector<std::uint8_t>>("blob");
   auto writer = ROOT::RNTupleWriter::Recreate(std::move(model), "objects", path, write_options(compression));
   Stopwatch watch;
   for (std::uint64_t i = 0; i < count; ++i) {
      const auto *start = &pool[(i % distinct) * kObjectBytes];
      blob->assign(start, start + kObjectBytes);
      *id = i;
      writer->Fill();
   }
   writer.reset();
   watch.report(count, count * kObjectBytes, 0);
}

// The file of columns that benches/sides/data.py writes.
struct Column {
   std::string name;
   std::vector<std::uint64_t> offsets;
   std::vector<float> values;
};

template <typename T>
T take(const std::uint8_t *&from)
{
   T value;
   std::memcpy(&value, from, sizeof(value));
   from += sizeof(value);
   return value;
}

template <typename T>
std::vector<T> take_many(const std::uint8_t *&from, std::size_t count)
{
   std::vector<T> values(count);
   std::memcpy(values.data(), from, count * sizeof(T));
   from += count * sizeof(T);
   return values;
}

std::vector<Column> columns_of(const char *path)
{
   const auto bytes = bytes_of(path);
   const auto *from = bytes.data();
   std::vector<Column> columns(take<std::uint64_t>(from));
   for (auto &column : columns) {
      const auto name = take_many<char>(from, take<std::uint64_t>(from));
      column.name.assign(name.begin(), name.end());
      column.offsets = take_many<std::uint64_t>(from, take<std::uint64_t>(from));
      column.values = take_many<float>(from, column.offsets.back());
   }
   return columns;
}

void write_columns(const char *path, const char *columns_path, std::uint64_t count, const std::string &compression)
{
   const auto columns = columns_of(columns_path);
   const auto distinct = columns.at(0).offsets.size() - 1;
   auto model = ROOT::RNTupleModel::Create();
   auto event = model->MakeField<std::uint64_t>("event");
   std::vector<std::shared_ptr<std::vector<float>>> fields;
   for (const auto &column : columns)
      fields.push_back(model->MakeField<std::vector<float>>(column.name));
   auto writer = ROOT::RNTupleWriter::Recreate(std::move(model), "events", path, write_options(compression));
   std::uint64_t bytes = 0;
   Stopwatch watch;
   for (std::uint64_t i = 0; i < count; ++i) {
      *event = i;
      for (std::size_t c = 0; c < columns.size(); ++c) {
         const auto &column = columns[c];
         const auto start = column.offsets[i % distinct], stop = column.offsets[i % distinct + 1];
         fields[c]->assign(column.values.begin() + start, column.values.begin() + stop);
         bytes += (stop - start) * sizeof(float);
      }
      writer->Fill();
   }
   writer.reset();
   watch.report(count, bytes, 0);
}

void random_objects(const char *path, std::uint64_t reads)
{
   auto reader = ROOT::RNTupleReader::Open("objects", path);
   auto view = reader->GetView<std::vector<std::uint8_t>>("blob");
   const auto entries = reader->GetNEntries();
   view(0);
   Random random;
   std::uint64_t check = 0, bytes = 0;
   Stopwatch watch;
   for (std::uint64_t i = 0; i < reads; ++i) {
      const auto &blob = view(random.below(entries));
      check += blob[17];
      bytes += blob.size();
   }
   watch.report(reads, bytes, check);
}

void rows(const char *path, std::uint64_t count)
{
   auto model = ROOT::RNTupleModel::Create();
   auto run = model->MakeField<std::uint32_t>("run");
   auto event = model->MakeField<std::uint64_t>("event");
   auto time = model->MakeField<double>("time");
   auto x = model->MakeField<double>("x");
   auto y = model->MakeField<double>("y");
   auto z = model->MakeField<double>("z");
   auto energy = model->MakeField<double>("energy");
   auto momentum = model->MakeField<std::array<float, 3>>("momentum");
   auto covariance = model->MakeField<std::array<float, 5>>("covariance");
   auto hits = model->MakeField<std::array<std::uint16_t, 8>>("hits");
   auto writer = ROOT::RNTupleWriter::Recreate(std::move(model), "rows", path, write_options("none"));
   Stopwatch watch;
   for (std::uint64_t i = 0; i < count; ++i) {
      const float f = i;
      *run = 7;
      *event = i;
      *time = 1e-3 * i;
      *x = *y = *z = *energy = i;
      *momentum = {f, f, f};
      *covariance = {f, f, f, f, f};
      hits->fill(static_cast<std::uint16_t>(i));
      writer->Fill();
   }
   writer.reset();
   watch.report(count, count * 100, 0);
}

int run(const std::vector<std::string> &arguments)
{
   const auto &mode = arguments.at(0);
   const auto argument = [&](std::size_t i) { return arguments.at(i).c_str(); };
   const auto number = [&](std::size_t i) { return std::strtoull(argument(i), nullptr, 10); };
   if (mode == "write-objects")
      write_objects(argument(1), argument(2), number(3), arguments.at(4));
   else if (mode == "write-columns")
      write_columns(argument(1), argument(2), number(3), arguments.at(4));
   else if (mode == "random-objects")
      random_objects(argument(1), number(2));
   else if (mode == "rows")
      rows(argument(1), number(2));
   else
      throw std::runtime_error("no mode " + mode);
   return 0;
}

} // namespace

int main(int count, char **arguments)
{
   try {
      return run({arguments + 1, arguments + count});
   } catch (const std::exception &error) {
      std::fprintf(stderr, "root_peer: %s\n", error.what());
      return 1;
   }
}
