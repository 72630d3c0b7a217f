/* The C API of Femtobarn: federations, snapshots, views and transactions. Data are in the structures of Arrow's C data
   interface (https://arrow.apache.org/docs/format/CDataInterface.html). femtobarn.hpp is a layer for C++ above it.

   1. A function that returns fb_status returns FB_OK, or the kind of its error; fb_last_error() then has the text.
      The result behind its last pointer is then NULL, or a structure without a release function.
   2. Handles are freed by their own function, in any order; NULL is ignored. A view keeps its snapshot, and that its federation.
   3. Handles may be used by several threads at once, but only in the process that made them, not in one that it forked.
   4. Texts are UTF-8 and end with NUL. Pointers to structures may be NULL only where this header says so.
   5. Functions are added in later versions; none changes. */

#ifndef FEMTOBARN_H
#define FEMTOBARN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
   const char *format;
   const char *name;
   const char *metadata;
   int64_t flags;
   int64_t n_children;
   struct ArrowSchema **children;
   struct ArrowSchema *dictionary;
   void (*release)(struct ArrowSchema *);
   void *private_data;
};

struct ArrowArray {
   int64_t length;
   int64_t null_count;
   int64_t offset;
   int64_t n_buffers;
   int64_t n_children;
   const void **buffers;
   struct ArrowArray **children;
   struct ArrowArray *dictionary;
   void (*release)(struct ArrowArray *);
   void *private_data;
};

#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
   int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
   int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
   const char *(*get_last_error)(struct ArrowArrayStream *);
   void (*release)(struct ArrowArrayStream *);
   void *private_data;
};

#endif

typedef int fb_status;

enum {
   FB_OK = 0,
   FB_CONFLICT = 1,    /* another transaction committed first: run this one again */
   FB_NOT_FOUND = 2,   /* no such name, entry or commit */
   FB_EXISTS = 3,      /* the name is taken */
   FB_BUSY = 4,        /* another process holds a lock */
   FB_UNAVAILABLE = 5, /* the server does not answer */
   FB_DENIED = 6,      /* the server or the operating system does not permit this */
   FB_INVALID = 7,     /* an argument is wrong */
   FB_CORRUPT = 8,     /* stored bytes are damaged */
   FB_UNSUPPORTED = 9, /* a newer version wrote this */
   FB_CLOSED = 10,     /* the transaction has ended, or the handle is of another process */
   FB_FULL = 11,       /* the disk is full */
   FB_IO = 12,         /* the operating system refused a read or a write */
   FB_INTERNAL = 13    /* a bug */
};

typedef struct fb_federation fb_federation;
typedef struct fb_snapshot fb_snapshot;
typedef struct fb_names fb_names;
typedef struct fb_view fb_view;
typedef struct fb_transaction fb_transaction;

/* Options for opening a federation. Zero and NULL stand for the default, and so does NULL for the whole structure. */
typedef struct fb_options {
   uint64_t cache_bytes;       /* size of the page cache; default: 256 MiB */
   uint32_t threads;           /* threads of one call that reads; default: all cores */
   uint32_t streams;           /* connections for prefetching from a server; default: 2 */
   double timeout_seconds;     /* wait of requests for a server that was reached before; default: 60 */
   const char *disk_cache;     /* folder of a cache for bytes from a server; default: none */
   uint64_t disk_cache_bytes;  /* size of the disk cache; default: 16 GiB */
   const char *const *memcached; /* addresses of memcached servers; default: none */
   size_t memcached_count;
} fb_options;

/* The comparison of a field with a constant. */
enum { FB_LESS = 0, FB_LESS_EQUAL = 1, FB_GREATER = 2, FB_GREATER_EQUAL = 3, FB_EQUAL = 4, FB_NOT_EQUAL = 5 };

/* The member of a constant that is set. */
enum { FB_INTEGER = 0, FB_UNSIGNED = 1, FB_REAL = 2, FB_TEXT = 3 };

/* A field compared with a constant. The field is a number or a text outside collections, such as "run" or "MET.pt", or the
   size of a collection, such as "Muon.#". Numbers compare exactly, whatever their types are. A missing value meets no
   condition. Of several conditions all must hold. Clusters whose statistics exclude a match are not read. */
typedef struct fb_condition {
   const char *path;
   int32_t comparison;
   int32_t kind;
   union {
      int64_t integer;
      uint64_t unsigned_integer;
      double real;
      const char *text;
   } value;
} fb_condition;

/* The version of the library, such as "0.1.0". */
const char *fb_version(void);

/* The text of the last error in this thread, until the thread's next call; empty if there was none. */
const char *fb_last_error(void);

/* The name of a status, such as "not-found". */
const char *fb_status_name(fb_status status);

/* ---- federations */

/* Opens a federation: a folder, a URL such as root://host//lhc.fed, or URLs of copies, separated by commas. */
fb_status fb_open(const char *place, const fb_options *options, fb_federation **federation);

/* Creates a federation in a folder, which must not exist or be empty. */
fb_status fb_create(const char *folder, const char *name, fb_federation **federation);

void fb_federation_free(fb_federation *federation);

/* ---- snapshots: a federation as of a commit. Vacuum keeps the bytes that a snapshot can read. */

fb_status fb_snapshot_newest(const fb_federation *federation, fb_snapshot **snapshot);

/* The snapshot of a commit, by its number. */
fb_status fb_snapshot_at(const fb_federation *federation, uint64_t csn, fb_snapshot **snapshot);

fb_status fb_snapshot_tagged(const fb_federation *federation, const char *tag, fb_snapshot **snapshot);

/* The number of the commit; 0 for NULL. */
uint64_t fb_snapshot_csn(const fb_snapshot *snapshot);

fb_status fb_snapshot_databases(const fb_snapshot *snapshot, fb_names **names);

fb_status fb_snapshot_containers(const fb_snapshot *snapshot, const char *database, fb_names **names);

void fb_snapshot_free(fb_snapshot *snapshot);

/* The number of names; 0 for NULL. */
size_t fb_names_count(const fb_names *names);

/* A name, as long as the list lives; NULL past the end. */
const char *fb_names_get(const fb_names *names, size_t index);

void fb_names_free(fb_names *names);

/* ---- views: a container in a snapshot. Paths of fields are such as "run" or "Muon.pt", which is the member of all muons;
   "Muon.#" has only their numbers. No path (NULL and 0) stands for all fields. */

/* Opens the container with a path such as "run7/events". */
fb_status fb_view_open(const fb_snapshot *snapshot, const char *path, fb_view **view);

/* Number of entries, including deleted ones: the entry behind the last; 0 for NULL. */
uint64_t fb_view_entries(const fb_view *view);

/* Number of objects: entries that are not deleted; 0 for NULL. */
uint64_t fb_view_objects(const fb_view *view);

/* The class of the objects as JSON, as long as the view lives. */
const char *fb_view_definition(const fb_view *view);

/* Writes the entry behind the last one of each cluster, at most `capacity` of them, and the number of clusters. */
fb_status fb_view_clusters(const fb_view *view, uint64_t *ends, size_t capacity, size_t *count);

/* The type of the array that fb_view_read returns: a struct with the fields. */
fb_status fb_view_schema(const fb_view *view, const char *const *paths, size_t path_count, struct ArrowSchema *schema);

/* Fields of the objects of the entries from `first` to before `end`, without deleted ones and those that do not meet the
   conditions. The array lives until its release function is called. */
fb_status fb_view_read(const fb_view *view, const char *const *paths, size_t path_count, uint64_t first, uint64_t end, const fb_condition *conditions, size_t condition_count, struct ArrowArray *array);

/* For each entry from `first` to before `end`: the position of its object in the array that fb_view_read returns for
   these entries without conditions, or -1 if it is deleted or does not meet the conditions. */
fb_status fb_view_rows(const fb_view *view, uint64_t first, uint64_t end, const fb_condition *conditions, size_t condition_count, int64_t *rows);

/* Fields of all objects that meet the conditions, cluster by cluster. */
fb_status fb_view_stream(const fb_view *view, const char *const *paths, size_t path_count, const fb_condition *conditions, size_t condition_count, struct ArrowArrayStream *stream);

void fb_view_free(fb_view *view);

/* ---- transactions: all changes become visible by one commit, or not at all. */

/* Begins a transaction. The message is shown in the history. */
fb_status fb_transaction_begin(const fb_federation *federation, const char *message, fb_transaction **transaction);

/* Creates a container, and its database if there is none of that name. The class is JSON, such as
   {"name": "Event", "version": 1, "fields": [{"name": "run", "type": "uint32"}]}: the form that fb_view_definition
   returns. */
fb_status fb_transaction_create(const fb_transaction *transaction, const char *path, const char *definition);

/* Appends objects to a container, which is locked until the transaction ends: a struct with the fields of the class, of
   the types of fb_view_schema; texts and lists may have offsets of 32 bits. The first object gets the entry `first_entry`,
   which may be NULL. All is copied; the structures stay the caller's. */
fb_status fb_transaction_append(const fb_transaction *transaction, const char *path, const struct ArrowSchema *schema, const struct ArrowArray *array, uint64_t *first_entry);

/* Deletes the objects at entries of a container. */
fb_status fb_transaction_delete(const fb_transaction *transaction, const char *path, const uint64_t *entries, size_t count);

/* Commits. The transaction has ended then, even if that fails. `csn`, the number of the commit, may be NULL. */
fb_status fb_transaction_commit(const fb_transaction *transaction, uint64_t *csn);

/* Releases a transaction; if it was not committed, nothing has changed. */
void fb_transaction_free(fb_transaction *transaction);

#ifdef __cplusplus
}
#endif

#endif
