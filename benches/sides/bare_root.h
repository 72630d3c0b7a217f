// Messages of root:// and the plain requests for data of a bare server: reads, vector reads and writes.
//
// A thread has memory for requests and for answers, and keeps nothing of a connection from one request to the next:
// what has begun to arrive is awaited. A handle is the descriptor of its file.

#ifndef BENCHES_BARE_ROOT
#define BENCHES_BARE_ROOT

#include <endian.h>
#include <limits.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include "bare_threads.h"

#define REQUEST_BYTES 24
#define ANSWER_BYTES 8
#define SEGMENT_BYTES 16
#define FILES 65536
// Shorter reads are copied into the answer, others sent from the page cache: that takes a quarter less of the processor
// for 16 KB.
#define SENDFILE_MIN (4 << 10)
#define PAGE_BYTES 4096
// Bytes of a vector that are sent at once.
#define SENT_BYTES (256 << 10)
// What is written at once.
#define WRITTEN_PAGES (IOV_MAX / 2)
#define WRITTEN_BYTES (WRITTEN_PAGES * PAGE_BYTES)

enum { CLOSE = 3003, PROTOCOL = 3006, LOGIN, OPEN = 3010, PING, READ = 3013, SYNC = 3016, STAT, WRITE = 3019 };
enum { END_SESSION = 3023, READ_VECTOR = 3025, WRITE_PAGES, READ_PAGES = 3030 };
enum { OK = 0, ERROR = 4003, REDIRECT, STATUS = 4007 };
enum { NOT_FOUND = 3011, UNSUPPORTED = 3013 };

struct request {
   uint8_t stream[2];
   uint16_t code;
   uint8_t parameters[16];
   uint32_t size;
};

// The open files, by their handles. Connections are numbered by their descriptors, none of which is 0.
static struct {
   int connection;
   bool writes;
   uint64_t size;
} files[FILES];

static inline uint16_t get16(const uint8_t *from)
{
   uint16_t value;
   memcpy(&value, from, sizeof value);
   return be16toh(value);
}

static inline uint32_t get32(const uint8_t *from)
{
   uint32_t value;
   memcpy(&value, from, sizeof value);
   return be32toh(value);
}

static inline uint64_t get64(const uint8_t *from)
{
   return (uint64_t)get32(from) << 32 | get32(from + 4);
}

static inline void put32(uint8_t *to, uint32_t value)
{
   value = htobe32(value);
   memcpy(to, &value, sizeof value);
}

static inline void put_head(uint8_t *to, const struct request *request, uint16_t status, uint32_t size)
{
   memcpy(to, request->stream, 2);
   to[2] = status >> 8;
   to[3] = status & 0xff;
   put32(to + 4, size);
}

static inline bool reply(struct worker *worker, int connection, const struct request *request, uint16_t status,
                         const void *body, size_t size)
{
   put_head(worker->out, request, status, size);
   memcpy(worker->out + ANSWER_BYTES, body, size);
   return send_all(connection, worker->out, ANSWER_BYTES + size, 0);
}

// Goes on behind bytes that have come.
static inline void skip(struct iovec **places, int *count, size_t size)
{
   while (*count > 0 && (size > 0 || (*places)->iov_len == 0)) {
      struct iovec *place = *places;
      const size_t here = size < place->iov_len ? size : place->iov_len;
      *place = (struct iovec){(uint8_t *)place->iov_base + here, place->iov_len - here};
      size -= here;
      if (place->iov_len == 0) {
         ++*places;
         --*count;
      }
   }
}

// Takes bytes that belong to a request: those that have arrived, and the rest from the connection.
static inline bool take(struct worker *worker, int connection, struct iovec *places, int count)
{
   while (count > 0 && worker->at < worker->filled) {
      const size_t left = worker->filled - worker->at, here = places->iov_len < left ? places->iov_len : left;
      memcpy(places->iov_base, worker->in + worker->at, here);
      worker->at += here;
      skip(&places, &count, here);
   }
   while (count > 0) {
      struct msghdr message = {.msg_iov = places, .msg_iovlen = count};
      const ssize_t got = recvmsg(connection, &message, MSG_WAITALL);
      if (got <= 0)
         return false;
      skip(&places, &count, got);
   }
   return true;
}

// The file of a handle; -1 if it is not one of this connection.
static inline int file_of(int connection, const uint8_t *handle)
{
   const uint32_t file = get32(handle);
   return file < FILES && files[file].connection == connection ? (int)file : -1;
}

// How many of `size` bytes the file has from an offset on.
static inline size_t within(int file, uint64_t offset, size_t size)
{
   const uint64_t left = offset < files[file].size ? files[file].size - offset : 0;
   return size < left ? size : left;
}

// ---- plain bytes

static inline bool read_piece(struct worker *worker, int connection, const struct request *request)
{
   const int file = file_of(connection, request->parameters);
   if (file < 0)
      return false;
   const off_t offset = get64(request->parameters + 4);
   const size_t size = within(file, offset, get32(request->parameters + 12));
   put_head(worker->out, request, OK, size);
   if (size < SENDFILE_MIN)
      return pread(file, worker->out + ANSWER_BYTES, size, offset) == (ssize_t)size
             && send_all(connection, worker->out, ANSWER_BYTES + size, 0);
   if (!send_all(connection, worker->out, ANSWER_BYTES, MSG_MORE))
      return false;
   for (off_t at = offset; at < offset + (off_t)size;)
      if (sendfile(connection, file, &at, offset + size - at) <= 0)
         return false;
   return true;
}

// The pieces of a vector, each behind its segment: neighbours by one system call, some at a time, so that they stay in
// the processor's cache.
static inline bool read_vector(struct worker *worker, int connection, const struct request *request,
                               const uint8_t *segments)
{
   const uint8_t *end = segments + request->size;
   size_t all = 0;
   for (const uint8_t *segment = segments; segment + SEGMENT_BYTES <= end; segment += SEGMENT_BYTES)
      all += SEGMENT_BYTES + get32(segment + 4);
   put_head(worker->out, request, OK, all);
   uint8_t *to = worker->out + ANSWER_BYTES;
   while (segments + SEGMENT_BYTES <= end) {
      const int file = file_of(connection, segments);
      const off_t first = get64(segments + 8);
      struct iovec pieces[IOV_MAX];
      int count = 0;
      off_t next = first;
      do {
         const size_t size = get32(segments + 4);
         if (file < 0 || size > OUT_BYTES - 2 * SENT_BYTES)
            return false;
         memcpy(to, segments, SEGMENT_BYTES);
         pieces[count++] = (struct iovec){to + SEGMENT_BYTES, size};
         to += SEGMENT_BYTES + size;
         next += size;
         segments += SEGMENT_BYTES;
      } while (to < worker->out + SENT_BYTES && count < IOV_MAX && segments + SEGMENT_BYTES <= end
               && file_of(connection, segments) == file && (off_t)get64(segments + 8) == next);
      if (preadv(file, pieces, count, first) != next - first)
         return false;
      const bool is_last = segments + SEGMENT_BYTES > end;
      if (is_last || to >= worker->out + SENT_BYTES) {
         if (!send_all(connection, worker->out, to - worker->out, is_last ? 0 : MSG_MORE))
            return false;
         to = worker->out;
      }
   }
   return true;
}

// Writes bytes past the page cache, up to the end of a block; closing the file cuts what is behind its end.
static inline bool write_blocks(int file, const uint8_t *bytes, size_t size, uint64_t offset)
{
   const size_t blocks = (size + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
   if (offset + size > files[file].size)
      files[file].size = offset + size;
   return pwrite(file, bytes, blocks, offset) == (ssize_t)blocks;
}

static inline bool write_piece(struct worker *worker, int connection, const struct request *request)
{
   const int file = file_of(connection, request->parameters);
   uint64_t offset = get64(request->parameters + 4);
   for (size_t left = request->size, size; left > 0; left -= size, offset += size) {
      size = left < WRITTEN_BYTES ? left : WRITTEN_BYTES;
      struct iovec piece = {worker->out, size};
      if (file < 0 || !take(worker, connection, &piece, 1) || !write_blocks(file, worker->out, size, offset))
         return false;
   }
   return reply(worker, connection, request, OK, "", 0);
}

#endif
