// Commits at a server, without a database: clients send ten objects of 100 bytes each, a server of this machine writes
// 4 KB for each that has arrived by then, in a file that is there already, syncs it once, and answers them.
//
//    bare_commits FOLDER CLIENTS SECONDS
//
// CPU seconds are those of the server and its clients, which are threads of one process. An answer is the sum of the
// words of its request, which the client compares.

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "bare.h"

#define REQUEST_BYTES 1000
#define BLOCK_BYTES 4096
#define BLOCKS 4096
#define CLIENTS_MAX 256

static pthread_barrier_t step;
static double seconds;

struct client {
   int connection;
   uint32_t number;
   uint64_t commits;
};

static void *commit_for_a_while(void *of)
{
   struct client *client = of;
   uint32_t request[REQUEST_BYTES / sizeof(uint32_t)] = {client->number}, answer;
   pthread_barrier_wait(&step);
   for (const double end = wall_seconds() + seconds; wall_seconds() < end; ++client->commits) {
      request[1] = client->commits;
      must(send_all(client->connection, request, sizeof request, 0), "send");
      must(receive_all(client->connection, &answer, sizeof answer), "recv");
      must(answer == sum_of(request, sizeof request), "another request was answered");
   }
   close(client->connection);
   return NULL;
}

static char blocks[CLIENTS_MAX][BLOCK_BYTES];

// A file with all its blocks, so that a sync writes no inode.
static int prepared(const char *path)
{
   const int file = open(path, O_RDWR | O_CREAT, 0644);
   must(file >= 0, path);
   for (int i = 0; i < BLOCKS; ++i)
      must(pwrite(file, blocks[0], BLOCK_BYTES, (off_t)i * BLOCK_BYTES) == BLOCK_BYTES, "pwrite");
   must(fdatasync(file) == 0, "fdatasync");
   return file;
}

// Commits whatever has arrived together, until all clients have gone.
static void serve(int listener, int file, int clients)
{
   const int events = epoll_create1(0);
   for (int i = 0; i < clients; ++i) {
      struct epoll_event event = {.events = EPOLLIN, .data.fd = accept(listener, NULL, NULL)};
      send_at_once(event.data.fd);
      epoll_ctl(events, EPOLL_CTL_ADD, event.data.fd, &event);
   }
   for (uint64_t next = 0; clients > 0;) {
      struct epoll_event found[CLIENTS_MAX];
      int asking[CLIENTS_MAX], count = 0;
      const int ready = epoll_wait(events, found, CLIENTS_MAX, -1);
      for (int i = 0; i < ready; ++i) {
         asking[count] = found[i].data.fd;
         if (receive_all(asking[count], blocks[count], REQUEST_BYTES))
            ++count;
         else if (close(found[i].data.fd) == 0)
            --clients;
      }
      if (count == 0)
         continue;
      next = next + count > BLOCKS ? 0 : next;
      const ssize_t size = (ssize_t)count * BLOCK_BYTES;
      must(pwrite(file, blocks, size, next * BLOCK_BYTES) == size && fdatasync(file) == 0, "the commits");
      next += count;
      for (int i = 0; i < count; ++i) {
         const uint32_t sum = sum_of(blocks[i], REQUEST_BYTES);
         must(send_all(asking[i], &sum, sizeof sum, 0), "send");
      }
   }
   _exit(0);
}

int main(int count, char **arguments)
{
   must(count == 4, "bare_commits FOLDER CLIENTS SECONDS");
   const int clients = atoi(arguments[2]);
   must(clients > 0 && clients <= CLIENTS_MAX, "clients");
   seconds = atof(arguments[3]);
   char path[4096];
   snprintf(path, sizeof path, "%s/log", arguments[1]);
   const int file = prepared(path), listener = listening(0);
   const pid_t server = fork();
   if (server == 0)
      serve(listener, file, clients);
   struct client each[CLIENTS_MAX];
   pthread_t threads[CLIENTS_MAX];
   pthread_barrier_init(&step, NULL, clients + 1);
   for (int i = 0; i < clients; ++i) {
      each[i] = (struct client){connected(port_of(listener)), i, 0};
      must(pthread_create(&threads[i], NULL, commit_for_a_while, &each[i]) == 0, "pthread_create");
   }
   const struct watch watch = started();
   pthread_barrier_wait(&step);
   uint64_t commits = 0;
   for (int i = 0; i < clients; ++i) {
      pthread_join(threads[i], NULL);
      commits += each[i].commits;
   }
   int status;
   waitpid(server, &status, 0);
   must(status == 0, "the server");
   report(watch, commits, commits * REQUEST_BYTES, 0);
   return 0;
}
