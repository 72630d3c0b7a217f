// A server that speaks just enough of root:// to be loaded as others are: the limit of servers of this protocol. It
// knows no users, no rights and no limits, and reads and writes files by the system's calls alone.
//
//    bare_server PORT FOLDER THREADS      serves the files below a folder; 0 threads are one for each connection
//    bare_server PORT redirect THREADS    sends each open to another server, without looking
//
// A connection on which something is wrong is closed, so that its client fails.

#include <fcntl.h>
#include <sys/stat.h>

#include "bare_pages.h"

#define HANDSHAKE_BYTES 20

static const char *folder;
static bool redirects;

// ---- small requests

static size_t put_stat(uint8_t *to, const struct stat *found)
{
   const int flags = S_ISDIR(found->st_mode) ? 2 | 16 | 32 : 16 | 32;
   return 1 + sprintf((char *)to, "%ju %jd %d %jd", (uintmax_t)found->st_ino, (intmax_t)found->st_size, flags,
                      (intmax_t)found->st_mtime);
}

// The path of a file; what is behind a question mark is for other servers.
static void put_path(char *to, const uint8_t *name, size_t size)
{
   const uint8_t *end = memchr(name, '?', size);
   snprintf(to, PATH_MAX, "%s/%.*s", folder, (int)(end ? end - name : (ptrdiff_t)size), (const char *)name);
}

static bool refuse(struct worker *worker, int connection, const struct request *request, uint32_t why)
{
   uint8_t body[] = "....it cannot be done";
   put32(body, why);
   return reply(worker, connection, request, ERROR, body, sizeof body);
}

static bool open_file(struct worker *worker, int connection, const struct request *request, const uint8_t *name)
{
   // The port 1094 of a host.
   static const char elsewhere[] = "\0\0\x04\x46" "127.0.0.2";
   if (redirects)
      return reply(worker, connection, request, REDIRECT, elsewhere, sizeof elsewhere - 1);
   char path[PATH_MAX];
   put_path(path, name, request->size);
   const uint16_t options = get16(request->parameters + 2);
   const bool writes = options & (0x0002 | 0x0008 | 0x0020 | 0x8000);
   const int file = open(path, writes ? O_RDWR | O_CREAT | O_TRUNC | O_DIRECT : O_RDONLY, 0644);
   struct stat found;
   if (file < 0 || file >= FILES || fstat(file, &found) != 0)
      return refuse(worker, connection, request, NOT_FOUND);
   files[file].connection = connection;
   files[file].writes = writes;
   files[file].size = found.st_size;
   // The handle, no compression, and the stat line.
   uint8_t body[12 + 100] = {0};
   put32(body, file);
   return reply(worker, connection, request, OK, body, 12 + put_stat(body + 12, &found));
}

static bool stat_file(struct worker *worker, int connection, const struct request *request, const uint8_t *name)
{
   char path[PATH_MAX];
   struct stat found;
   put_path(path, name, request->size);
   const int file = file_of(connection, request->parameters + 12);
   if ((request->size ? stat(path, &found) : fstat(file, &found)) != 0)
      return refuse(worker, connection, request, NOT_FOUND);
   uint8_t body[100];
   return reply(worker, connection, request, OK, body, put_stat(body, &found));
}

static bool close_file(struct worker *worker, int connection, const struct request *request)
{
   const int file = file_of(connection, request->parameters);
   if (file < 0 || (files[file].writes && ftruncate(file, files[file].size) != 0))
      return false;
   files[file].connection = 0;
   close(file);
   return reply(worker, connection, request, OK, "", 0);
}

// ---- connections

// Waits until so many bytes from the current one on are in memory.
static bool arrived(struct worker *worker, int connection, size_t size)
{
   const size_t have = worker->filled - worker->at;
   if (have >= size)
      return true;
   if (size > IN_BYTES)
      return false;
   memmove(worker->in, worker->in + worker->at, have);
   worker->at = 0;
   worker->filled = size;
   return receive_all(connection, worker->in + have, size - have);
}

static bool answer(struct worker *worker, int connection, const struct request *request, const uint8_t *body)
{
   // Version 5.2, a server that has files and knows pages; or a handshake, whose answer ends with the role.
   static const uint8_t protocol[] = {0, 0, 5, 0x20, 0, 0x20, 0, 1}, session[16] = {1};
   switch (request->code) {
   case 0: return reply(worker, connection, request, OK, "\0\0\5\x20\0\0\0\1", 8);
   case PROTOCOL: return reply(worker, connection, request, OK, protocol, sizeof protocol);
   case LOGIN: return reply(worker, connection, request, OK, session, sizeof session);
   case OPEN: return open_file(worker, connection, request, body);
   case STAT: return stat_file(worker, connection, request, body);
   case READ: return read_piece(worker, connection, request);
   case READ_PAGES: return read_pages(worker, connection, request);
   case READ_VECTOR: return read_vector(worker, connection, request, body);
   case WRITE: return write_piece(worker, connection, request);
   case WRITE_PAGES: return write_pages(worker, connection, request);
   case CLOSE: return close_file(worker, connection, request);
   case PING:
   case SYNC:
   case END_SESSION: return reply(worker, connection, request, OK, "", 0);
   default: return refuse(worker, connection, request, UNSUPPORTED);
   }
}

static bool next_request(struct worker *worker, int connection)
{
   if (!arrived(worker, connection, HANDSHAKE_BYTES))
      return false;
   const uint8_t *head = worker->in + worker->at;
   struct request request = {{head[0], head[1]}, get16(head + 2), {0}, 0};
   if (request.code == 0) {
      worker->at += HANDSHAKE_BYTES;
      return answer(worker, connection, &request, NULL);
   }
   if (!arrived(worker, connection, REQUEST_BYTES))
      return false;
   head = worker->in + worker->at;
   memcpy(request.parameters, head + 4, sizeof request.parameters);
   request.size = get32(head + 20);
   const size_t body = request.code == WRITE || request.code == WRITE_PAGES ? 0 : request.size;
   if (!arrived(worker, connection, REQUEST_BYTES + body))
      return false;
   worker->at += REQUEST_BYTES + body;
   return answer(worker, connection, &request, worker->in + worker->at - body);
}

static bool answer_all(struct worker *worker, int connection)
{
   while (worker->at < worker->filled)
      if (!next_request(worker, connection))
         return false;
   return true;
}

static void end(int connection)
{
   for (int file = 0; file < FILES; ++file)
      if (files[file].connection == connection) {
         files[file].connection = 0;
         close(file);
      }
   close(connection);
}

int main(int count, char **arguments)
{
   must(count == 4, "bare_server PORT FOLDER|redirect THREADS");
   folder = arguments[2];
   redirects = strcmp(folder, "redirect") == 0;
   serve_all(atoi(arguments[1]), atoi(arguments[3]));
}
