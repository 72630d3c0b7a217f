// The threads of a bare server: some, each with connections of its own, or one for each connection.

#ifndef BENCHES_BARE_THREADS
#define BENCHES_BARE_THREADS

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/epoll.h>

#include "bare.h"

#define IN_BYTES (64 << 10)
#define OUT_BYTES (4 << 20)
#define EVENTS 64
#define WORKERS_MAX 64
#define STACK_BYTES (256 << 10)

struct worker {
   uint8_t *in, *out;
   size_t at, filled;
   // The events of its connections; -1 if it has one connection, for which it waits.
   int events;
};

// What a program does with requests that have arrived; false ends the connection.
static bool answer_all(struct worker *worker, int connection);
// What it does when a connection has ended.
static void end(int connection);

static int listener, threads;
static struct worker workers[WORKERS_MAX];

static inline struct worker worker_with(int events)
{
   // Memory that is not used takes no space. Direct writes need memory at multiples of a page.
   struct worker worker = {.in = malloc(IN_BYTES), .out = aligned_alloc(4096, OUT_BYTES), .events = events};
   must(worker.in && worker.out, "malloc");
   return worker;
}

static inline void watch_for(int events, int connection)
{
   struct epoll_event event = {.events = EPOLLIN, .data.fd = connection};
   must(epoll_ctl(events, EPOLL_CTL_ADD, connection, &event) == 0, "epoll_ctl");
}

static inline int accepted(void)
{
   const int connection = accept(listener, NULL, NULL);
   must(connection >= 0, "accept");
   send_at_once(connection);
   return connection;
}

// Answers the requests that have arrived; false if the connection has ended.
static inline bool serve(struct worker *worker, int connection)
{
   const ssize_t got = recv(connection, worker->in, IN_BYTES, worker->events < 0 ? 0 : MSG_DONTWAIT);
   if (got <= 0)
      return got < 0 && (errno == EAGAIN || errno == EINTR);
   worker->at = 0;
   worker->filled = got;
   return answer_all(worker, connection);
}

static inline void *work_for_many(void *of)
{
   struct worker *worker = of;
   static int next;
   for (;;) {
      struct epoll_event found[EVENTS];
      const int count = epoll_wait(worker->events, found, EVENTS, -1);
      for (int i = 0; i < count; ++i) {
         const int connection = found[i].data.fd;
         // The first thread alone has the listener.
         if (connection == listener)
            watch_for(workers[next++ % threads].events, accepted());
         else if (!serve(worker, connection))
            end(connection);
      }
   }
   return NULL;
}

static inline void *work_for_one(void *of)
{
   const int connection = (int)(intptr_t)of;
   struct worker worker = worker_with(-1);
   while (serve(&worker, connection))
      ;
   end(connection);
   free(worker.in);
   free(worker.out);
   return NULL;
}

// Serves for ever, with so many threads; with none, with one for each connection.
static inline void serve_all(uint16_t port, int count)
{
   threads = count;
   must(threads <= WORKERS_MAX, "threads");
   struct rlimit descriptors;
   getrlimit(RLIMIT_NOFILE, &descriptors);
   descriptors.rlim_cur = descriptors.rlim_max;
   setrlimit(RLIMIT_NOFILE, &descriptors);
   listener = listening(port);
   pthread_attr_t small;
   pthread_attr_init(&small);
   pthread_attr_setstacksize(&small, STACK_BYTES);
   pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
   pthread_t thread;
   for (int i = 0; i < threads; ++i)
      workers[i] = worker_with(epoll_create1(0));
   for (int i = 1; i < threads; ++i)
      must(pthread_create(&thread, &small, work_for_many, &workers[i]) == 0, "pthread_create");
   if (threads > 0) {
      watch_for(workers[0].events, listener);
      work_for_many(&workers[0]);
   }
   for (;;)
      must(pthread_create(&thread, &small, work_for_one, (void *)(intptr_t)accepted()) == 0, "pthread_create");
}

#endif
