// Bytes from a connection into a file past the page cache: one thread receives while another writes.

#ifndef BENCHES_BARE_RECEIVE
#define BENCHES_BARE_RECEIVE

#include <fcntl.h>
#include <pthread.h>

#include "bare.h"

// Direct writes need offsets, sizes and memory addresses that are multiples of this.
#define ALIGNMENT 4096
#define PIECE_BYTES (1 << 20)
#define RECEIVERS 2

struct receipt {
   int connection, file;
   // Bytes that are left, and where in the file the next one goes.
   uint64_t left, at;
   pthread_mutex_t turn;
};

static inline uint64_t aligned(uint64_t size)
{
   return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static inline void *receive_pieces(void *of)
{
   struct receipt *all = of;
   char *piece = aligned_alloc(ALIGNMENT, PIECE_BYTES);
   for (;;) {
      pthread_mutex_lock(&all->turn);
      const uint64_t size = all->left < PIECE_BYTES ? all->left : PIECE_BYTES, at = all->at;
      must(size == 0 || receive_all(all->connection, piece, size), "recv");
      all->left -= size;
      all->at += size;
      pthread_mutex_unlock(&all->turn);
      if (size == 0)
         break;
      must(pwrite(all->file, piece, aligned(size), at) == (ssize_t)aligned(size), "pwrite");
   }
   free(piece);
   return NULL;
}

// Receives so many bytes into a file, which is open with O_DIRECT, from an aligned offset on, and syncs it. Behind the
// bytes some of a block are of no meaning.
static inline void receive_into(int connection, int file, uint64_t at, uint64_t size)
{
   struct receipt all = {connection, file, size, at, PTHREAD_MUTEX_INITIALIZER};
   pthread_t receivers[RECEIVERS];
   for (int i = 0; i < RECEIVERS; ++i)
      must(pthread_create(&receivers[i], NULL, receive_pieces, &all) == 0, "pthread_create");
   for (int i = 0; i < RECEIVERS; ++i)
      pthread_join(receivers[i], NULL);
   must(fdatasync(file) == 0, "fdatasync");
}

// A new file with space for so many bytes.
static inline int reserved(const char *path, uint64_t size)
{
   const int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0644);
   must(file >= 0 && fallocate(file, 0, 0, aligned(size)) == 0, path);
   return file;
}

#endif
