// ROOT's RNTupleWriter with its default options, for the files of the chapters sequential and selection.
//
//    root_write rows FILE ROWS COUNT COMPRESSION        objects of 10 fields and 100 bytes, from rows.bin
//    root_write events FILE EVENTS COUNT COMPRESSION    events of 50 floats, from events.bin
//
// The pool of benches/sides/data.py is repeated until there are COUNT entries.

#include "root_common.hxx"

#include <ROOT/RNTupleModel.hxx>
#include <ROOT/RNTupleWriteOptions.hxx>
#include <ROOT/RNTupleWriter.hxx>

#include <fstream>
#include <iterator>

namespace {

constexpr std::size_t kColumns = 50;

std::vector<char> bytes_of(const char *path)
{
   std::ifstream file(path, std::ios::binary);
   if (!file)
      throw std::runtime_error("cannot open " + std::string(path));
   return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

auto writer_of(std::unique_ptr<ROOT::RNTupleModel> model, const char *name, const Names &arguments)
{
   const auto &compression = arguments.at(4);
   ROOT::RNTupleWriteOptions options;
   options.SetCompression(compression == "zstd" ? 505 : compression == "lz4" ? 404 : 0);
   return ROOT::RNTupleWriter::Recreate(std::move(model), name, arguments.at(1), options);
}

void rows(const Names &arguments, std::uint64_t count)
{
   const auto pool = bytes_of(arguments.at(2).c_str());
   auto model = ROOT::RNTupleModel::Create();
   const Row row(*model);
   auto writer = writer_of(std::move(model), "rows", arguments);
   Stopwatch watch;
   const auto *from = pool.data();
   for (std::uint64_t i = 0; i < count; ++i) {
      if (from == pool.data() + pool.size())
         from = pool.data();
      row.each([&](const auto &field) {
         std::memcpy(field.get(), from, sizeof(*field));
         from += sizeof(*field);
      });
      writer->Fill();
   }
   writer.reset();
   watch.report(count, count * 100, 0);
}

void events(const Names &arguments, std::uint64_t count)
{
   const auto pool = bytes_of(arguments.at(2).c_str());
   const auto distinct = pool.size() / (kColumns * sizeof(float));
   auto model = ROOT::RNTupleModel::Create();
   std::vector<std::shared_ptr<float>> fields;
   for (std::size_t c = 0; c < kColumns; ++c)
      fields.push_back(model->MakeField<float>((c < 10 ? "f0" : "f") + std::to_string(c)));
   auto writer = writer_of(std::move(model), "events", arguments);
   Stopwatch watch;
   for (std::uint64_t i = 0; i < count; ++i) {
      const auto *event = &pool[i % distinct * kColumns * sizeof(float)];
      for (std::size_t c = 0; c < kColumns; ++c)
         std::memcpy(fields[c].get(), event + c * sizeof(float), sizeof(float));
      writer->Fill();
   }
   writer.reset();
   watch.report(count, count * kColumns * sizeof(float), 0);
}

void run(const Names &arguments)
{
   const auto count = std::stoull(arguments.at(3));
   if (arguments.at(0) == "rows")
      rows(arguments, count);
   else if (arguments.at(0) == "events")
      events(arguments, count);
   else
      throw std::runtime_error("no mode " + arguments.at(0));
}

} // namespace

int main(int count, char **arguments)
{
   return guarded("root_write", run, count, arguments);
}
