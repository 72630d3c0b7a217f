// Common parts of the programs of ROOT's side.

#ifndef BENCHES_ROOT_COMMON
#define BENCHES_ROOT_COMMON

#include "measure.hxx"

#include <ROOT/REntry.hxx>
#include <ROOT/RNTupleModel.hxx>
#include <ROOT/RNTupleReader.hxx>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// The sum of the 32-bit words of some values, modulo 2^32.
inline std::uint32_t sum_of_words(const void *values, std::size_t bytes)
{
   std::uint32_t sum = 0, word;
   for (std::size_t at = 0; at < bytes; at += sizeof(word)) {
      std::memcpy(&word, static_cast<const char *>(values) + at, sizeof(word));
      sum += word;
   }
   return sum;
}

using Names = std::vector<std::string>;

// The values read, and the sum of their 32-bit words, which does not depend on their order.
struct Seen {
   std::uint64_t fEntries = 0, fBytes = 0;
   std::uint32_t fCheck = 0;

   void add(const void *values, std::size_t bytes)
   {
      fCheck += sum_of_words(values, bytes);
      fBytes += bytes;
   }
   template <typename T>
   void add(const T &value)
   {
      if constexpr (std::is_arithmetic_v<T>)
         add(&value, sizeof(value));
      else
         add(value.data(), value.size() * sizeof(value[0]));
   }
   Seen &operator+=(const Seen &other)
   {
      fEntries += other.fEntries;
      fBytes += other.fBytes;
      fCheck += other.fCheck;
      return *this;
   }
};

// Does the work twice, opening the source each time, and times the second pass.
template <typename Open, typename Work>
void measure(Open open, Work work)
{
   work(open());
   auto source = open();
   Stopwatch watch;
   const Seen seen = work(std::move(source));
   watch.report(seen.fEntries, seen.fBytes, seen.fCheck);
}

// The names of a list such as "a,b".
inline Names names_in(const std::string &list)
{
   Names names;
   std::istringstream words(list);
   for (std::string name; std::getline(words, name, ',');)
      names.push_back(name);
   return names;
}

inline const Names kRowFields{"run", "event", "time", "x", "y", "z", "energy", "momentum", "covariance", "hits"};

// The fields of an object of 100 bytes, in the layout of rows.bin (benches/sides/data.py), bound to an entry.
class Row {
   template <typename T>
   using Field = std::shared_ptr<T>;

   std::tuple<Field<std::uint32_t>, Field<std::uint64_t>, Field<double>, Field<double>, Field<double>, Field<double>,
              Field<double>, Field<std::array<float, 3>>, Field<std::array<float, 5>>, Field<std::array<std::uint16_t, 8>>>
      fFields;

   template <typename Make, std::size_t... Indexes>
   void each_of(Make &&field, std::index_sequence<Indexes...>)
   {
      (field(std::get<Indexes>(fFields), kRowFields[Indexes]), ...);
   }

public:
   // The fields of a new model.
   explicit Row(ROOT::RNTupleModel &model)
   {
      each_of(
         [&](auto &field, const std::string &name) {
            using T = typename std::remove_reference_t<decltype(field)>::element_type;
            field = model.MakeField<T>(name);
         },
         std::make_index_sequence<10>());
   }
   // The fields of an entry.
   explicit Row(const ROOT::REntry &entry)
   {
      each_of(
         [&](auto &field, const std::string &name) {
            using T = typename std::remove_reference_t<decltype(field)>::element_type;
            field = entry.GetPtr<T>(name);
         },
         std::make_index_sequence<10>());
   }
   template <typename Visit>
   void each(Visit &&visit) const
   {
      std::apply([&](const auto &...fields) { (visit(fields), ...); }, fFields);
   }
};

// The cut of the chapter selection.
inline bool passes(float f00, float f01)
{
   return f00 > 4.28125f && std::abs(f01) < 0.15625f;
}

template <typename Run>
int guarded(const char *program, Run run, int count, char **arguments)
{
   try {
      run(std::vector<std::string>(arguments + 1, arguments + count));
      return 0;
   } catch (const std::exception &error) {
      std::fprintf(stderr, "%s: %s\n", program, error.what());
      return 1;
   }
}

#endif
