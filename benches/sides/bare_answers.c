// A server of HTTP that looks nothing up: all answers are in a file, and a number in the request says which is sent.
//
//    bare_answers PORT FILE SLOT_BYTES NAME EACH THREADS
//
// FILE has an answer in each of its slots: its size, four bytes, and the answer with its head. The request has a
// parameter of this name, the last one; that number, divided by EACH, is the slot's. A request arrives whole.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "bare_threads.h"

static const char *answers, *name;
static size_t slot_bytes, slots, each;

static bool answer_all(struct worker *worker, int connection)
{
   const char *number = memmem(worker->in, worker->filled, name, strlen(name));
   if (!number)
      return false;
   const size_t slot = strtoull(number + strlen(name), NULL, 10) / each;
   if (slot >= slots)
      return false;
   const char *answer = answers + slot * slot_bytes;
   return send_all(connection, answer + sizeof(word), *(const word *)answer, 0);
}

static void end(int connection)
{
   close(connection);
}

int main(int count, char **arguments)
{
   must(count == 7, "bare_answers PORT FILE SLOT_BYTES NAME EACH THREADS");
   struct stat found;
   const int file = open(arguments[2], O_RDONLY);
   must(file >= 0 && fstat(file, &found) == 0, arguments[2]);
   slot_bytes = strtoull(arguments[3], NULL, 10);
   slots = found.st_size / slot_bytes;
   name = arguments[4];
   each = strtoull(arguments[5], NULL, 10);
   answers = mmap(NULL, found.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
   must(answers != MAP_FAILED, "mmap");
   serve_all(atoi(arguments[1]), atoi(arguments[6]));
}
