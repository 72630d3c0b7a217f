// Elapsed time, CPU time, bytes on disk and random numbers, for all C++ programs.

#ifndef BENCHES_MEASURE
#define BENCHES_MEASURE

#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>

inline double cpu_seconds()
{
   rusage usage;
   getrusage(RUSAGE_SELF, &usage);
   return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + 1e-6 * (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

// Bytes on disk of all files in a folder, or of one file.
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

// The timed part, from construction to report(). Concurrent processes start at once (README.md).
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

#endif
