// Makes values of all types that root_write.py writes from bytes, which `stored` of kinds.py has made of them.
#pragma once

#include "classes.hxx"

#include <ROOT/RVec.hxx>

#include <array>
#include <atomic>
#include <bitset>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

namespace judge {

// The bytes of a file, which are taken from the front.
class Bytes {
public:
   explicit Bytes(const char *path)
   {
      std::ifstream file(path, std::ios::binary);
      fBytes.assign(std::istreambuf_iterator<char>(file), {});
   }
   const char *take(std::size_t size)
   {
      if (size > fBytes.size() - fTaken)
         throw std::runtime_error("there are fewer bytes than the values need");
      fTaken += size;
      return fBytes.data() + fTaken - size;
   }
   void end() const
   {
      if (fTaken != fBytes.size())
         throw std::runtime_error("there are more bytes than the values need");
   }

private:
   std::string fBytes;
   std::size_t fTaken = 0;
};

// Numbers, booleans, enumerations; the other types follow.
template <typename T>
struct Taken {
   static T from(Bytes &bytes)
   {
      static_assert(std::is_arithmetic<T>::value || std::is_enum<T>::value, "no rule for this type");
      T value;
      std::memcpy(&value, bytes.take(sizeof(T)), sizeof(T));
      return value;
   }
};

template <typename T>
T take(Bytes &bytes)
{
   return Taken<T>::from(bytes);
}

template <typename T>
void take_into(Bytes &bytes, T &target)
{
   target = take<T>(bytes);
}

template <typename T>
void take_into(Bytes &bytes, std::atomic<T> &target)
{
   target = take<T>(bytes);
}

template <>
struct Taken<std::string> {
   static std::string from(Bytes &bytes)
   {
      const auto size = take<std::uint32_t>(bytes);
      return std::string(bytes.take(size), size);
   }
};

template <typename List>
struct TakenList {
   static List from(Bytes &bytes)
   {
      List list;
      for (auto left = take<std::uint32_t>(bytes); left > 0; --left)
         list.push_back(take<typename List::value_type>(bytes));
      return list;
   }
};

template <typename Set>
struct TakenSet {
   static Set from(Bytes &bytes)
   {
      Set set;
      for (auto left = take<std::uint32_t>(bytes); left > 0; --left)
         set.insert(take<typename Set::key_type>(bytes));
      return set;
   }
};

template <typename Map>
struct TakenMap {
   static Map from(Bytes &bytes)
   {
      Map map;
      for (auto left = take<std::uint32_t>(bytes); left > 0; --left) {
         auto key = take<typename Map::key_type>(bytes);
         map.insert({std::move(key), take<typename Map::mapped_type>(bytes)});
      }
      return map;
   }
};

// clang-format off
template <typename T> struct Taken<std::vector<T>> : TakenList<std::vector<T>> {};
template <typename T> struct Taken<ROOT::VecOps::RVec<T>> : TakenList<ROOT::VecOps::RVec<T>> {};
template <typename T> struct Taken<std::set<T>> : TakenSet<std::set<T>> {};
template <typename T> struct Taken<std::multiset<T>> : TakenSet<std::multiset<T>> {};
template <typename T> struct Taken<std::unordered_set<T>> : TakenSet<std::unordered_set<T>> {};
template <typename K, typename T> struct Taken<std::map<K, T>> : TakenMap<std::map<K, T>> {};
template <typename K, typename T> struct Taken<std::multimap<K, T>> : TakenMap<std::multimap<K, T>> {};
template <typename K, typename T> struct Taken<std::unordered_map<K, T>> : TakenMap<std::unordered_map<K, T>> {};
// clang-format on

template <typename T, std::size_t N>
struct Taken<std::array<T, N>> {
   static std::array<T, N> from(Bytes &bytes)
   {
      std::array<T, N> items;
      for (auto &item : items)
         item = take<T>(bytes);
      return items;
   }
};

template <std::size_t N>
struct Taken<std::bitset<N>> {
   static std::bitset<N> from(Bytes &bytes)
   {
      std::bitset<N> bits;
      for (std::size_t i = 0; i < N; ++i)
         bits[i] = take<bool>(bytes);
      return bits;
   }
};

template <typename T>
struct Taken<std::optional<T>> {
   static std::optional<T> from(Bytes &bytes)
   {
      if (take<bool>(bytes))
         return take<T>(bytes);
      return std::nullopt;
   }
};

template <typename T>
struct Taken<std::unique_ptr<T>> {
   static std::unique_ptr<T> from(Bytes &bytes)
   {
      return take<bool>(bytes) ? std::make_unique<T>(take<T>(bytes)) : nullptr;
   }
};

// Braces fix the order in which the parts are taken.
template <typename A, typename B>
struct Taken<std::pair<A, B>> {
   static std::pair<A, B> from(Bytes &bytes) { return std::pair<A, B>{take<A>(bytes), take<B>(bytes)}; }
};

template <typename... Parts>
struct Taken<std::tuple<Parts...>> {
   static std::tuple<Parts...> from(Bytes &bytes) { return std::tuple<Parts...>{take<Parts>(bytes)...}; }
};

template <typename... Parts>
struct Taken<std::variant<Parts...>> {
   using Variant = std::variant<Parts...>;
   static Variant from(Bytes &bytes)
   {
      return at(take<std::uint8_t>(bytes), bytes, std::index_sequence_for<Parts...>{});
   }
   template <std::size_t... I>
   static Variant at(std::size_t index, Bytes &bytes, std::index_sequence<I...>)
   {
      Variant value;
      ((I == index ? void(value.template emplace<I>(take<Parts>(bytes))) : void()), ...);
      return value;
   }
};

template <>
struct Taken<Point> {
   static Point from(Bytes &bytes)
   {
      return Point{take<float>(bytes), take<double>(bytes), take<std::vector<std::int32_t>>(bytes)};
   }
};

template <>
struct Taken<Empty> {
   static Empty from(Bytes &) { return {}; }
};

template <>
struct Taken<Tagged> {
   static Tagged from(Bytes &bytes) { return Tagged{take<std::int32_t>(bytes), take<float>(bytes)}; }
};

template <>
struct Taken<Track> {
   static Track from(Bytes &bytes)
   {
      return Track{take<Point>(bytes),
                   take<std::int16_t>(bytes),
                   take<std::array<float, 3>>(bytes),
                   take<Colour>(bytes),
                   take<std::vector<Point>>(bytes),
                   take<std::string>(bytes)};
   }
};

template <>
struct Taken<Seed> {
   static Seed from(Bytes &bytes)
   {
      return Seed{take<Point>(bytes), take<Tagged>(bytes), take<Empty>(bytes), take<double>(bytes), take<Empty>(bytes)};
   }
};

} // namespace judge
