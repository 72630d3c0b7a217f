// A client of HTTP that knows nothing of stores: it puts a file to a server of this machine, or gets one.
//
//    bare_http put|get PORT PATH FILE
//
// A file that it gets is written past the page cache, and synced. CPU seconds are those of the client.

#include <sys/sendfile.h>
#include <sys/stat.h>

#include "bare_receive.h"

#define HEAD_BYTES 8192

// Receives the head of an answer, which must be good, and nothing behind it; returns the size of its body.
static uint64_t body_of(int connection)
{
   static char head[HEAD_BYTES + 1];
   char *end = NULL;
   while (!end) {
      const ssize_t seen = recv(connection, head, HEAD_BYTES, MSG_PEEK);
      must(seen > 0, "the head of the answer");
      head[seen] = 0;
      end = strstr(head, "\r\n\r\n");
      must(end || seen < HEAD_BYTES, "the end of the head of the answer");
   }
   must(receive_all(connection, head, end + 4 - head), "recv");
   end[2] = 0;
   if (strncmp(head, "HTTP/1.1 200 ", 13) != 0) {
      fprintf(stderr, "%s\n", head);
      exit(1);
   }
   const char *length = strcasestr(head, "\r\ncontent-length:");
   return length ? strtoull(length + 17, NULL, 10) : 0;
}

static uint64_t put(int connection, const char *path, const char *name)
{
   char head[HEAD_BYTES];
   struct stat found;
   const int file = open(name, O_RDONLY);
   must(file >= 0 && fstat(file, &found) == 0, name);
   const int size = snprintf(head, sizeof head, "PUT %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %jd\r\n\r\n", path,
                             (intmax_t)found.st_size);
   must(send_all(connection, head, size, MSG_MORE), "send");
   for (off_t at = 0; at < found.st_size;)
      must(sendfile(connection, file, &at, found.st_size - at) > 0, "sendfile");
   body_of(connection);
   return found.st_size;
}

static uint64_t get(int connection, const char *path, const char *name)
{
   char head[HEAD_BYTES];
   const int asked = snprintf(head, sizeof head, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
   must(send_all(connection, head, asked, 0), "send");
   const uint64_t size = body_of(connection);
   const int file = reserved(name, size);
   receive_into(connection, file, 0, size);
   must(ftruncate(file, size) == 0 && fdatasync(file) == 0, name);
   return size;
}

int main(int count, char **arguments)
{
   must(count == 5, "bare_http put|get PORT PATH FILE");
   const int connection = connected(atoi(arguments[2]));
   const struct watch watch = started();
   const uint64_t size = (strcmp(arguments[1], "put") == 0 ? put : get)(connection, arguments[3], arguments[4]);
   report(watch, size, size, 0);
   return 0;
}
