// Pages with checksums that a bare server of root:// sends and takes (pgread, pgwrite).

#ifndef BENCHES_BARE_PAGES
#define BENCHES_BARE_PAGES

#include "bare_crc.h"
#include "bare_root.h"

#define STATUS_BYTES 24
// Pages that are sent at once, so that they stay in the processor's cache.
#define PAGES 64

// Bytes of a page of the file from an offset on.
static inline size_t room_in_page(uint64_t offset)
{
   return PAGE_BYTES - offset % PAGE_BYTES;
}

// The places of the next pages of some data, each behind its checksum; returns their number, and their bytes.
static inline int place_pages(struct iovec *pages, uint8_t *to, uint64_t offset, size_t size, size_t *taken)
{
   int count = 0;
   for (*taken = 0; count < PAGES && *taken < size; ++count) {
      const size_t room = room_in_page(offset + *taken), left = size - *taken;
      pages[count] = (struct iovec){to + sizeof(word), room < left ? room : left};
      to += sizeof(word) + pages[count].iov_len;
      *taken += pages[count].iov_len;
   }
   return count;
}

static inline void checksums_of(const struct iovec *pages, int count, uint32_t *checksums)
{
   for (int i = 0; i < count;) {
      const uint8_t *page = pages[i].iov_base;
      const bool side_by_side = i + CRC_LANES <= count && pages[i].iov_len == PAGE_BYTES
                                && pages[i + CRC_LANES - 1].iov_len == PAGE_BYTES;
      if (side_by_side)
         crc32c_of_lanes(page, PAGE_BYTES, (const uint8_t *)pages[i + 1].iov_base - page, checksums + i);
      else
         checksums[i] = crc32c(page, pages[i].iov_len);
      i += side_by_side ? CRC_LANES : 1;
   }
}

// Puts the head of an answer with a status, behind which some bytes of data follow.
static inline void put_status(uint8_t *to, const struct request *request, uint64_t offset, size_t size)
{
   put_head(to, request, STATUS, STATUS_BYTES);
   to += ANSWER_BYTES;
   memset(to, 0, STATUS_BYTES);
   memcpy(to + 4, request->stream, 2);
   to[6] = request->code - 3000;
   put32(to + 12, size);
   put32(to + 16, offset >> 32);
   put32(to + 20, (uint32_t)offset);
   put32(to, crc32c(to + 4, STATUS_BYTES - 4));
}

static inline bool read_pages(struct worker *worker, int connection, const struct request *request)
{
   const int file = file_of(connection, request->parameters);
   if (file < 0)
      return false;
   uint64_t offset = get64(request->parameters + 4);
   size_t left = within(file, offset, get32(request->parameters + 12)), head = ANSWER_BYTES + STATUS_BYTES, taken;
   const size_t behind = left ? (offset + left - 1) / PAGE_BYTES - offset / PAGE_BYTES + 1 : 0;
   put_status(worker->out, request, offset, left + behind * sizeof(word));
   do {
      struct iovec pages[PAGES];
      uint32_t checksums[PAGES];
      const int count = place_pages(pages, worker->out + head, offset, left, &taken);
      if (preadv(file, pages, count, offset) != (ssize_t)taken)
         return false;
      checksums_of(pages, count, checksums);
      for (int i = 0; i < count; ++i)
         put32((uint8_t *)pages[i].iov_base - sizeof(word), checksums[i]);
      offset += taken;
      left -= taken;
      if (!send_all(connection, worker->out, head + taken + count * sizeof(word), left ? MSG_MORE : 0))
         return false;
      head = 0;
   } while (left > 0);
   return true;
}

// Checksums and pages go to places of their own, so that pages can be written as they lie in memory.
static inline bool write_pages(struct worker *worker, int connection, const struct request *request)
{
   const int file = file_of(connection, request->parameters);
   uint64_t offset = get64(request->parameters + 4);
   const size_t all = sizeof(word) + PAGE_BYTES;
   size_t left = request->size - (request->size + all - 1) / all * sizeof(word), taken;
   if (file < 0 || offset % PAGE_BYTES != 0)
      return false;
   for (; left > 0; offset += taken, left -= taken) {
      struct iovec pages[WRITTEN_PAGES], places[2 * WRITTEN_PAGES];
      uint32_t sent[WRITTEN_PAGES], found[WRITTEN_PAGES];
      int count = 0;
      for (taken = 0; count < WRITTEN_PAGES && taken < left; taken += pages[count++].iov_len) {
         const size_t size = left - taken < PAGE_BYTES ? left - taken : PAGE_BYTES;
         pages[count] = places[2 * count + 1] = (struct iovec){worker->out + taken, size};
         places[2 * count] = (struct iovec){&sent[count], sizeof sent[count]};
      }
      if (!take(worker, connection, places, 2 * count))
         return false;
      checksums_of(pages, count, found);
      for (int i = 0; i < count; ++i)
         if (be32toh(sent[i]) != found[i])
            return false;
      if (!write_blocks(file, worker->out, taken, offset))
         return false;
   }
   put_status(worker->out, request, get64(request->parameters + 4), 0);
   return send_all(connection, worker->out, ANSWER_BYTES + STATUS_BYTES, 0);
}

#endif
