// Common parts of the C++ programs that write and read opaque objects; crates/femtobarn-bench/src has the same in Rust.

#ifndef BENCHES_OBJECTS
#define BENCHES_OBJECTS

#include "measure.hxx"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

using Words = std::vector<std::string>;

// The sum of an object's 64-bit words; a remainder of 4 bytes is a 32-bit word.
inline std::uint64_t sum(const void *object, std::size_t size)
{
   const auto *bytes = static_cast<const char *>(object);
   std::uint64_t total = 0, word;
   for (std::size_t at = 0; at < size / 8; ++at) {
      std::memcpy(&word, bytes + 8 * at, sizeof(word));
      total += word;
   }
   std::uint32_t last = 0;
   if (size % 8 >= sizeof(last))
      std::memcpy(&last, bytes + size / 8 * 8, sizeof(last));
   return total + last;
}

// Objects of one size from the file objects.bin.
class Pool {
   std::vector<char> fBytes;
   std::size_t fSize;

public:
   Pool(const std::string &path, std::size_t size) : fSize(size)
   {
      std::ifstream file(path, std::ios::binary);
      if (!file)
         throw std::runtime_error("cannot open " + path);
      fBytes.assign(std::istreambuf_iterator<char>(file), {});
   }
   std::string_view object(std::uint64_t id) const
   {
      return {&fBytes[id % (fBytes.size() / fSize) * fSize], fSize};
   }
};

// The objects to append, from the arguments POOL SIZE COUNT COMMIT WRITER.
struct Appends {
   std::uint64_t fSize, fCount, fCommit;
   std::string fWriter;
   Pool fPool;

   Appends(const Words &words, std::size_t first)
      : fSize(std::stoull(words.at(first + 1))), fCount(std::stoull(words.at(first + 2))),
        fCommit(std::stoull(words.at(first + 3))), fWriter(words.at(first + 4)), fPool(words.at(first), fSize)
   {
   }
   std::uint64_t bytes() const { return fSize * fCount; }
};

// The objects to read, from the arguments OBJECTS SIZE COUNT BATCH hot|cold.
struct Reads {
   std::uint64_t fObjects, fSize, fCount, fBatch;
   bool fIsHot;

   Reads(const Words &words, std::size_t first)
      : fObjects(std::stoull(words.at(first))), fSize(std::stoull(words.at(first + 1))),
        fCount(std::stoull(words.at(first + 2))), fBatch(std::stoull(words.at(first + 3))),
        fIsHot(words.at(first + 4) == "hot")
   {
   }
   // `read` returns the sum of the words of one object.
   template <typename Read>
   void one_by_one(Read read) const
   {
      for (std::uint64_t id = 0; fIsHot && id < fObjects; ++id)
         read(id);
      Random random;
      std::uint64_t check = 0;
      Stopwatch watch;
      for (std::uint64_t i = 0; i < fCount; ++i)
         check += read(random.below(fObjects));
      watch.report(fCount, fCount * fSize, check);
   }
   // `read` returns the sum of the words of all objects of a batch.
   template <typename Read>
   void in_batches(Read read) const
   {
      std::vector<std::uint64_t> ids(fBatch);
      for (std::uint64_t first = 0; fIsHot && first < fObjects; first += fBatch) {
         for (std::uint64_t i = 0; i < fBatch; ++i)
            ids[i] = (first + i) % fObjects;
         read(ids);
      }
      Random random;
      std::uint64_t check = 0;
      Stopwatch watch;
      for (std::uint64_t i = 0; i < fCount / fBatch; ++i) {
         for (auto &id : ids)
            id = random.below(fObjects);
         check += read(ids);
      }
      watch.report(fCount, fCount * fSize, check);
   }
};

template <typename Run>
int guarded(const char *program, Run run, int count, char **arguments)
{
   try {
      run(Words(arguments + 1, arguments + count));
      return 0;
   } catch (const std::exception &error) {
      std::fprintf(stderr, "%s: %s\n", program, error.what());
      return 1;
   }
}

#endif
