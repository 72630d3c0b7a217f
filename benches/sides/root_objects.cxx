// ROOT's RNTuple with objects of opaque bytes.
//
//    root_objects append PATH POOL SIZE COUNT COMMIT WRITER     a cluster a transaction; one sync at the end
//    root_objects random PATH OBJECTS SIZE COUNT BATCH hot|cold  by LoadEntry
//
// An RNTuple is complete only when its writer closes it, so it is synced once, at the end.

#include "objects.hxx"

#include <ROOT/RNTupleModel.hxx>
#include <ROOT/RNTupleReader.hxx>
#include <ROOT/RNTupleWriteOptions.hxx>
#include <ROOT/RNTupleWriter.hxx>

#include <array>
#include <memory>

namespace {

constexpr std::size_t kFixedBytes = 100;
using Fixed = std::array<std::uint8_t, kFixedBytes>;
using Blob = std::vector<std::uint8_t>;

void set(Fixed &object, std::string_view bytes)
{
   std::memcpy(object.data(), bytes.data(), object.size());
}

void set(Blob &object, std::string_view bytes)
{
   object.assign(bytes.begin(), bytes.end());
}

void sync(const std::string &path)
{
   const int file = open(path.c_str(), O_RDONLY);
   if (file < 0 || fdatasync(file) != 0 || close(file) != 0)
      throw std::runtime_error("cannot sync " + path);
}

template <typename Object>
void append(const std::string &folder, const Appends &work)
{
   std::filesystem::create_directories(folder);
   const auto path = folder + "/w" + work.fWriter + ".root";
   auto model = ROOT::RNTupleModel::Create();
   auto object = model->MakeField<Object>("object");
   ROOT::RNTupleWriteOptions options;
   options.SetCompression(0);
   auto writer = ROOT::RNTupleWriter::Recreate(std::move(model), "objects", path, options);
   Stopwatch watch;
   for (std::uint64_t id = 0; id < work.fCount; ++id) {
      set(*object, work.fPool.object(id));
      writer->Fill();
      if ((id + 1) % work.fCommit == 0)
         writer->CommitCluster();
   }
   writer.reset();
   sync(path);
   watch.report(work.fCount, work.bytes(), 0, folder);
}

template <typename Object>
void random(const std::string &folder, const Reads &reads)
{
   auto reader = ROOT::RNTupleReader::Open("objects", folder + "/w0.root");
   auto object = reader->GetModel().GetDefaultEntry().GetPtr<Object>("object");
   reader->LoadEntry(0);
   // Each object costs the reading of a cluster, so warming up by reading all objects would take hours.
   Reads unread = reads;
   unread.fIsHot = false;
   unread.one_by_one([&](std::uint64_t id) {
      reader->LoadEntry(id);
      return sum(object->data(), object->size());
   });
}

void run(const Words &words)
{
   const auto &mode = words.at(0), &folder = words.at(1);
   const auto is_fixed = std::stoull(words.at(3)) == kFixedBytes;
   if (mode == "append")
      (is_fixed ? append<Fixed> : append<Blob>)(folder, Appends(words, 2));
   else if (mode == "random")
      (is_fixed ? random<Fixed> : random<Blob>)(folder, Reads(words, 2));
   else
      throw std::runtime_error("no mode " + mode);
}

} // namespace

int main(int count, char **arguments)
{
   return guarded("root_objects", run, count, arguments);
}
