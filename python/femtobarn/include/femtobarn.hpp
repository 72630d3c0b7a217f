// Femtobarn for C++17: handles that free themselves, and errors as exceptions, over the C API (femtobarn.h).
//
// A program is linked with the library femtobarn_c. In ROOT, femtobarn_rdf.hxx adds a data source for RDataFrame.

#ifndef FEMTOBARN_HPP
#define FEMTOBARN_HPP

#include <cerrno>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "femtobarn.h"

namespace femtobarn {

/// An error of the library. Its kind is a status of femtobarn.h, such as FB_NOT_FOUND.
class Error : public std::runtime_error {
   fb_status fKind;

public:
   Error(fb_status kind, const std::string &text) : std::runtime_error(text), fKind(kind) {}
   fb_status Kind() const { return fKind; }
   const char *KindName() const { return fb_status_name(fKind); }
};

namespace Internal {

inline void Check(fb_status status)
{
   if (status != FB_OK)
      throw Error(status, fb_last_error());
}

template <typename T, void (*Free)(T *)>
struct Deleter {
   void operator()(T *handle) const { Free(handle); }
};

template <typename T, void (*Free)(T *)>
using Handle = std::unique_ptr<T, Deleter<T, Free>>;

/// A text for C, which would end at a NUL in it: then it would be another text.
inline const char *Text(const std::string &text)
{
   if (text.find('\0') != std::string::npos)
      throw Error(FB_INVALID, "a text has a NUL in it");
   return text.c_str();
}

inline std::vector<const char *> Pointers(const std::vector<std::string> &texts)
{
   std::vector<const char *> pointers;
   for (const auto &text : texts)
      pointers.push_back(Text(text));
   return pointers;
}

} // namespace Internal

/// A field compared with a constant, as fb_condition describes: `Field("mass") > 200`.
struct Condition {
   std::string fPath;
   std::int32_t fComparison;
   std::variant<std::int64_t, std::uint64_t, double, std::string> fValue;

   Condition(std::string path, std::int32_t comparison, std::int64_t value)
      : fPath(std::move(path)), fComparison(comparison), fValue(value) {}
   Condition(std::string path, std::int32_t comparison, std::uint64_t value)
      : fPath(std::move(path)), fComparison(comparison), fValue(value) {}
   Condition(std::string path, std::int32_t comparison, double value)
      : fPath(std::move(path)), fComparison(comparison), fValue(value) {}
   Condition(std::string path, std::int32_t comparison, std::string value)
      : fPath(std::move(path)), fComparison(comparison), fValue(std::move(value)) {}
};

/// Conditions that must all hold: `Field("mass") > 200 && Field("run") == 7`.
class Conditions {
   std::vector<Condition> fConditions;

public:
   Conditions() = default;
   Conditions(Condition condition) : fConditions{std::move(condition)} {}
   Conditions(std::vector<Condition> conditions) : fConditions(std::move(conditions)) {}

   bool IsEmpty() const { return fConditions.empty(); }

   Conditions &Add(const Conditions &others)
   {
      fConditions.insert(fConditions.end(), others.fConditions.begin(), others.fConditions.end());
      return *this;
   }

   /// The same for C, as long as this lives and does not change.
   std::vector<fb_condition> ForC() const
   {
      std::vector<fb_condition> all;
      for (const auto &condition : fConditions) {
         fb_condition one{Internal::Text(condition.fPath), condition.fComparison, std::int32_t(condition.fValue.index()), {}};
         switch (condition.fValue.index()) {
         case FB_INTEGER: one.value.integer = std::get<FB_INTEGER>(condition.fValue); break;
         case FB_UNSIGNED: one.value.unsigned_integer = std::get<FB_UNSIGNED>(condition.fValue); break;
         case FB_REAL: one.value.real = std::get<FB_REAL>(condition.fValue); break;
         default: one.value.text = Internal::Text(std::get<FB_TEXT>(condition.fValue));
         }
         all.push_back(one);
      }
      return all;
   }
};

inline Conditions operator&&(Conditions left, const Conditions &right)
{
   return left.Add(right);
}

/// A field of a condition: a number or text outside collections, or the size of a collection ("Muon.#").
class Field {
   std::string fPath;

   template <typename T>
   Condition With(std::int32_t comparison, const T &value) const
   {
      if constexpr (std::is_floating_point_v<T>)
         return {fPath, comparison, double(value)};
      else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>)
         return {fPath, comparison, std::int64_t(value)};
      else if constexpr (std::is_integral_v<T>)
         return {fPath, comparison, std::uint64_t(value)};
      else
         return {fPath, comparison, std::string(value)};
   }

public:
   explicit Field(std::string path) : fPath(std::move(path)) {}

   template <typename T>
   Condition operator<(const T &value) const { return With(FB_LESS, value); }
   template <typename T>
   Condition operator<=(const T &value) const { return With(FB_LESS_EQUAL, value); }
   template <typename T>
   Condition operator>(const T &value) const { return With(FB_GREATER, value); }
   template <typename T>
   Condition operator>=(const T &value) const { return With(FB_GREATER_EQUAL, value); }
   template <typename T>
   Condition operator==(const T &value) const { return With(FB_EQUAL, value); }
   template <typename T>
   Condition operator!=(const T &value) const { return With(FB_NOT_EQUAL, value); }
};

/// A structure of Arrow, which is released with this.
template <typename T>
class Owned {
   T fValue{};

public:
   Owned() = default;
   Owned(Owned &&other) noexcept : fValue(other.fValue) { other.fValue.release = nullptr; }
   Owned &operator=(Owned &&other) noexcept
   {
      std::swap(fValue, other.fValue);
      return *this;
   }
   ~Owned()
   {
      if (fValue.release)
         fValue.release(&fValue);
   }
   T *Get() { return &fValue; }
   const T *Get() const { return &fValue; }
   const T *operator->() const { return &fValue; }
   explicit operator bool() const { return fValue.release != nullptr; }
};

using Schema = Owned<ArrowSchema>;
using Array = Owned<ArrowArray>;

/// Arrays of one type, one after the other.
class Stream {
   Owned<ArrowArrayStream> fStream;

   void Check(int status)
   {
      if (status != 0) {
         const auto *text = fStream.Get()->get_last_error(fStream.Get());
         throw Error(status == EINVAL ? FB_INVALID : FB_IO, text ? text : "the stream failed");
      }
   }

public:
   explicit Stream(Owned<ArrowArrayStream> stream) : fStream(std::move(stream)) {}

   Schema Type()
   {
      Schema schema;
      Check(fStream.Get()->get_schema(fStream.Get(), schema.Get()));
      return schema;
   }

   /// The next array; at the end one that is false.
   Array Next()
   {
      Array array;
      Check(fStream.Get()->get_next(fStream.Get(), array.Get()));
      return array;
   }

   /// The stream for a library that takes it over.
   ArrowArrayStream *Get() { return fStream.Get(); }
};

/// A container in a snapshot. Paths are such as "run" or "Muon.pt"; no path stands for all fields.
class View {
   Internal::Handle<fb_view, fb_view_free> fHandle;

public:
   explicit View(fb_view *handle) : fHandle(handle) {}

   std::uint64_t Entries() const { return fb_view_entries(fHandle.get()); }
   std::uint64_t Objects() const { return fb_view_objects(fHandle.get()); }
   std::string Definition() const { return fb_view_definition(fHandle.get()); }

   /// The entry behind the last one of each cluster.
   std::vector<std::uint64_t> Clusters() const
   {
      std::size_t count = 0;
      Internal::Check(fb_view_clusters(fHandle.get(), nullptr, 0, &count));
      std::vector<std::uint64_t> ends(count);
      Internal::Check(fb_view_clusters(fHandle.get(), ends.data(), ends.size(), &count));
      return ends;
   }

   Schema Type(const std::vector<std::string> &paths = {}) const
   {
      Schema schema;
      const auto names = Internal::Pointers(paths);
      Internal::Check(fb_view_schema(fHandle.get(), names.data(), names.size(), schema.Get()));
      return schema;
   }

   Array Read(const std::vector<std::string> &paths, std::uint64_t first, std::uint64_t end, const Conditions &where = {}) const
   {
      Array array;
      const auto names = Internal::Pointers(paths);
      const auto all = where.ForC();
      Internal::Check(fb_view_read(fHandle.get(), names.data(), names.size(), first, end, all.data(), all.size(), array.Get()));
      return array;
   }

   /// For each entry the position of its object in the array that Read returns without conditions, or -1.
   std::vector<std::int64_t> Rows(std::uint64_t first, std::uint64_t end, const Conditions &where = {}) const
   {
      std::vector<std::int64_t> rows(end > first ? end - first : 0);
      const auto all = where.ForC();
      Internal::Check(fb_view_rows(fHandle.get(), first, end, all.data(), all.size(), rows.data()));
      return rows;
   }

   Stream Scan(const std::vector<std::string> &paths = {}, const Conditions &where = {}) const
   {
      Owned<ArrowArrayStream> stream;
      const auto names = Internal::Pointers(paths);
      const auto all = where.ForC();
      Internal::Check(fb_view_stream(fHandle.get(), names.data(), names.size(), all.data(), all.size(), stream.Get()));
      return Stream(std::move(stream));
   }
};

/// A federation as of a commit.
class Snapshot {
   Internal::Handle<fb_snapshot, fb_snapshot_free> fHandle;

   static std::vector<std::string> Listed(fb_names *handle)
   {
      const Internal::Handle<fb_names, fb_names_free> names(handle);
      std::vector<std::string> all;
      for (std::size_t index = 0; index < fb_names_count(handle); ++index)
         all.emplace_back(fb_names_get(handle, index));
      return all;
   }

public:
   explicit Snapshot(fb_snapshot *handle) : fHandle(handle) {}

   std::uint64_t Csn() const { return fb_snapshot_csn(fHandle.get()); }

   std::vector<std::string> Databases() const
   {
      fb_names *names = nullptr;
      Internal::Check(fb_snapshot_databases(fHandle.get(), &names));
      return Listed(names);
   }

   std::vector<std::string> Containers(const std::string &database) const
   {
      fb_names *names = nullptr;
      Internal::Check(fb_snapshot_containers(fHandle.get(), Internal::Text(database), &names));
      return Listed(names);
   }

   View Open(const std::string &path) const
   {
      fb_view *view = nullptr;
      Internal::Check(fb_view_open(fHandle.get(), Internal::Text(path), &view));
      return View(view);
   }
};

/// Changes that become visible by one commit. Without it nothing has changed.
class Transaction {
   Internal::Handle<fb_transaction, fb_transaction_free> fHandle;

public:
   explicit Transaction(fb_transaction *handle) : fHandle(handle) {}

   /// Creates a container of a class, which is JSON.
   void Create(const std::string &path, const std::string &definition)
   {
      Internal::Check(fb_transaction_create(fHandle.get(), Internal::Text(path), Internal::Text(definition)));
   }

   /// Appends objects; returns the entry of the first.
   std::uint64_t Append(const std::string &path, const Schema &schema, const Array &array)
   {
      std::uint64_t first = 0;
      Internal::Check(fb_transaction_append(fHandle.get(), Internal::Text(path), schema.Get(), array.Get(), &first));
      return first;
   }

   void Delete(const std::string &path, const std::vector<std::uint64_t> &entries)
   {
      Internal::Check(fb_transaction_delete(fHandle.get(), Internal::Text(path), entries.data(), entries.size()));
   }

   /// Commits, and ends; returns the number of the commit.
   std::uint64_t Commit()
   {
      std::uint64_t csn = 0;
      Internal::Check(fb_transaction_commit(fHandle.get(), &csn));
      return csn;
   }
};

/// An open federation.
class Federation {
   Internal::Handle<fb_federation, fb_federation_free> fHandle;

   explicit Federation(fb_federation *handle) : fHandle(handle) {}

public:
   /// Opens a folder, a URL such as root://host//lhc.fed, or URLs of copies, separated by commas.
   static Federation Open(const std::string &place, const fb_options &options = {})
   {
      fb_federation *federation = nullptr;
      Internal::Check(fb_open(Internal::Text(place), &options, &federation));
      return Federation(federation);
   }

   static Federation Create(const std::string &folder, const std::string &name)
   {
      fb_federation *federation = nullptr;
      Internal::Check(fb_create(Internal::Text(folder), Internal::Text(name), &federation));
      return Federation(federation);
   }

   Snapshot Newest() const
   {
      fb_snapshot *snapshot = nullptr;
      Internal::Check(fb_snapshot_newest(fHandle.get(), &snapshot));
      return Snapshot(snapshot);
   }

   Snapshot At(std::uint64_t csn) const
   {
      fb_snapshot *snapshot = nullptr;
      Internal::Check(fb_snapshot_at(fHandle.get(), csn, &snapshot));
      return Snapshot(snapshot);
   }

   Snapshot Tagged(const std::string &tag) const
   {
      fb_snapshot *snapshot = nullptr;
      Internal::Check(fb_snapshot_tagged(fHandle.get(), Internal::Text(tag), &snapshot));
      return Snapshot(snapshot);
   }

   Transaction Begin(const std::string &message)
   {
      fb_transaction *transaction = nullptr;
      Internal::Check(fb_transaction_begin(fHandle.get(), Internal::Text(message), &transaction));
      return Transaction(transaction);
   }
};

} // namespace femtobarn

#endif
