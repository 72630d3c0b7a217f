// Bytes from one process to another over a connection of this machine: the limit of what goes through a server.
//
//    bare_stream read FILE ITEMS                          a file by sendfile and recv; all words are summed
//    bare_stream append FOLDER POOL SIZE COUNT COMMIT     objects by send, recv and writes past the page cache, synced
//                                                         and acknowledged every COMMIT objects
//
// CPU seconds are those of both processes. What was read is proved by its check, as always; what was written is read
// again, and compared with what was sent.

#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "bare_receive.h"

// ---- reading

static void send_file(const char *path, int listener)
{
   const int file = open(path, O_RDONLY), connection = accept(listener, NULL, NULL);
   must(file >= 0, path);
   while (sendfile(connection, file, NULL, INT32_MAX) > 0)
      ;
   _exit(0);
}

static void await(pid_t sender)
{
   int status;
   waitpid(sender, &status, 0);
   must(status == 0, "the sender");
}

// Sends and receives a file; returns the sum of its words.
static uint32_t transfer(const char *path, uint64_t *received)
{
   static char piece[PIECE_BYTES];
   const int listener = listening(0);
   const pid_t sender = fork();
   if (sender == 0)
      send_file(path, listener);
   const int connection = connected(port_of(listener));
   uint32_t check = 0;
   *received = 0;
   for (ssize_t size; (size = recv(connection, piece, PIECE_BYTES, MSG_WAITALL)) > 0; *received += size)
      check += sum_of(piece, size);
   await(sender);
   close(connection);
   close(listener);
   return check;
}

static void read_all(const char *path, uint64_t items)
{
   uint64_t bytes;
   transfer(path, &bytes);
   const struct watch watch = started();
   const uint32_t check = transfer(path, &bytes);
   report(watch, items, bytes, check);
}

// ---- writing

struct objects {
   const char *pool;
   uint64_t in_pool, size, count, commit;
};

// Calls something with the objects from the first on, those that are neighbours in the pool at once.
static void each_run(const struct objects *objects, uint64_t first, uint64_t count,
                     void (*take)(void *, const char *, uint64_t), void *with)
{
   while (count > 0) {
      const uint64_t place = first % objects->in_pool, room = objects->in_pool - place, run = count < room ? count : room;
      take(with, objects->pool + place * objects->size, run * objects->size);
      first += run;
      count -= run;
   }
}

static uint64_t of_commit(const struct objects *objects, uint64_t first)
{
   const uint64_t left = objects->count - first;
   return left < objects->commit ? left : objects->commit;
}

static void send_run(void *connection, const char *bytes, uint64_t size)
{
   must(send_all(*(int *)connection, bytes, size, 0), "send");
}

static void compare_run(void *read, const char *bytes, uint64_t size)
{
   const char **at = read;
   must(memcmp(*at, bytes, size) == 0, "other bytes were written");
   *at += size;
}

static void send_objects(const struct objects *objects, uint16_t port)
{
   int connection = connected(port);
   char done;
   for (uint64_t first = 0; first < objects->count; first += objects->commit) {
      each_run(objects, first, of_commit(objects, first), send_run, &connection);
      must(receive_all(connection, &done, sizeof done), "recv");
   }
   _exit(0);
}

static void write_all(const char *folder, struct objects *objects)
{
   char path[4096];
   snprintf(path, sizeof path, "%s/w0", folder);
   const uint64_t commit_bytes = objects->commit * objects->size;
   const uint64_t commits = (objects->count + objects->commit - 1) / objects->commit, space = aligned(commit_bytes);
   const int file = reserved(path, commits * space), listener = listening(0);
   const struct watch watch = started();
   const pid_t sender = fork();
   if (sender == 0)
      send_objects(objects, port_of(listener));
   const int connection = accept(listener, NULL, NULL);
   for (uint64_t i = 0; i < commits; ++i) {
      receive_into(connection, file, i * space, of_commit(objects, i * objects->commit) * objects->size);
      must(send_all(connection, "", 1, 0), "send");
   }
   await(sender);
   report(watch, objects->count, objects->count * objects->size, 0);
   const char *written = mmap(NULL, commits * space, PROT_READ, MAP_SHARED, file, 0);
   for (uint64_t i = 0; i < commits; ++i) {
      const char *at = written + i * space;
      each_run(objects, i * objects->commit, of_commit(objects, i * objects->commit), compare_run, &at);
   }
}

int main(int count, char **arguments)
{
   if (count == 4 && strcmp(arguments[1], "read") == 0) {
      read_all(arguments[2], strtoull(arguments[3], NULL, 10));
      return 0;
   }
   must(count == 7 && strcmp(arguments[1], "append") == 0, "bare_stream read|append ARGUMENTS");
   struct objects objects = {NULL, 0, strtoull(arguments[4], NULL, 10), strtoull(arguments[5], NULL, 10),
                             strtoull(arguments[6], NULL, 10)};
   struct stat found;
   const int pool = open(arguments[3], O_RDONLY);
   must(pool >= 0 && fstat(pool, &found) == 0, arguments[3]);
   objects.pool = mmap(NULL, found.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, pool, 0);
   objects.in_pool = found.st_size / objects.size;
   write_all(arguments[2], &objects);
   return 0;
}
