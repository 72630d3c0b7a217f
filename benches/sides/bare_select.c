// The cut of the chapter selection as a loop over two arrays: f00 > 4.28125 and |f01| < 0.15625; three other arrays
// are read for the events that pass.
//
//    bare_select F00 F01 F10 F20 F30      files of single-precision numbers, which are mapped
//
// It selects twice; the second pass is timed.

#include <fcntl.h>
#include <math.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "bare.h"

#define COLUMNS 5
#define READ (COLUMNS - 2)
// Events that are compared at once, which the compiler turns into vector instructions.
#define AT_ONCE 4096

static const float *mapped(const char *path, uint64_t *entries)
{
   struct stat found;
   const int file = open(path, O_RDONLY);
   must(file >= 0 && fstat(file, &found) == 0, path);
   const float *values = mmap(NULL, found.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
   must(values != MAP_FAILED, "mmap");
   *entries = found.st_size / sizeof *values;
   return values;
}

// Compares some events; a byte of each says whether it passes.
static void compare(const float *f00, const float *f01, int count, uint8_t *passes)
{
   for (int i = 0; i < count; ++i)
      passes[i] = (f00[i] > 4.28125f) & (fabsf(f01[i]) < 0.15625f);
}

// Reads three arrays for the events that pass; returns the number of events, and the sum of the words of all values.
static uint64_t selected(const float *const columns[COLUMNS], uint64_t entries, uint32_t *check)
{
   _Alignas(64) uint8_t passes[AT_ONCE];
   uint64_t chosen = 0;
   for (uint64_t first = 0; first < entries; first += AT_ONCE) {
      const int count = entries - first < AT_ONCE ? entries - first : AT_ONCE;
      memset(passes, 0, sizeof passes);
      compare(columns[0] + first, columns[1] + first, count, passes);
      for (int i = 0; i < AT_ONCE; i += sizeof(uint64_t)) {
         uint64_t eight;
         memcpy(&eight, passes + i, sizeof eight);
         for (; eight; eight &= eight - 1, ++chosen) {
            const uint64_t event = first + i + __builtin_ctzll(eight) / 8;
            for (int read = COLUMNS - READ; read < COLUMNS; ++read)
               *check += sum_of(columns[read] + event, sizeof(float));
         }
      }
   }
   return chosen;
}

int main(int count, char **arguments)
{
   must(count == 1 + COLUMNS, "bare_select F00 F01 F10 F20 F30");
   const float *columns[COLUMNS];
   uint64_t entries;
   uint32_t check = 0;
   for (int i = 0; i < COLUMNS; ++i)
      columns[i] = mapped(arguments[1 + i], &entries);
   selected(columns, entries, &check);
   const struct watch watch = started();
   check = 0;
   const uint64_t chosen = selected(columns, entries, &check);
   report(watch, entries, chosen * READ * sizeof(float), check);
   return 0;
}
