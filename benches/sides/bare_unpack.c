// Unpacking alone: the pages of some fields, decompressed by the library of their codec, which is the one that
// Femtobarn is built with.
//
//    bare_unpack FILE LIST
//
// FILE is a ROOT file or a database, and is mapped; LIST, written by `ours pages`, says where its pages are. Pages are
// in ROOT's framing: chunks with a header of 9 bytes, and 8 more before LZ4's; pages that would not get smaller are
// stored as they are. The words of all pages are summed, and compared with the sum in the list; nothing is decoded,
// no checksum of a page is verified. All is unpacked twice; the second pass is timed.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <lz4.h>
#include <zstd.h>

#include "bare.h"

#define HEADER_BYTES 9
#define LZ4_CHECKSUM_BYTES 8

struct page {
   uint64_t offset;
   uint32_t stored, unpacked;
};

static ZSTD_DCtx *context;

static uint32_t size_at(const uint8_t *bytes)
{
   return bytes[0] | bytes[1] << 8 | bytes[2] << 16;
}

static void unpack(const uint8_t *stored, const uint8_t *end, char *into)
{
   while (stored < end) {
      const uint32_t packed = size_at(stored + 3), size = size_at(stored + 6);
      const uint8_t *chunk = stored + HEADER_BYTES;
      uint64_t done = 0;
      if (memcmp(stored, "ZS", 2) == 0)
         done = ZSTD_decompressDCtx(context, into, size, chunk, packed);
      else if (memcmp(stored, "L4", 2) == 0)
         done = LZ4_decompress_safe((const char *)chunk + LZ4_CHECKSUM_BYTES, into, packed - LZ4_CHECKSUM_BYTES, size);
      must(done == size, "a page that cannot be unpacked");
      into += size;
      stored = chunk + packed;
   }
}

static uint32_t unpack_all(const uint8_t *file, const struct page *pages, uint64_t count, char *memory)
{
   uint32_t sum = 0;
   for (const struct page *page = pages; page < pages + count; ++page) {
      const uint8_t *stored = file + page->offset;
      const int is_packed = page->stored < page->unpacked;
      if (is_packed)
         unpack(stored, stored + page->stored, memory);
      sum += sum_of(is_packed ? (const void *)memory : stored, page->unpacked);
   }
   return sum;
}

int main(int count, char **arguments)
{
   must(count == 3, "bare_unpack FILE LIST");
   struct stat found;
   const int opened = open(arguments[1], O_RDONLY);
   must(opened >= 0 && fstat(opened, &found) == 0, arguments[1]);
   const uint8_t *file = mmap(NULL, found.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, opened, 0);
   must(file != MAP_FAILED, "mmap");
   FILE *list = fopen(arguments[2], "r");
   uint64_t entries, bytes, check, sum, number;
   must(list && fscanf(list, "%ju %ju %ju %ju %ju", &entries, &bytes, &check, &sum, &number) == 5, arguments[2]);
   struct page *pages = calloc(number, sizeof *pages);
   uint32_t most = 0;
   for (struct page *page = pages; page < pages + number; ++page) {
      must(fscanf(list, "%ju %u %u", &page->offset, &page->stored, &page->unpacked) == 3, arguments[2]);
      must(page->offset + page->stored <= (uint64_t)found.st_size, "a page outside the file");
      most = page->unpacked > most ? page->unpacked : most;
   }
   char *memory = malloc(most);
   context = ZSTD_createDCtx();
   must(unpack_all(file, pages, number, memory) == sum, "other bytes were unpacked");
   const struct watch watch = started();
   must(unpack_all(file, pages, number, memory) == sum, "other bytes were unpacked");
   // The list has the check of the values, which are the same however they are stored.
   report(watch, entries, bytes, check);
   return 0;
}
