// RocksDB: ingested sorted files for large writes, batches with a synced log for small ones.
//
//    rocksdb_peer append PATH POOL SIZE COUNT COMMIT WRITER
//    rocksdb_peer random PATH OBJECTS SIZE COUNT BATCH hot|cold
//    rocksdb_peer scan PATH OBJECTS SIZE
//    rocksdb_peer commits PATH THREADS SECONDS      only one process may open a database, so writers are threads
//
// Nothing is compressed, as on all sides. Reads come from a block cache that holds all objects, without copies.

#include "objects.hxx"

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/table.h>

#include <endian.h>

#include <atomic>
#include <memory>
#include <thread>

namespace {

constexpr std::size_t kCacheBytes = std::size_t(2) << 30;
constexpr int kSmallObjects = 10, kSmallBytes = 100;

void check(const rocksdb::Status &status)
{
   if (!status.ok())
      throw std::runtime_error(status.ToString());
}

rocksdb::Options options()
{
   rocksdb::BlockBasedTableOptions table;
   table.block_cache = rocksdb::NewLRUCache(kCacheBytes);
   table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
   rocksdb::Options options;
   options.create_if_missing = true;
   options.compression = rocksdb::kNoCompression;
   options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
   return options;
}

std::unique_ptr<rocksdb::DB> open(const std::string &path)
{
   rocksdb::DB *database = nullptr;
   check(rocksdb::DB::Open(options(), path, &database));
   return std::unique_ptr<rocksdb::DB>(database);
}

// A number as a key that sorts like it.
class Key {
   std::uint64_t fBytes;

public:
   explicit Key(std::uint64_t id) : fBytes(htobe64(id)) {}
   operator rocksdb::Slice() const { return {reinterpret_cast<const char *>(&fBytes), sizeof(fBytes)}; }
};

rocksdb::Slice slice(std::string_view object)
{
   return {object.data(), object.size()};
}

void append(const std::string &path, const Appends &work)
{
   auto database = open(path);
   rocksdb::IngestExternalFileOptions ingestion;
   ingestion.move_files = true;
   const auto file = path + "/ingested.sst";
   Stopwatch watch;
   for (std::uint64_t id = 0; id < work.fCount;) {
      rocksdb::SstFileWriter writer(rocksdb::EnvOptions(), options());
      check(writer.Open(file));
      const auto end = std::min(work.fCount, id + work.fCommit);
      for (; id < end; ++id)
         check(writer.Put(Key(id), slice(work.fPool.object(id))));
      check(writer.Finish());
      check(database->IngestExternalFile({file}, ingestion));
   }
   database.reset();
   watch.report(work.fCount, work.bytes(), 0, path);
}

void random(const std::string &path, const Reads &reads)
{
   auto database = open(path);
   rocksdb::PinnableSlice object;
   reads.one_by_one([&](std::uint64_t id) {
      object.Reset();
      check(database->Get({}, database->DefaultColumnFamily(), Key(id), &object));
      return sum(object.data(), object.size());
   });
}

void random_batches(const std::string &path, const Reads &reads)
{
   auto database = open(path);
   std::vector<rocksdb::PinnableSlice> objects(reads.fBatch);
   std::vector<rocksdb::Status> statuses(reads.fBatch);
   rocksdb::ReadOptions options;
   options.async_io = true;
   reads.in_batches([&](const std::vector<std::uint64_t> &ids) {
      const std::vector<Key> keys(ids.begin(), ids.end());
      const std::vector<rocksdb::Slice> slices(keys.begin(), keys.end());
      for (auto &object : objects)
         object.Reset();
      database->MultiGet(options, database->DefaultColumnFamily(), slices.size(), slices.data(), objects.data(),
                         statuses.data());
      std::uint64_t total = 0;
      for (std::size_t i = 0; i < ids.size(); ++i) {
         check(statuses[i]);
         total += sum(objects[i].data(), objects[i].size());
      }
      return total;
   });
}

std::uint64_t all_of(rocksdb::DB &database)
{
   rocksdb::ReadOptions options;
   std::unique_ptr<rocksdb::Iterator> each(database.NewIterator(options));
   std::uint64_t total = 0;
   for (each->SeekToFirst(); each->Valid(); each->Next())
      total += sum(each->value().data(), each->value().size());
   check(each->status());
   return total;
}

void scan(const std::string &path, std::uint64_t objects, std::uint64_t size)
{
   auto database = open(path);
   all_of(*database);
   Stopwatch watch;
   const auto total = all_of(*database);
   watch.report(objects, objects * size, total);
}

void commits(const std::string &path, std::uint64_t threads, double seconds)
{
   auto database = open(path);
   const std::string object(kSmallBytes, 1);
   rocksdb::WriteOptions synced;
   synced.sync = true;
   std::atomic<std::uint64_t> count = 0;
   Stopwatch watch;
   const auto write = [&](std::uint64_t writer) {
      for (std::uint64_t id = writer << 40; watch.seconds() < seconds; ++count) {
         rocksdb::WriteBatch batch;
         for (int i = 0; i < kSmallObjects; ++i)
            check(batch.Put(Key(id++), object));
         check(database->Write(synced, &batch));
      }
   };
   std::vector<std::thread> running;
   for (std::uint64_t writer = 0; writer < threads; ++writer)
      running.emplace_back(write, writer);
   for (auto &thread : running)
      thread.join();
   watch.report(count, count * kSmallObjects * kSmallBytes, 0);
}

void run(const Words &words)
{
   const auto &mode = words.at(0), &path = words.at(1);
   if (mode == "append")
      append(path, Appends(words, 2));
   else if (mode == "random" && words.at(5) == "1")
      random(path, Reads(words, 2));
   else if (mode == "random")
      random_batches(path, Reads(words, 2));
   else if (mode == "scan")
      scan(path, std::stoull(words.at(2)), std::stoull(words.at(3)));
   else if (mode == "commits")
      commits(path, std::stoull(words.at(2)), std::stod(words.at(3)));
   else
      throw std::runtime_error("no mode " + mode);
}

} // namespace

int main(int count, char **arguments)
{
   return guarded("rocksdb_peer", run, count, arguments);
}
