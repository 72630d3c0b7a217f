// What the C++ programs that write and read opaque objects share; the like of crates/femtobarn-bench/src.

#ifndef BENCHES_OBJECTS
#define BENCHES_OBJECTS

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
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

inline double cpu_seconds()
{
   rusage usage;
   getrusage(RUSAGE_SELF, &usage);
   return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + 1e-6 * (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

// Blocks of all files of a folder, or of one file.
inline std::uint64_t disk_bytes(const std::string &path)
{
   struct stat status;
   std::uint64_t bytes = 0;
   const auto add = [&](const std::string &file) {
      if (stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode))
         bytes += status.st_blocks * 512;
   };
   add(path);
   if (std::filesystem::is_directory(path))
      for (const auto &entry : std::filesystem::recursive_directory_iterator(path))
         add(entry.path());
   return bytes;
}

// The timed part: from its construction to report(). Of several processes, all start at once (README.md).
class Stopwatch {
   std::chrono::steady_clock::time_point fWall;
   double fCpu;

public:
   Stopwatch()
   {
      if (std::getenv("BENCH_TOGETHER")) {
         std::cout << "ready" << std::endl;
         std::string line;
         std::getline(std::cin, line);
      }
      fWall = std::chrono::steady_clock::now();
      fCpu = cpu_seconds();
   }
   double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - fWall).count(); }

   void report(std::uint64_t items, std::uint64_t bytes, std::uint64_t check, const std::string &path = {}) const
   {
      const double wall = seconds(), cpu = cpu_seconds() - fCpu;
      std::printf("{\"items\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"wall_s\": %.6f, \"cpu_s\": %.6f, \"check\": %" PRIu64,
                  items, bytes, wall, cpu, check);
      if (!path.empty())
         std::printf(", \"disk_bytes\": %" PRIu64, disk_bytes(path));
      std::printf("}\n");
   }
};

// The random objects of all sides: splitmix64 from seed 1.
class Random {
   std::uint64_t fState = 1;

public:
   std::uint64_t below(std::uint64_t bound)
   {
      std::uint64_t z = (fState += 0x9e3779b97f4a7c15);
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
      z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
      z ^= z >> 31;
      return static_cast<std::uint64_t>((static_cast<unsigned __int128>(z) * bound) >> 64);
   }
};

// The sum of an object's words of 64 bits; what is left at its end is a word of 32.
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

// Objects to be appended, from the words POOL SIZE COUNT COMMIT WRITER.
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

// Objects to be read, from the words OBJECTS SIZE COUNT BATCH hot|cold.
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
