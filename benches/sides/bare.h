// What the programs in C share that measure the machine's limits: time, checksums, failures, connections.

#ifndef BENCHES_BARE
#define BENCHES_BARE

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

// Ends the program unless something is so.
static inline void must(int is_so, const char *what)
{
   if (!is_so) {
      perror(what);
      exit(1);
   }
}

// ---- time

struct watch {
   double wall, cpu;
};

static inline double wall_seconds(void)
{
   struct timespec now;
   clock_gettime(CLOCK_MONOTONIC, &now);
   return now.tv_sec + 1e-9 * now.tv_nsec;
}

// CPU seconds of this process, and of its children that have ended.
static inline double cpu_seconds(void)
{
   const int whose[] = {RUSAGE_SELF, RUSAGE_CHILDREN};
   double seconds = 0;
   for (int i = 0; i < 2; ++i) {
      struct rusage usage;
      getrusage(whose[i], &usage);
      seconds += usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + 1e-6 * (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
   }
   return seconds;
}

static inline struct watch started(void)
{
   return (struct watch){wall_seconds(), cpu_seconds()};
}

// Prints what was done since the start, as README.md says.
static inline void report(struct watch since, uint64_t items, uint64_t bytes, uint64_t check)
{
   const double wall = wall_seconds() - since.wall, cpu = cpu_seconds() - since.cpu;
   printf("{\"items\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"wall_s\": %.6f, \"cpu_s\": %.6f, \"check\": %" PRIu64 "}\n",
          items, bytes, wall, cpu, check);
}

// ---- bytes

typedef uint32_t word __attribute__((aligned(1), may_alias));

// The sum of the 32-bit words of some bytes, modulo 2^32; bytes behind the last word do not count.
static inline uint32_t sum_of(const void *bytes, size_t size)
{
   const word *words = bytes;
   uint32_t sum = 0;
   for (size_t i = 0; i < size / sizeof(word); ++i)
      sum += words[i];
   return sum;
}

// ---- connections of this machine

static inline struct sockaddr_in address_of(uint16_t port)
{
   return (struct sockaddr_in){
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

// A socket that listens on a port, or on any that is free.
static inline int listening(uint16_t port)
{
   const int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
   const struct sockaddr_in address = address_of(port);
   setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
   must(bind(listener, (const struct sockaddr *)&address, sizeof address) == 0, "bind");
   must(listen(listener, SOMAXCONN) == 0, "listen");
   return listener;
}

static inline uint16_t port_of(int listener)
{
   struct sockaddr_in address;
   socklen_t size = sizeof address;
   must(getsockname(listener, (struct sockaddr *)&address, &size) == 0, "getsockname");
   return ntohs(address.sin_port);
}

static inline void send_at_once(int connection)
{
   const int one = 1;
   setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static inline int connected(uint16_t port)
{
   const int connection = socket(AF_INET, SOCK_STREAM, 0);
   const struct sockaddr_in address = address_of(port);
   must(connect(connection, (const struct sockaddr *)&address, sizeof address) == 0, "connect");
   send_at_once(connection);
   return connection;
}

// Sends all bytes; false if the connection ended.
static inline int send_all(int connection, const void *bytes, size_t size, int flags)
{
   for (size_t sent = 0; sent < size;) {
      const ssize_t more = send(connection, (const char *)bytes + sent, size - sent, flags | MSG_NOSIGNAL);
      if (more <= 0)
         return 0;
      sent += more;
   }
   return 1;
}

// Receives exactly so many bytes; false if the connection ended before.
static inline int receive_all(int connection, void *bytes, size_t size)
{
   return recv(connection, bytes, size, MSG_WAITALL) == (ssize_t)size;
}

#endif
