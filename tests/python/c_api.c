/* The C API from C: writes a federation, reads it in every way, and makes every kind of mistake. Prints "ok". */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "femtobarn.h"

#define CHECK(condition) \
   do { \
      if (!(condition)) { \
         fprintf(stderr, "%s:%d: %s does not hold; the last error is: %s\n", __FILE__, __LINE__, #condition, fb_last_error()); \
         exit(1); \
      } \
   } while (0)

static const char CLASS[] = "{\"name\": \"Event\", \"version\": 1, \"fields\": [{\"name\": \"run\", \"type\": \"uint32\"},"
                            " {\"name\": \"pt\", \"type\": {\"list\": \"float32\"}}]}";

static void no_schema(struct ArrowSchema *schema) { schema->release = NULL; }
static void no_array(struct ArrowArray *array) { array->release = NULL; }

static struct ArrowSchema type_of(const char *format, const char *name, int64_t count, struct ArrowSchema **children)
{
   struct ArrowSchema type = {format, name, NULL, 0, count, children, NULL, no_schema, NULL};
   return type;
}

static struct ArrowArray array_of(int64_t length, int64_t buffers, const void **data, int64_t count, struct ArrowArray **children)
{
   struct ArrowArray array = {length, 0, 0, buffers, count, data, children, NULL, no_array, NULL};
   return array;
}

/* Appends 100 events of a run: event i has i % 3 values, each i. */
static fb_status append(fb_transaction *transaction, uint32_t run, const char *name_of_run)
{
   uint32_t runs[100];
   int32_t offsets[101] = {0};
   float values[100];
   for (int event = 0; event < 100; ++event) {
      runs[event] = run;
      offsets[event + 1] = offsets[event] + event % 3;
      for (int at = offsets[event]; at < offsets[event + 1]; ++at)
         values[at] = event;
   }
   struct ArrowSchema run_type = type_of("I", name_of_run, 0, NULL), item_type = type_of("f", "item", 0, NULL);
   struct ArrowSchema *items[] = {&item_type};
   struct ArrowSchema pt_type = type_of("+l", "pt", 1, items);
   struct ArrowSchema *fields[] = {&pt_type, &run_type};
   struct ArrowSchema type = type_of("+s", "", 2, fields);
   const void *run_data[] = {NULL, runs}, *value_data[] = {NULL, values}, *offset_data[] = {NULL, offsets}, *none[] = {NULL};
   struct ArrowArray run_array = array_of(100, 2, run_data, 0, NULL), value_array = array_of(offsets[100], 2, value_data, 0, NULL);
   struct ArrowArray *item_arrays[] = {&value_array};
   struct ArrowArray pt_array = array_of(100, 2, offset_data, 1, item_arrays);
   struct ArrowArray *field_arrays[] = {&pt_array, &run_array};
   struct ArrowArray array = array_of(100, 1, none, 2, field_arrays);
   uint64_t first = 7;
   const fb_status status = fb_transaction_append(transaction, "run7/events", &type, &array, &first);
   if (status == FB_OK)
      CHECK(first == (run - 7) * 100);
   return status;
}

static void write_runs(fb_federation *federation)
{
   fb_transaction *transaction;
   CHECK(fb_transaction_begin(federation, "runs 7 and 8", &transaction) == FB_OK);
   CHECK(append(transaction, 7, "run") == FB_NOT_FOUND);
   CHECK(fb_transaction_create(transaction, "run7/events", "{}") == FB_INVALID);
   CHECK(fb_transaction_create(transaction, "run7/events", CLASS) == FB_OK);
   CHECK(fb_transaction_create(transaction, "run7/events", CLASS) == FB_EXISTS);
   CHECK(fb_transaction_create(transaction, "run8/", CLASS) == FB_INVALID); /* and no database, see list_names */
   CHECK(append(transaction, 7, "ruin") == FB_INVALID && strstr(fb_last_error(), "\"ruin\""));
   CHECK(append(transaction, 7, "run") == FB_OK && append(transaction, 8, "run") == FB_OK);
   const uint64_t gone[] = {3, 150};
   uint64_t csn = 0;
   CHECK(fb_transaction_commit(transaction, &csn) == FB_OK && csn == 1);
   CHECK(append(transaction, 9, "run") == FB_CLOSED);
   fb_transaction_free(transaction);
   CHECK(fb_transaction_begin(federation, "two are bad", &transaction) == FB_OK);
   CHECK(fb_transaction_delete(transaction, "run7/events", gone, 2) == FB_OK);
   CHECK(fb_transaction_commit(transaction, NULL) == FB_OK);
   fb_transaction_free(transaction);
   CHECK(fb_transaction_begin(federation, "not committed", &transaction) == FB_OK);
   CHECK(append(transaction, 9, "run") == FB_OK);
   fb_transaction_free(transaction);
}

static void read_columns(const fb_view *view)
{
   const char *pt = "pt";
   struct ArrowArray array;
   CHECK(fb_view_read(view, &pt, 1, 2, 6, NULL, 0, &array) == FB_OK);
   CHECK(array.length == 3 && array.n_children == 1);
   const int64_t *offsets = array.children[0]->buffers[1];
   const float *values = array.children[0]->children[0]->buffers[1];
   CHECK(offsets[1] - offsets[0] == 2 && values[offsets[0]] == 2 && values[offsets[1]] == 4);
   array.release(&array);
   CHECK(array.release == NULL);
   struct ArrowSchema schema;
   CHECK(fb_view_schema(view, NULL, 0, &schema) == FB_OK && schema.n_children == 2);
   CHECK(strcmp(schema.children[0]->name, "run") == 0 && strcmp(schema.children[1]->format, "+L") == 0);
   schema.release(&schema);
   CHECK(fb_view_read(view, &pt, 1, 0, 201, NULL, 0, &array) == FB_NOT_FOUND && array.release == NULL);
   pt = "pd";
   CHECK(fb_view_schema(view, &pt, 1, &schema) == FB_NOT_FOUND && schema.release == NULL);
}

static void select_rows(const fb_view *view)
{
   fb_condition conditions[] = {{"pt.#", FB_GREATER, FB_INTEGER, {.integer = 1}}, {"run", FB_EQUAL, FB_REAL, {.real = 7}}};
   struct ArrowArrayStream stream;
   struct ArrowArray array;
   int64_t count = 0, rows[6];
   CHECK(fb_view_stream(view, NULL, 0, conditions, 2, &stream) == FB_OK);
   while (stream.get_next(&stream, &array) == 0 && array.release) {
      count += array.length;
      array.release(&array);
   }
   stream.release(&stream);
   CHECK(count == 33);
   CHECK(fb_view_rows(view, 0, 6, NULL, 0, rows) == FB_OK && rows[2] == 2 && rows[3] == -1 && rows[4] == 3);
   CHECK(fb_view_rows(view, 0, 6, conditions, 2, rows) == FB_OK && rows[2] == 2 && rows[3] == -1 && rows[4] == -1 && rows[5] == 4);
   conditions[0].comparison = 6;
   CHECK(fb_view_rows(view, 0, 6, conditions, 1, rows) == FB_INVALID);
   conditions[1].path = "pt";
   CHECK(fb_view_rows(view, 0, 6, conditions + 1, 1, rows) == FB_INVALID);
   /* Also where statistics exclude all, and where nothing is read. */
   conditions[0] = (fb_condition){"run", FB_GREATER, FB_INTEGER, {.integer = 1000}};
   CHECK(fb_view_rows(view, 0, 6, conditions, 1, rows) == FB_OK && fb_view_rows(view, 0, 6, conditions, 2, rows) == FB_INVALID);
   CHECK(fb_view_read(view, NULL, 0, 6, 6, conditions, 2, &array) == FB_INVALID && array.release == NULL);
   CHECK(fb_view_stream(view, NULL, 0, conditions, 2, &stream) == FB_INVALID && stream.release == NULL);
   CHECK(fb_view_rows(view, 0, 6, NULL, 1, rows) == FB_INVALID && fb_view_rows(view, 0, 6, NULL, 0, NULL) == FB_INVALID);
   size_t clusters = 0;
   uint64_t ends[4];
   CHECK(fb_view_clusters(view, ends, 4, &clusters) == FB_OK && clusters > 0 && clusters <= 4 && ends[clusters - 1] == 200);
}

static void list_names(const fb_snapshot *snapshot)
{
   fb_names *names;
   CHECK(fb_snapshot_databases(snapshot, &names) == FB_OK && fb_names_count(names) == 1);
   CHECK(strcmp(fb_names_get(names, 0), "run7") == 0 && fb_names_get(names, 1) == NULL);
   fb_names_free(names);
   CHECK(fb_snapshot_containers(snapshot, "run7", &names) == FB_OK && strcmp(fb_names_get(names, 0), "events") == 0);
   fb_names_free(names);
   CHECK(fb_snapshot_containers(snapshot, "run9", &names) == FB_NOT_FOUND && names == NULL);
}

static void pass_null(void)
{
   fb_federation *federation = NULL;
   CHECK(fb_open(NULL, NULL, &federation) == FB_INVALID && fb_open("x", NULL, NULL) == FB_INVALID);
   CHECK(fb_open("\xff", NULL, &federation) == FB_INVALID && federation == NULL);
   CHECK(fb_snapshot_newest(NULL, NULL) == FB_INVALID && fb_transaction_commit(NULL, NULL) == FB_INVALID);
   CHECK(fb_view_read(NULL, NULL, 0, 0, 1, NULL, 0, NULL) == FB_INVALID && fb_view_definition(NULL) == NULL);
   CHECK(fb_view_entries(NULL) + fb_view_objects(NULL) + fb_names_count(NULL) + fb_snapshot_csn(NULL) == 0);
   fb_federation_free(NULL);
   fb_transaction_free(NULL);
   fb_view_free(NULL);
}

/* A forked child must leave its parent's locks alone. */
static void use_in_child(fb_federation *federation)
{
   const pid_t child = fork();
   int status = 1;
   if (child == 0) {
      fb_snapshot *snapshot;
      const int is_refused = fb_snapshot_newest(federation, &snapshot) == FB_CLOSED && snapshot == NULL;
      fb_federation_free(federation);
      _exit(is_refused ? 0 : 1);
   }
   CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int count, char **arguments)
{
   CHECK(count == 2 && fb_version()[0] != 0 && strcmp(fb_status_name(FB_NOT_FOUND), "not-found") == 0);
   pass_null();
   fb_federation *federation;
   fb_snapshot *snapshot;
   fb_view *view;
   CHECK(fb_create(arguments[1], "lhc", &federation) == FB_OK);
   write_runs(federation);
   use_in_child(federation);
   fb_federation_free(federation);
   const fb_options options = {.threads = 1, .cache_bytes = 1 << 20};
   CHECK(fb_open(arguments[1], &options, &federation) == FB_OK);
   CHECK(fb_snapshot_at(federation, 99, &snapshot) == FB_NOT_FOUND && fb_snapshot_tagged(federation, "x", &snapshot) == FB_NOT_FOUND);
   CHECK(fb_snapshot_at(federation, 1, &snapshot) == FB_OK && fb_snapshot_csn(snapshot) == 1);
   CHECK(fb_view_open(snapshot, "run7/events", &view) == FB_OK && fb_view_objects(view) == 200);
   fb_view_free(view);
   fb_snapshot_free(snapshot);
   CHECK(fb_snapshot_newest(federation, &snapshot) == FB_OK && fb_snapshot_csn(snapshot) == 2);
   fb_federation_free(federation);
   list_names(snapshot);
   CHECK(fb_view_open(snapshot, "run7/events", &view) == FB_OK);
   fb_snapshot_free(snapshot);
   CHECK(fb_view_entries(view) == 200 && fb_view_objects(view) == 198 && strstr(fb_view_definition(view), "\"Event\""));
   read_columns(view);
   select_rows(view);
   fb_view_free(view);
   puts("ok");
   return 0;
}
